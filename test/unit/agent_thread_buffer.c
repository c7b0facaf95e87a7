/*
 * The agent's change of segments, one instruction after the other: what others see of it in the
 * midst, and what is left when a signal handler ends it there.
 */
#include "agent/thread_buffer.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define WORDS 600u /* two do not fit */
#define DEEP 4096u /* bytes of stack that a handler is said to be below its caller */

int scry_child_buffer_claim(
	struct scry_state_page *g,
	void (*moved)(struct scry_state_page *g)) /* in the agent: child_buffer.c */
{
	(void)moved;
	(void)g;
	return 0;
}

static struct scry_state_page state_page;
static struct scry_control control;
static uint64_t *ring;

static struct scry_thread_buffer *buffer_at(size_t i)
{
	return (struct scry_thread_buffer *)(ring + i * SCRY_THREAD_BUFFER_WORDS);
}

static void clear(void)
{
	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
		memset(buffer_at(i), 0, sizeof(struct scry_thread_buffer));
	memset(&scry_agent, 0, sizeof(scry_agent));
	memset(&scry_agent_rows, 0, sizeof(scry_agent_rows));
	memset(&control, 0, sizeof(control));
	control.lease_tsc = control.lease_end_tsc = UINT64_MAX;
	state_page = (struct scry_state_page){.open = 1, .ring = (uint64_t)(uintptr_t)ring};
	scry_agent.state_page = &state_page;
	scry_agent.control = &control;
	scry_agent.tracking.channels[SCRY_CHANNEL_CORE] =
		(struct scry_agent_channel){.control = &control,
					    .pool = (struct scry_thread_buffer *)ring,
					    .rows = scry_agent_rows.threads,
					    .is_on = 1};
	scry_agent.tracking.none.state = SCRY_THREAD_BUFFER_CLOSED;
}

