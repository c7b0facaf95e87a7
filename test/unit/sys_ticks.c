/* Leases in ticks of the TSC, on a machine that sleeps: by readings that are made up, and by real
 * ones. */
#include "sys/ticks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#define SECOND 1000000000ull
#define RATE 3ull /* ticks a nanosecond */

static struct scry_ticks t;
static struct scry_ticks_pair now;

static int set_up(void **state)
{
	(void)state;
	now = (struct scry_ticks_pair){
		.tsc = 1000 * SECOND, .ns = 7 * SECOND, .boot_ns = 9 * SECOND};
	scry_ticks_start(&t, &now);
	return 0;
}

static void runs(uint64_t ns)
{
	now.tsc += RATE * ns;
	now.ns += ns;
	now.boot_ns += ns;
}

/* A lease of a second ends a second later, to a thousandth. */
static void is_a_second(void)
{
	uint64_t end = scry_ticks_after(&t, &now, SECOND), want = now.tsc + RATE * SECOND;

	assert_in_range(end, want - RATE * SECOND / 1000, want + RATE * SECOND / 1000);
}

static void not_known_at_first(void **state)
{
	(void)state;
	runs(SCRY_TICKS_LEAST_NS - 1);
	assert_int_equal(scry_ticks_after(&t, &now, SECOND), 0);
	runs(1);
	is_a_second();
}

static void awake(void **state)
{
	(void)state;
	for (int i = 0; i < 100; i++) {
		runs(100000000);
		is_a_second();
	}
}

/* The TSC goes on, CLOCK_MONOTONIC does not. */
static void slept(void **state)
{
	(void)state;
	runs(SECOND);
	is_a_second();
	now.tsc += RATE * 28800 * SECOND;
	now.boot_ns += 28800 * SECOND;
	is_a_second();
	for (int i = 0; i < 10; i++) {
		runs(100000000);
		is_a_second();
	}
}

/* It begins at 0 again, and passes the old reading later on. */
static void slept_deeply(void **state)
{
	(void)state;
	runs(SECOND);
	is_a_second();
	now.tsc = 12345;
	now.boot_ns += 60 * SECOND;
	is_a_second();
	runs(1200 * SECOND);
	is_a_second();
}

static void slept_before_it_was_known(void **state)
{
	(void)state;
	runs(1000);
	now.tsc += RATE * 60 * SECOND;
	now.boot_ns += 60 * SECOND;
	assert_int_equal(scry_ticks_after(&t, &now, SECOND), 0);
	runs(SCRY_TICKS_LEAST_NS);
	is_a_second();
}

/* The machine's own clocks: what was said to come after 50 ms does not come before. */
static void real(void **state)
{
	struct scry_ticks_pair begun = scry_ticks_look(), then;
	uint64_t end;

	(void)state;
	scry_ticks_start(&t, &begun);
	do {
		then = scry_ticks_look();
		end = scry_ticks_after(&t, &then, 50000000);
	} while (!end || then.ns - begun.ns < 20000000);
	do
		now = scry_ticks_look();
	while (now.tsc < end);
	assert_in_range(now.ns - then.ns, 49000000, UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(not_known_at_first, set_up),
		cmocka_unit_test_setup(awake, set_up),
		cmocka_unit_test_setup(slept, set_up),
		cmocka_unit_test_setup(slept_deeply, set_up),
		cmocka_unit_test_setup(slept_before_it_was_known, set_up),
		cmocka_unit_test(real),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
