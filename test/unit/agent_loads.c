/*
 * The wait of a thread of the loader, where somebody else writes the words by which the keeper says
 * that it lives: they are shared with fork children.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/agent.h"

void scry_agent_load(uint64_t arg);

static struct scry_state_page state_page = {.open = 1, .loads = 1};
static struct scry_control control = {.lease_tsc = UINT64_MAX, .load_busy = 1};
static bool is_over;

/* Signs of life without end, and never an answer. */
static void *pretend(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
		__atomic_fetch_add(&control.load_beat, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&control.load_done, (uint32_t) - (control.load_beat % 2),
				 __ATOMIC_RELAXED);
	}
	return NULL;
}

static void no_keeper(void **state)
{
	pthread_t thread;

	(void)state;
	scry_agent.state_page = &state_page;
	scry_agent.control = &control;
	assert_int_equal(pthread_create(&thread, NULL, pretend, NULL), 0);
	scry_agent_load(0);
	__atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(control.load_late, 1);
	assert_int_equal(control.load_given_up, 1);
	assert_int_equal(state_page.inflight, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(no_keeper)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
