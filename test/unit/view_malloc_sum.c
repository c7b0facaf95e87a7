/* view/malloc_sum: what it keeps, of how many, and no more than its bound. */
#include "view/malloc_sum.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"

#define PID 4711

static int sum_call(struct scry_malloc_sum *sum, const struct scry_ev_malloc *call)
{
	struct {
		struct scry_event head;
		struct scry_ev_malloc call;
	} event = {{.type = SCRY_EVENT_MALLOC}, *call};

	return scry_malloc_sum_event(sum, &event.head);
}

static int sum_end(struct scry_malloc_sum *sum, uint32_t pid)
{
	struct {
		struct scry_event head;
		struct scry_ev_detach detach;
	} event = {{.type = SCRY_EVENT_DETACH}, {.pid = pid}};

	return scry_malloc_sum_event(sum, &event.head);
}

/* Of a process that has ended its figures are kept; its callers where it has most calls. */
static void ended_processes(void **state)
{
	static const uint32_t calls[] = {10, 30, 20};
	struct scry_ev_malloc call = {
		.function = SCRY_MALLOC_MALLOC, .pid = PID, .caller = 1, .size = 1000};
	struct scry_malloc_sum sum = {0};

	for (uint32_t i = 0; i < 3; i++) { /* the same pid: programs that one process ran */
		for (call.block = 0; call.block < calls[i]; call.block++)
			assert_int_equal(sum_call(&sum, &call), 0);
		assert_int_equal(sum_end(&sum, PID), 0);
		assert_int_equal(sum_end(&sum, PID), 0); /* nobody ends */
	}
	scry_malloc_sum_close(&sum);
	assert_int_equal(sum.count, 3);
	for (uint32_t i = 0; i < 3; i++) {
		const struct scry_malloc_process *p = sum.processes[i];

		assert_null(p->pages);
		assert_int_equal(p->peak.bytes, p->calls * 1000);
		assert_int_equal(p->callers != NULL, p->calls != 20);
	}
	assert_int_equal(scry_malloc_sum_main(&sum)->calls, 30);
	assert_int_equal(scry_malloc_sum_main(&sum)->callers[1].peak.bytes, 30000);
	scry_malloc_sum_done(&sum);
}

/* Those without a row are counted. */
static void many_processes(void **state)
{
	struct scry_ev_malloc call = {.function = SCRY_MALLOC_FREE, .flags = SCRY_MALLOC_NULL};
	struct scry_malloc_sum sum = {0};

	for (call.pid = 1; call.pid <= SCRY_MALLOC_SUM_PROCESSES + 5; call.pid++) {
		assert_int_equal(sum_call(&sum, &call), 0);
		assert_int_equal(sum_end(&sum, call.pid), 0);
	}
	assert_int_equal(sum.count, SCRY_MALLOC_SUM_PROCESSES);
	assert_int_equal(sum.left_out, 5);
	scry_malloc_sum_done(&sum);
}

/* What the sum takes is bounded, and used up to the bound. */
static void bounded(void **state)
{
	struct scry_malloc_sum sum = {.bytes = SCRY_MALLOC_SUM_BYTES - (1u << 20)};
	struct scry_ev_malloc call = {.pid = PID, .function = SCRY_MALLOC_MALLOC, .size = 24};

	while (sum_call(&sum, &call) == 0 && call.block < 1u << 17)
		call.block++;
	assert_in_range(call.block, 20000, 22500);
	assert_non_null(strstr(scry_error(), "more than 2 GiB; fix: --pid PID"));
	scry_malloc_sum_done(&sum);
}

/* Each step is a call of thread 1 or 2, of a block; how many are temporary then. */
static void temporaries(void **state)
{
	static const struct {
		uint32_t function, thread, block, sum;
	} steps[] = {
		{SCRY_MALLOC_MALLOC, 1, 0, 0},	{SCRY_MALLOC_FREE, 1, 0, 1},
		{SCRY_MALLOC_MALLOC, 1, 0, 1},	{SCRY_MALLOC_MALLOC, 1, 1, 1},
		{SCRY_MALLOC_FREE, 1, 0, 1}, /* it was not the newest */
		{SCRY_MALLOC_FREE, 2, 1, 1}, /* nor is it its own thread that ends it */
		{SCRY_MALLOC_MALLOC, 2, 1, 1},	{SCRY_MALLOC_FREE, 1, 1, 1}, /* the same number */
		{SCRY_MALLOC_MALLOC, 2, 3, 1},	{SCRY_MALLOC_MALLOC, 1, 4, 1},
		{SCRY_MALLOC_FREE, 2, 3, 2}, /* others go on meanwhile */
		{SCRY_MALLOC_REALLOC, 2, 4, 2}, {SCRY_MALLOC_REALLOC, 2, 4, 3},
		{SCRY_MALLOC_MALLOC, 1, 5, 3},	{SCRY_MALLOC_FREE, 2, 4, 4},
		{SCRY_MALLOC_OLDER, 0, 6, 4},	{SCRY_MALLOC_FREE, 1, 6, 4},
		{SCRY_MALLOC_FREE, 1, 5, 5},
	};
	struct scry_malloc_sum sum = {0};

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		const struct scry_ev_malloc call = {.function = steps[i].function,
						    .thread = steps[i].thread,
						    .block = steps[i].block,
						    .pid = PID,
						    .caller = 1,
						    .size = 100};

		assert_int_equal(sum_call(&sum, &call), 0);
		assert_int_equal(sum.processes[0]->temporary, steps[i].sum);
		assert_int_equal(sum.processes[0]->callers[1].temporary, steps[i].sum);
	}
	assert_int_equal(sum.processes[0]->callers[1].size_blocks[7], 10);
	scry_malloc_sum_done(&sum);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ended_processes),
		cmocka_unit_test(many_processes),
		cmocka_unit_test(bounded),
		cmocka_unit_test(temporaries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