static int set_up(void **state)
{
	(void)state;
	if (!ring)
		ring = mmap(NULL, 8 * SCRY_RING_WORDS, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	clear();
	return ring == MAP_FAILED;
}

static __attribute__((noinline)) struct scry_agent_thread *record(void)
{
	struct scry_agent_thread *t = scry_thread_buffer_enter();
	uint64_t *w = t ? scry_thread_buffer_reserve(t, WORDS) : NULL;

	if (w)
		scry_thread_buffer_publish(t, w + WORDS);
	if (t)
		scry_thread_buffer_leave(t);
	return w ? t : NULL;
}

/* stepping */

static struct scry_agent_thread *row;
static sigjmp_buf out;
static int steps, stop_at; /* 0: never */
static bool was_abandoned;
static void (*meanwhile)(void);

static void on_step(int sig)
{
	(void)sig;
	was_abandoned |= !meanwhile && scry_thread_buffer_is_abandoned(row);
	if (++steps != stop_at)
		return;
	if (!meanwhile)
		siglongjmp(out, 1);
	meanwhile();
}

#define STEP(how)                                                                \
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\t" how              \
			 " $0x100, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp" :: \
				 : "memory", "cc")

static void change_segments(void)
{
	uint64_t *w;

	row = record();
	assert_non_null(row);
	*(volatile uint64_t *)&row->inside = (uint64_t)__builtin_frame_address(0) - DEEP;
	steps = 0;
	STEP("orq");
	w = scry_thread_buffer_claim(row, WORDS);
	STEP("xorq");
	assert_non_null(w);
	scry_thread_buffer_publish(row, w + WORDS);
	scry_thread_buffer_leave(row);
}

/* Who looks for a row meanwhile does not take that of one who changes. */
static void nobody_is_abandoned(void **state)
{
	(void)state;
	signal(SIGTRAP, on_step);
	meanwhile = NULL;
	stop_at = 0;
	was_abandoned = false;
	change_segments();
	assert_true(steps > 20);
	assert_false(was_abandoned);
	scry_thread_buffer_of(row)->state ^= SCRY_THREAD_BUFFER_OPEN ^ SCRY_THREAD_BUFFER_DEAD;
	assert_true(scry_thread_buffer_is_abandoned(row));
	signal(SIGTRAP, SIG_DFL);
}

static int at_stage, stages;

/* The row's thread goes on to a segment of the same generation, or so far. */
static void go_on(void)
{
	struct scry_thread_buffer *old = buffer_at(0), *next = buffer_at(1);

	for (at_stage = 0; at_stage < stages; at_stage++)
		switch (at_stage) {
		case 0:
			row->state = 1;
			break;
		case 1:
			old->state = 4 + SCRY_THREAD_BUFFER_CLOSED;
			break;
		case 2:
			row->buffer_at = 0;
			break;
		case 3:
			next->state = 4 + SCRY_THREAD_BUFFER_OPEN;
			break;
		case 4:
			row->serial++;
			break;
		case 5:
			row->buffer_at = (char *)next - (char *)&scry_agent.tracking.none;
			break;
		default:
			row->state = 4 + SCRY_THREAD_BUFFER_OPEN;
		}
}

/* The same, while the one who looks is slow. */
static void nobody_is_abandoned_slowly(void **state)
{
	(void)state;
	signal(SIGTRAP, on_step);
	meanwhile = go_on;
	for (stages = 1; stages <= 7; stages++)
		for (stop_at = 1, steps = 1; steps >= stop_at - 1; stop_at++) {
			int is_abandoned;

			clear();
			row = record();
			assert_int_equal(row->state, 4 + SCRY_THREAD_BUFFER_OPEN);
			steps = 0;
			STEP("orq");
			is_abandoned = scry_thread_buffer_is_abandoned(row);
			STEP("xorq");
			assert_false(is_abandoned);
		}
	signal(SIGTRAP, SIG_DFL);
}

/* Left by longjmp anywhere in it: a segment that stays open is not seen as this thread's, as the
 * keeper would wait for its end before it takes the next. */
static void left_by_longjmp(void **state)
{
	(void)state;
	signal(SIGTRAP, on_step);
	meanwhile = NULL;
	for (stop_at = 1, steps = 1; steps >= stop_at - 1; stop_at++) {
		clear();
		if (!sigsetjmp(out, 1))
			change_segments();
		row = record();
		assert_non_null(row);
		for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
			if ((buffer_at(i)->state & 3) == SCRY_THREAD_BUFFER_OPEN &&
			    buffer_at(i)->head)
				assert_true(buffer_at(i) == scry_thread_buffer_of(row) ||
					    buffer_at(i)->birth < row->birth);
	}
	assert_true(stop_at > 20);
	signal(SIGTRAP, SIG_DFL);
}

static void wipe(void)
{
	memset(scry_agent_rows.threads, 0, sizeof(scry_agent_rows.threads));
	state_page.open = 0;
}

static void wipe_and_move_in(void)
{
	wipe();
	state_page.open = 1;
	row = record();
}

/* One who forks in a signal handler, anywhere in it, and whose child comes back there: its rows are
 * wiped, and it may have recorded in its own child buffer by then. It lives, and is recorded from
 * then on.
 */
static void wiped_by_a_fork(void **state)
{
	void (*const how[])(void) = {wipe, wipe_and_move_in};

	(void)state;
	signal(SIGTRAP, on_step);
	for (int change = 0; change < 2; change++)
		for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++)
			for (stop_at = 1, steps = 1; steps >= stop_at - 1; stop_at++) {
				struct scry_agent_thread *t;

				clear();
				t = record();
				meanwhile = how[i];
				steps = 0;
				if (change)
					t->buffer_at = 0;
				STEP("orq");
				record();
				STEP("xorq");
				state_page.open = 1;
				row = record();
				assert_non_null(row);
				assert_true(row->fs && !row->inside);
				assert_true(scry_thread_buffer_of(row)->head >= WORDS);
				assert_int_equal(scry_agent.tracking.none.state,
						 SCRY_THREAD_BUFFER_CLOSED);
			}
	signal(SIGTRAP, SIG_DFL);
}

