/*
 * Waiting for no longer than one likes, giving up, and calls at a time when none may come. Order is
 * all that is looked at: a time is either over at once or never.
 */
#include "fiber/fiber.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NEVER_NS 3600000000000ll

static int open_sched(void **state)
{
	return scry_fiber_open(NULL, NULL);
}

static int close_sched(void **state)
{
	return scry_fiber_close();
}

static struct scry_fiber *spawn(scry_fiber_fn *entry, void *arg)
{
	struct scry_fiber *fiber = NULL;

	assert_int_equal(scry_fiber_spawn(NULL, entry, arg, &fiber), 0);
	return fiber;
}

static char text_of_value[] = "value";

static void *parks(void *arg)
{
	scry_fiber_park();
	return arg;
}

static uint32_t timers(void)
{
	return scry_fiber_self()->sched->timer_count;
}

static void a_join_may_end_by_time_and_be_tried_again(void **state)
{
	struct scry_fiber *fiber = spawn(parks, text_of_value);
	void *value = NULL;

	assert_int_equal(scry_fiber_join_within(fiber, &value, 0), -ETIMEDOUT);
	assert_int_equal(scry_fiber_join_within(fiber, &value, 1), -ETIMEDOUT);
	assert_int_equal(scry_fiber_join_within(fiber, &value, 1000000), -ETIMEDOUT);
	assert_null(value);
	scry_fiber_wake(fiber);
	assert_int_equal(scry_fiber_join_within(fiber, &value, NEVER_NS), 0);
	assert_ptr_equal(value, text_of_value);
	assert_int_equal(timers(), 0); /* what did not come to pass is not left behind */
	fiber = spawn(parks, NULL);
	scry_fiber_wake(fiber);
	scry_fiber_yield();
	assert_int_equal(scry_fiber_join_within(fiber, NULL, 0), 0); /* it has ended before */
}

static struct scry_fiber *joined;
static int join_result;

static void *joins_for_a_moment(void *arg)
{
	join_result = scry_fiber_join_within(joined, NULL, 1);
	return arg;
}

static void *ends_late(void *arg)
{
	struct timespec now, from;

	scry_fiber_yield();
	/* the joiner's time is over, and both are looked at in one turn */
	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while (now.tv_sec == from.tv_sec && now.tv_nsec - from.tv_nsec < 1000);
	scry_fiber_self()->sched->turns = SCRY_TURNS_DUE;
	scry_fiber_yield();
	return arg;
}

/* The joiner is in the queue already when the fiber ends: it is not put there twice. */
static void one_that_ends_when_the_time_is_over(void **state)
{
	for (int i = 0; i < 100; i++) {
		struct scry_fiber *joiner;

		joined = spawn(ends_late, NULL);
		joiner = spawn(joins_for_a_moment, NULL);
		assert_int_equal(scry_fiber_join(joiner, NULL), 0);
		assert_true(join_result == 0 || join_result == -ETIMEDOUT);
		if (join_result != 0)
			assert_int_equal(scry_fiber_join(joined, NULL), 0);
		assert_int_equal(scry_fiber_count(), 0);
		assert_int_equal(timers(), 0);
		assert_null(scry_fiber_self()->sched->head);
	}
}

static void *wakes(void *fiber)
{
	scry_fiber_wake(fiber);
	return NULL;
}

static void *starts(void *fiber)
{
	assert_int_equal(scry_fiber_start(fiber), 0);
	return NULL;
}

static void a_park_may_end_by_time(void **state)
{
	struct scry_fiber *self = scry_fiber_self(), *other;

	assert_int_equal(scry_fiber_park_within(0), -ETIMEDOUT);
	assert_int_equal(scry_fiber_park_within(1), -ETIMEDOUT);
	scry_fiber_wake(self);
	assert_int_equal(scry_fiber_park_within(0), 0); /* it was woken before */
	assert_int_equal(scry_fiber_park_within(0), -ETIMEDOUT);
	other = spawn(wakes, self);
	assert_int_equal(scry_fiber_park_within(NEVER_NS), 0);
	assert_int_equal(scry_fiber_join(other, NULL), 0);
	other = spawn(starts, self);
	assert_int_equal(scry_fiber_park_within(NEVER_NS), 0);
	assert_int_equal(scry_fiber_join(other, NULL), 0);
	assert_int_equal(timers(), 0);
	assert_int_equal(scry_fiber_park_within(1), -ETIMEDOUT); /* and is not woken by what was */
}

