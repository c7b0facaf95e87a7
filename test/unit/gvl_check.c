/*
 * The looks that hold the agent's table against the VM's frames: a thread that has not the lock by
 * the table, and whose newest frame is another one at the second look, contradicts it. The "VM" is
 * words of this process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "instrument/gvl/past.h"

struct thread { /* and its ec and frame, as they lie in the layout below */
	uint64_t self, ec_at;
	uint64_t cfp_at;
	uint64_t pc;
};

static struct thread threads[3];
static struct scry_ruby ruby;
static struct scry_gvl g;
static uint64_t now_ns;

static int set_up(void **state)
{
	(void)state;
	g = (struct scry_gvl){
		.ruby = &ruby, .table = calloc(1, sizeof(*g.table)), .check = scry_gvl_check_new()};
	if (!g.table || !g.check)
		return -1;
	ruby.layout.th_self = offsetof(struct thread, self);
	ruby.layout.th_ec = offsetof(struct thread, ec_at);
	ruby.layout.ec_cfp = 0;
	ruby.layout.frame_pc = 0;
	for (uint32_t i = 0; i < 3; i++) {
		threads[i] = (struct thread){.self = 100 + i,
					     .ec_at = (uint64_t)&threads[i].cfp_at,
					     .cfp_at = (uint64_t)&threads[i].pc,
					     .pc = 1000 + i};
		g.table->row[i + 1] = (struct scry_gvl_row){
			.th = (uint64_t)&threads[i], .since = 50 + i, .state = SCRY_GVL_OFF};
	}
	g.table->rows = 4;
	g.table->sequence = 20;
	return scry_mem_open(&ruby.mem, getpid(), 0);
}

static int tear_down(void **state)
{
	(void)state;
	scry_mem_close(&ruby.mem);
	scry_gvl_check_free(g.check);
	free(g.table);
	return 0;
}

/* So many looks, all threads in turn, after each of which `change` is called. */
static void look(uint32_t times, void (*change)(void))
{
	for (uint32_t i = 0; i < times; i++) {
		scry_gvl_check_look(&g, now_ns += 1000000000);
		if (change)
			change();
	}
}

static uint64_t looks_of(uint32_t row)
{
	return scry_gvl_check_of(&g, row).looks;
}

static uint64_t contradicted_of(uint32_t row)
{
	return scry_gvl_check_of(&g, row).contradicted;
}

static void who_stands_is_right(void **state)
{
	(void)state;
	g.table->row[2].state = SCRY_GVL_WANTS;
	g.table->row[3].state = SCRY_GVL_GRANTED;
	look(60, NULL);
	for (uint32_t i = 1; i <= 3; i++) {
		assert_int_equal(looks_of(i), 10);
		assert_int_equal(contradicted_of(i), 0);
	}
}

static void run_second(void)
{
	threads[1].pc += 8;
}

static void who_runs_all_the_same_contradicts(void **state)
{
	(void)state;
	look(60, run_second);
	assert_int_equal(looks_of(1), 10);
	assert_int_equal(contradicted_of(1), 0);
	assert_int_equal(looks_of(2), 10);
	assert_int_equal(contradicted_of(2), 10);
}

static void run_and_say_so(void)
{
	threads[1].pc += 8;
	g.table->row[2].since++;
}

static void who_had_the_lock_meanwhile_says_nothing(void **state)
{
	(void)state;
	look(60, run_and_say_so);
	assert_int_equal(looks_of(2), 0);
}

static void end_second(void)
{
	threads[1].self++; /* its struct is a new thread's */
	threads[1].pc = 0;
}

static void who_has_it_or_is_another_says_nothing(void **state)
{
	(void)state;
	g.table->row[1].state = SCRY_GVL_HOLDS;
	g.table->row[3].th = 0;
	look(60, end_second);
	for (uint32_t i = 1; i <= 3; i++)
		assert_int_equal(looks_of(i), 0);
	threads[1].ec_at = 0; /* it has ended */
	look(60, NULL);
	assert_int_equal(looks_of(2), 0);
}

static void rows_given_back_are_summed(void **state)
{
	struct scry_gvl_past *past = scry_gvl_past_new();

	(void)state;
	assert_non_null(past);
	g.past = past;
	look(60, run_second);
	past->gone[2] = (struct scry_gvl_gone){.is_gone = true, .who = 2, .group = 7};
	scry_gvl_check_regroup(&g);
	assert_int_equal(looks_of(2), 0);
	assert_int_equal(looks_of(SCRY_GVL_ENDED_FROM + 7), 10);
	assert_int_equal(contradicted_of(SCRY_GVL_ENDED_FROM + 7), 10);
	scry_gvl_past_free(past);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(who_stands_is_right, set_up, tear_down),
		cmocka_unit_test_setup_teardown(who_runs_all_the_same_contradicts, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(who_had_the_lock_meanwhile_says_nothing, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(who_has_it_or_is_another_says_nothing, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(rows_given_back_are_summed, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
