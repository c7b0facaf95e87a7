/* Leases and times in ticks of the TSC, on a machine that sleeps: by readings that are made up, and
 * by real ones. */
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
	t = (struct scry_ticks){0};
	scry_ticks_mark(&t, &now);
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

/* Stamps from before a sleep, in it and behind it: each has the CLOCK_MONOTONIC of its moment. */
static void times_over_a_sleep(void **state)
{
	struct scry_ticks_pair early, late, woken;

	(void)state;
	early = now;
	runs(SECOND);
	scry_ticks_mark(&t, &now);
	late = now;
	assert_int_equal(scry_ticks_time(&t, early.tsc + RATE * 250000000), early.ns + 250000000);
	now.tsc += RATE * 28800 * SECOND;
	now.boot_ns += 28800 * SECOND;
	scry_ticks_mark(&t, &now);
	woken = now;
	/* what was written before is read only now */
	assert_int_equal(scry_ticks_time(&t, early.tsc + RATE * 250000000), early.ns + 250000000);
	assert_int_equal(scry_ticks_time(&t, late.tsc), late.ns);
	runs(SECOND);
	scry_ticks_mark(&t, &now);
	assert_int_equal(scry_ticks_time(&t, woken.tsc + RATE * 500000000), woken.ns + 500000000);
	assert_int_equal(scry_ticks_time(&t, late.tsc), late.ns);
	/* and none is later than what came after it */
	assert_in_range(scry_ticks_time(&t, woken.tsc - 1), late.ns, woken.ns);
	assert_in_range(scry_ticks_time(&t, early.tsc - 1), early.ns, early.ns);
	assert_int_equal(scry_ticks_length(&t, RATE * 12345), 12345);
	assert_int_equal(scry_ticks_by(&woken, &now, RATE * 777), 777);
	assert_int_equal(scry_ticks_by(&now, &now, 1), 0);
}

/* The machine's own clocks: what was said to come after 50 ms does not come before. */
static void real(void **state)
{
	struct scry_ticks_pair begun = scry_ticks_look(), then;
	uint64_t end;

	(void)state;
	t = (struct scry_ticks){0};
	scry_ticks_mark(&t, &begun);
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
		cmocka_unit_test_setup(times_over_a_sleep, set_up),
		cmocka_unit_test(real),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