static void *parks_for_a_moment(void *arg)
{
	*(int *)arg = scry_fiber_park_within(1000);
	return arg;
}

/* Started, and its time over, before it runs: it is not in the queue twice. */
static void one_that_is_started_when_the_time_is_over(void **state)
{
	for (int i = 0; i < 100; i++) {
		int result = 1;
		struct scry_fiber *fiber = spawn(parks_for_a_moment, &result);

		scry_fiber_yield();
		if (scry_fiber_start(fiber) == -EBUSY)
			assert_true(result == 1); /* its time was over before */
		usleep(2);
		scry_fiber_self()->sched->turns = SCRY_TURNS_DUE;
		scry_fiber_yield();
		assert_int_equal(scry_fiber_join(fiber, NULL), 0);
		assert_true(result == 0 || result == -ETIMEDOUT);
		assert_int_equal(timers(), 0);
		assert_null(scry_fiber_self()->sched->head);
	}
}

static void who_is_detached_is_freed_by_its_end(void **state)
{
	struct scry_fiber_sched *sched = scry_fiber_self()->sched;
	struct scry_fiber *fiber = spawn(parks, NULL);

	assert_int_equal(scry_fiber_join_within(fiber, NULL, 0), -ETIMEDOUT);
	assert_int_equal(scry_fiber_detach(fiber), 0);
	assert_int_equal(scry_fiber_detach(fiber), -EINVAL);
	assert_int_equal(scry_fiber_join(fiber, NULL), -EINVAL);
	assert_int_equal(scry_fiber_detach(scry_fiber_self()), -EINVAL); /* the main one */
	assert_int_equal(sched->held, 1);
	scry_fiber_yield();
	scry_fiber_wake(fiber);
	scry_fiber_yield();
	assert_int_equal(sched->held, 0);
	fiber = spawn(wakes, scry_fiber_self());
	assert_int_equal(scry_fiber_park(), 0);
	assert_int_equal(sched->held, 1); /* it has ended */
	assert_int_equal(scry_fiber_detach(fiber), 0);
	assert_int_equal(sched->held, 0);
}

static sigjmp_buf back_to;
static volatile bool calls;

/* While the scheduler is at work; the timer comes again until then. */
static void in_the_midst(int signal)
{
	if (!scry_fiber_self()->sched->busy)
		return;
	if (calls)
		scry_fiber_yield();
	else
		siglongjmp(back_to, signal);
}

/* What a child says that is interrupted in its sleep, and its status. */
static int interrupted(char *text, size_t room)
{
	const struct itimerval each = {{0, 1000}, {0, 1000}}, none = {{0, 0}, {0, 0}};
	int pipes[2], status;
	ssize_t got;
	pid_t child;

	assert_int_equal(pipe(pipes), 0);
	child = fork();
	if (child == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGABRT, SIG_DFL); /* cmocka has a handler */
		signal(SIGALRM, in_the_midst);
		dup2(pipes[1], STDERR_FILENO);
		if (sigsetjmp(back_to, 1) == 0) {
			setitimer(ITIMER_REAL, &each, NULL);
			scry_fiber_sleep(NEVER_NS);
		}
		setitimer(ITIMER_REAL, &none, NULL);
		scry_fiber_yield();
		_exit(0);
	}
	close(pipes[1]);
	got = read(pipes[0], text, room - 1);
	text[got > 0 ? got : 0] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void a_handler_may_neither_call_nor_leave_by_a_jump(void **state)
{
	char text[300];

	for (int i = 0; i < 2; i++) {
		int status;

		calls = i == 1;
		status = interrupted(text, sizeof(text));
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
		assert_non_null(strstr(text, "scry_fiber: a call while the scheduler is at work"));
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_sched, close_sched)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_join_may_end_by_time_and_be_tried_again),
		TEST(one_that_ends_when_the_time_is_over),
		TEST(a_park_may_end_by_time),
		TEST(one_that_is_started_when_the_time_is_over),
		TEST(who_is_detached_is_freed_by_its_end),
		TEST(a_handler_may_neither_call_nor_leave_by_a_jump),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
