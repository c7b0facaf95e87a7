/* The pulse keeps leases while its keeper is elsewhere: how long, whose, and whose not. */
#include "hook/heartbeat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <x86intrin.h>

#include <cmocka.h>

#define PATIENCE_NS 3600000000000ull /* longer than any test */
#define TICKS 3

static struct scry_control control, other;
static struct scry_heartbeat *heartbeat;

static int set_up(void **state)
{
	(void)state;
	memset(&control, 0, sizeof(control));
	memset(&other, 0, sizeof(other));
	control.lease_tsc = other.lease_tsc = __rdtsc();
	return scry_heartbeat_new(PATIENCE_NS, &heartbeat);
}

static int tear_down(void **state)
{
	(void)state;
	scry_heartbeat_free(heartbeat);
	return 0;
}

static void keep(struct scry_control *first, size_t stride, uint32_t count)
{
	assert_int_equal(
		scry_heartbeat_keep(heartbeat,
				    &(struct scry_heartbeat_controls){first, stride, count}),
		0);
}

static uint64_t lease_of(const struct scry_control *c)
{
	return __atomic_load_n(&c->lease_tsc, __ATOMIC_ACQUIRE);
}

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Whole ticks of the pulse, as the lease of `c` tells. */
static void await_ticks(const struct scry_control *c, int ticks)
{
	for (int i = 0; i <= ticks; i++) { /* the first may have begun before */
		uint64_t was = lease_of(c);

		while (lease_of(c) == was)
			nap();
	}
}

static void nobody_beats(void **state)
{
	(void)state;
	keep(&control, 0, 1);
	await_ticks(&control, TICKS);
	assert_true(lease_of(&control) > __rdtsc());
	assert_int_equal(control.buffer_freed, 0); /* nobody waits */
	assert_true(scry_heartbeat_gap_ns(heartbeat) > 0);
}

static void patience_ends(void **state)
{
	(void)state;
	scry_heartbeat_free(heartbeat);
	assert_int_equal(scry_heartbeat_new(300000000, &heartbeat), 0);
	keep(&control, 0, 1);
	while (lease_of(&control) < __rdtsc()) {
		scry_heartbeat_beat(heartbeat);
		nap();
	}
	while (lease_of(&control) > __rdtsc())
		nap();
	while (lease_of(&control) < __rdtsc()) {
		scry_heartbeat_beat(heartbeat);
		nap();
	}
	assert_true(scry_heartbeat_gap_ns(heartbeat) > 300000000);
}

static void one_that_was_taken_back(void **state)
{
	(void)state;
	control.lease_tsc = 0;
	control.buffer_waiting = 1;
	keep(&control, 0, 1);
	keep(&other, 0, 1);
	await_ticks(&other, 5); /* it is late by then */
	assert_int_equal(lease_of(&control), 0);
	assert_int_equal(control.buffer_freed, 0);
}

static void a_longer_one_is_left(void **state)
{
	const uint64_t end = UINT64_MAX - 1;

	(void)state;
	control.lease_tsc = end;
	keep(&control, 0, 1);
	keep(&other, 0, 1);
	await_ticks(&other, TICKS);
	assert_true(lease_of(&control) == end);
}

/* Who waits is told that we live; who does not is told nothing. */
static void signs_of_life(void **state)
{
	(void)state;
	control.buffer_waiting = 1;
	keep(&control, 0, 1);
	keep(&other, 0, 1);
	while (__atomic_load_n(&control.buffer_freed, __ATOMIC_ACQUIRE) < TICKS)
		nap();
	assert_int_equal(other.buffer_freed, 0);
	assert_int_equal(control.buffer_waiting, 1); /* they are still to be woken */
}

static void child_buffers(void **state)
{
	enum { COUNT = 5 };
	struct scry_control *page[COUNT];
	char *all = mmap(NULL, COUNT * 2 * SCRY_PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(all, MAP_FAILED);
	for (size_t i = 0; i < COUNT; i++) {
		page[i] = (struct scry_control *)(all + i * 2 * SCRY_PAGE);
		page[i]->lease_tsc = i == 2 ? 0 : 1;
	}
	keep(page[0], 2 * (size_t)SCRY_PAGE, COUNT);
	keep(&other, 0, 1);
	await_ticks(&other, TICKS);
	for (size_t i = 0; i < COUNT; i++)
		assert_int_equal(lease_of(page[i]) > 1, i != 2);
	scry_heartbeat_forget(heartbeat, page[0]);
	munmap(all, COUNT * 2 * SCRY_PAGE); /* nobody looks there any more */
	await_ticks(&other, TICKS);
}

static void many_come_and_go(void **state)
{
	static struct scry_control many[100];

	(void)state;
	for (size_t i = 0; i < 100; i++) {
		many[i].lease_tsc = 1;
		keep(&many[i], 0, 1);
	}
	for (size_t i = 0; i < 100; i += 2)
		scry_heartbeat_forget(heartbeat, &many[i]);
	keep(&other, 0, 1);
	await_ticks(&other, TICKS);
	for (size_t i = 1; i < 100; i += 2)
		assert_true(lease_of(&many[i]) > 1);
	for (size_t i = 0; i < 100; i += 2)
		many[i].lease_tsc = 1;
	await_ticks(&other, TICKS);
	for (size_t i = 0; i < 100; i += 2)
		assert_true(lease_of(&many[i]) == 1);
}

static void none(void **state)
{
	(void)state;
	scry_heartbeat_beat(NULL);
	assert_int_equal(scry_heartbeat_gap_ns(NULL), 0);
	assert_int_equal(
		scry_heartbeat_keep(NULL, &(struct scry_heartbeat_controls){&control, 0, 1}), 0);
	scry_heartbeat_forget(NULL, &control);
	scry_heartbeat_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nobody_beats, set_up, tear_down),
		cmocka_unit_test_setup_teardown(patience_ends, set_up, tear_down),
		cmocka_unit_test_setup_teardown(one_that_was_taken_back, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_longer_one_is_left, set_up, tear_down),
		cmocka_unit_test_setup_teardown(signs_of_life, set_up, tear_down),
		cmocka_unit_test_setup_teardown(child_buffers, set_up, tear_down),
		cmocka_unit_test_setup_teardown(many_come_and_go, set_up, tear_down),
		cmocka_unit_test(none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
