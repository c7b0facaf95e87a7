/* sample/cpu: what a thread has run goes to what was seen running, and no further. */
#include "sample/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define MS 1000000u
#define TICK (10 * MS)

static struct scry_samples_cpu cpu;

static int setup(void **state)
{
	(void)state;
	scry_samples_cpu_init(&cpu);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	scry_samples_cpu_done(&cpu);
	return 0;
}

/* A thread that has run from 5 ms to 5 ms + `ran_ns`. */
static void meet(uint64_t ran_ns)
{
	struct scry_task_now now = {.run_ns = 5 * MS};

	assert_int_equal(scry_samples_cpu_hit(&cpu, 77, &now), 0);
	now.run_ns += ran_ns;
	scry_samples_cpu_ran(&cpu, (uint32_t)cpu.count, &now);
}

static void sees(uint64_t looks, bool is_ready)
{
	while (looks--)
		scry_samples_cpu_seen(&cpu, (uint32_t)cpu.count, TICK, is_ready);
}

/* 100 ms of bursts, of which 8 looks have met one: chance explains it, and all is placed. */
static void shared_out(void **state)
{
	(void)state;
	meet(100 * MS);
	sees(8, false);
	assert_int_equal(scry_samples_cpu_place(&cpu, 1, 6 * TICK), 75 * MS);
	assert_int_equal(scry_samples_cpu_place(&cpu, 1, 2 * TICK), 25 * MS);
	assert_int_equal(scry_samples_cpu_unknown(&cpu, 1), 0);
}

/* A thread that has its task only later, and for a while none: what it ran counts once, and what
 * another has run on that task meanwhile is not its. */
static void another_task(void **state)
{
	const struct scry_task_now none = {.is_gone = true};
	struct scry_task_now now = {.run_ns = 10 * MS};

	(void)state;
	cpu.has_begun = true;
	assert_int_equal(scry_samples_cpu_hit(&cpu, 0, &none), 0);
	scry_map_put(&cpu.ran, 77, 4 * MS); /* it was another's before */
	scry_samples_cpu_task(&cpu, 1, 77, &now);
	scry_samples_cpu_leave(&cpu, 1, 77);
	scry_samples_cpu_task(&cpu, 1, 0, &none);
	assert_int_equal(scry_samples_cpu_unknown(&cpu, 1), 6 * MS);
	scry_map_put(&cpu.ran, 77, 30 * MS); /* another's again */
	now.run_ns = 31 * MS;
	scry_samples_cpu_task(&cpu, 1, 77, &now);
	assert_int_equal(scry_samples_cpu_unknown(&cpu, 1), 7 * MS);
}

/* It was seen more often than it ran: never more than the kernel counts. */
static void never_more(void **state)
{
	(void)state;
	meet(30 * MS);
	sees(9, false);
	assert_int_equal(scry_samples_cpu_place(&cpu, 1, 9 * TICK), 30 * MS);
	assert_int_equal(scry_samples_cpu_place(&cpu, 1, 9 * TICK), 0);
}

/* One look of 10 ms explains 40, and no more; none explains nothing. */
static void unknown(void **state)
{
	(void)state;
	meet(100 * MS);
	sees(1, false);
	assert_int_equal(scry_samples_cpu_place(&cpu, 1, TICK), 40 * MS);
	assert_int_equal(scry_samples_cpu_unknown(&cpu, 1), 60 * MS);
	meet(100 * MS);
	assert_int_equal(scry_samples_cpu_place(&cpu, 2, 0), 0);
	assert_int_equal(scry_samples_cpu_unknown(&cpu, 2), 100 * MS);
	/* ready looks say that it may have run, and not where */
	meet(100 * MS);
	sees(25, true);
	assert_int_equal(scry_samples_cpu_place(&cpu, 3, 0), 0);
	assert_int_equal(scry_samples_cpu_unknown(&cpu, 3), 100 * MS);
	sees(1, false);
	assert_int_equal(scry_samples_cpu_place(&cpu, 3, TICK), 100 * MS);
}

/* A native thread of a thread that went serves another: what it ran before is not told twice. */
static void comes_again(void **state)
{
	struct scry_task_now now = {.run_ns = 50 * MS};

	(void)state;
	assert_int_equal(scry_samples_cpu_hit(&cpu, getpid(), &now), 0);
	assert_int_equal(scry_samples_cpu_unknown(&cpu, 1), 0); /* it ran before the watch */
	cpu.has_begun = true;
	now.run_ns = 60 * MS;
	scry_samples_cpu_ran(&cpu, 1, &now);
	scry_samples_cpu_leave(&cpu, 1, getpid());
	now.run_ns = 63 * MS;
	assert_int_equal(scry_samples_cpu_hit(&cpu, getpid(), &now), 0);
	assert_int_equal(scry_samples_cpu_unknown(&cpu, 1), 10 * MS);
	assert_int_equal(scry_samples_cpu_unknown(&cpu, 2), 3 * MS);
	/* another one, that is as old as this process, and was idle: it is not known for whom it
	 * ran */
	scry_map_done(&cpu.ran);
	assert_int_equal(scry_samples_cpu_hit(&cpu, getpid(), &now), 0);
	assert_int_equal(scry_samples_cpu_unknown(&cpu, 3), 0);
	cpu.began_ticks = 0; /* and one that was born since */
	assert_int_equal(scry_samples_cpu_hit(&cpu, getpid(), &now), 0);
	assert_int_equal(scry_samples_cpu_unknown(&cpu, 4), 63 * MS);
	now = (struct scry_task_now){.is_gone = true};
	assert_int_equal(scry_samples_cpu_hit(&cpu, 1, &now), 0);
	assert_int_equal(scry_samples_cpu_unknown(&cpu, 5), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(shared_out, setup, teardown),
		cmocka_unit_test_setup_teardown(another_task, setup, teardown),
		cmocka_unit_test_setup_teardown(never_more, setup, teardown),
		cmocka_unit_test_setup_teardown(unknown, setup, teardown),
		cmocka_unit_test_setup_teardown(comes_again, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