static void nothing(int sig)
{
	(void)sig;
}

/* Cuts a good many naps short, then gives a segment back. */
static void *disturb(void *arg)
{
	while (!__atomic_load_n(&control.buffer_waiting, __ATOMIC_SEQ_CST))
		usleep(100);
	for (int i = 0; i < 600; i++) {
		pthread_kill(*(pthread_t *)arg, SIGUSR1);
		usleep(100);
	}
	buffer_at(3)->state = SCRY_THREAD_BUFFER_FREE;
	__atomic_fetch_add(&control.buffer_freed, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* Naps that signals end make no second. */
static void naps_cut_short(void **state)
{
	static pthread_t self;
	pthread_t other;

	(void)state;
	self = pthread_self();
	signal(SIGUSR1, nothing);
	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
		buffer_at(i)->state = SCRY_THREAD_BUFFER_CLOSED;
	assert_int_equal(pthread_create(&other, NULL, disturb, &self), 0);
	assert_non_null(record());
	pthread_join(other, NULL);
	assert_int_equal(control.buffer_waits, 1);
	signal(SIGUSR1, SIG_DFL);
}

/* It is looked through once, not by each call, until something is given back. */
static void look_once(enum scry_thread_buffer_state all)
{
	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
		buffer_at(i)->state = all;
	assert_null(record());
	buffer_at(3)->state = SCRY_THREAD_BUFFER_FREE;
	assert_null(record());
	control.buffer_freed++;
	assert_non_null(record());
	assert_int_equal(control.buffer_waits, 0);
}

static void full_pool(void **state)
{
	(void)state;
	control.lease_tsc = 1; /* over: nobody waits */
	look_once(SCRY_THREAD_BUFFER_CLOSED);
}

/* Each belongs to another thread: there is nothing to wait for. */
static void many_threads(void **state)
{
	(void)state;
	look_once(SCRY_THREAD_BUFFER_OPEN);
	scry_agent.tracking.channels[SCRY_CHANNEL_CORE].all_open = control.buffer_freed + 1;
	buffer_at(4)->state = SCRY_THREAD_BUFFER_FREE;
	assert_non_null(record()); /* it closes its own: then there is */
}

/* The keeper comes back after the lease's end: it can know that nothing was recorded since. Where
 * it took the lease back nothing is missing. */
static void end_of_the_lease(void **state)
{
	(void)state;
	control.lease_tsc = control.lease_end_tsc = 0;
	assert_null(record());
	scry_thread_buffer_lost(scry_channel(SCRY_CHANNEL_CORE));
	assert_int_equal(scry_agent.tracking.channels[SCRY_CHANNEL_CORE].is_on, 0);
	assert_int_equal(control.lost + control.lost_lease + control.buffer_over, 0);
	clear();
	control.lease_tsc = control.lease_end_tsc = 1;
	for (int i = 0; i < 3; i++) {
		assert_null(record());
		scry_thread_buffer_lost(scry_channel(SCRY_CHANNEL_CORE));
	}
	control.lease_tsc = control.lease_end_tsc = UINT64_MAX;
	assert_null(record());
	assert_int_equal(control.lost, 1);
	assert_int_equal(control.lost_lease, 1);
	assert_int_equal(control.buffer_over, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(nobody_is_abandoned, set_up),
		cmocka_unit_test_setup(nobody_is_abandoned_slowly, set_up),
		cmocka_unit_test_setup(left_by_longjmp, set_up),
		cmocka_unit_test_setup(wiped_by_a_fork, set_up),
		cmocka_unit_test_setup(naps_cut_short, set_up),
		cmocka_unit_test_setup(full_pool, set_up),
		cmocka_unit_test_setup(many_threads, set_up),
		cmocka_unit_test_setup(end_of_the_lease, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
