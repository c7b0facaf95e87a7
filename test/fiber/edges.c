/*
 * What a scheduler does at its edges: threads that are cancelled, handles from before a fork,
 * descriptors that are not there, limits. Each call returns, and says what happened.
 */
#include "fiber/fiber.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_NS 20000000000ll /* for what comes, and hardly ever takes so long */

static struct scry_fiber_sched *here;

static int open_sched(void **state)
{
	return scry_fiber_open(NULL, &here);
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

/* --- cancellation ----------------------------------------------------------------------------- */

static _Atomic int calls_returned;
static struct scry_fiber *sleeper;

static void *wakes_sleeper(void *arg)
{
	scry_fiber_wake(sleeper);
	return arg;
}

/* Is to be cancelled at the next point, and calls. */
static void *calls_while_cancelled(void *spawns)
{
	while (!atomic_load(&here->is_asleep))
		sched_yield();
	pthread_cancel(pthread_self());
	if (spawns != NULL)
		scry_fiber_spawn_on(here, wakes_sleeper, NULL);
	else
		scry_fiber_wake(sleeper);
	atomic_fetch_add(&calls_returned, 1);
	pthread_testcancel();
	return NULL;
}

static void a_cancelled_thread_loses_no_wake(void **state)
{
	char *spawns[] = {NULL, "spawns"};
	pthread_t thread;
	void *value;

	sleeper = scry_fiber_self();
	for (int i = 0; i < 2; i++) {
		calls_returned = 0;
		assert_int_equal(pthread_create(&thread, NULL, calls_while_cancelled, spawns[i]),
				 0);
		assert_int_equal(scry_fiber_park_within(LONG_NS), 0);
		pthread_join(thread, &value);
		assert_ptr_equal(value, PTHREAD_CANCELED);
		assert_int_equal(calls_returned, 1);
		assert_int_equal(here->senders, 0); /* else close waits for ever */
		while (scry_fiber_count() > 0)
			scry_fiber_yield();
	}
}

static int silent[2]; /* a pipe into which nobody writes */

static void *uses_all_while_cancelled(void *arg)
{
	struct scry_fiber *fiber;
	int *returned = arg;

	pthread_cancel(pthread_self());
	returned[0] = scry_fiber_open(NULL, NULL);
	returned[1] = scry_fiber_spawn(NULL, wakes_sleeper, NULL, &fiber);
	returned[2] = scry_fiber_join(fiber, NULL);
	returned[3] = scry_fiber_sleep(1000);
	returned[4] = scry_fiber_wait(silent[0], SCRY_FIBER_READ, 1000);
	returned[5] = scry_fiber_wait(silent[0], SCRY_FIBER_READ, 0);
	returned[6] = scry_fiber_close();
	calls_returned = 1;
	pthread_testcancel();
	return NULL;
}

static void no_call_is_a_point_of_cancellation(void **state)
{
	int returned[7] = {1, 1, 1, 1, 1, 1, 1};
	pthread_t thread;
	void *value;

	calls_returned = 0;
	sleeper = scry_fiber_self();
	assert_int_equal(pipe(silent), 0);
	assert_int_equal(pthread_create(&thread, NULL, uses_all_while_cancelled, returned), 0);
	assert_int_equal(pthread_join(thread, &value), 0);
	assert_ptr_equal(value, PTHREAD_CANCELED);
	assert_int_equal(calls_returned, 1);
	for (int i = 0; i < 7; i++)
		assert_int_equal(returned[i], 0);
	close(silent[0]);
	close(silent[1]);
}

/* --- resume ----------------------------------------------------------------------------------- */

static struct scry_fiber *resumed;
static int second_resume;

static void *leaves_and_yields(void *to)
{
	if (to != NULL)
		scry_fiber_transfer(to);
	else
		scry_fiber_park();
	scry_fiber_yield();
	return to;
}

static void *resumes_again(void *arg)
{
	second_resume = scry_fiber_resume(resumed);
	scry_fiber_wake(resumed);
	return arg;
}

static void *resumes_again_and_goes_there(void *arg)
{
	second_resume = scry_fiber_resume(resumed);
	scry_fiber_transfer(resumed);
	return arg;
}

/* Else the first resume never comes back. */
static void one_that_has_been_resumed_is_not_resumed_by_another(void **state)
{
	struct scry_fiber *other = spawn(resumes_again, NULL);

	assert_int_equal(scry_fiber_new(NULL, leaves_and_yields, NULL, &resumed), 0);
	assert_int_equal(scry_fiber_resume(resumed), 0);
	assert_int_equal(second_resume, -EBUSY);
	assert_int_equal(scry_fiber_resume(resumed), 1);
	assert_int_equal(scry_fiber_join(resumed, NULL), 0);
	assert_int_equal(scry_fiber_join(other, NULL), 0);
	/* the same of one that has left by transfer */
	assert_int_equal(scry_fiber_new(NULL, resumes_again_and_goes_there, NULL, &other), 0);
	assert_int_equal(scry_fiber_new(NULL, leaves_and_yields, other, &resumed), 0);
	second_resume = 0;
	assert_int_equal(scry_fiber_resume(resumed), 0);
	assert_int_equal(second_resume, -EBUSY);
	assert_int_equal(scry_fiber_resume(resumed), 1);
	assert_int_equal(scry_fiber_join(resumed, NULL), 0);
	assert_int_equal(scry_fiber_resume(other), 1);
	assert_int_equal(scry_fiber_join(other, NULL), 0);
}

/* --- fork ------------------------------------------------------------------------------------- */

static void *spawns_there(void *arg)
{
	*(int *)arg = scry_fiber_spawn_on(here, leaves_and_yields, NULL);
	return NULL;
}

static void a_scheduler_of_before_a_fork_takes_no_fibers(void **state)
{
	pid_t child = fork();
	int status, from_thread = 0;
	pthread_t thread;

	if (child == 0) {
		if (pthread_create(&thread, NULL, spawns_there, &from_thread) != 0)
			_exit(1);
		pthread_join(thread, NULL);
		if (from_thread != -ESRCH)
			_exit(2);
		_exit(scry_fiber_spawn_on(here, leaves_and_yields, NULL) == -ESRCH ? 0 : 3);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* --- descriptors ------------------------------------------------------------------------------ */

static void a_wild_descriptor_is_an_error_and_takes_no_memory(void **state)
{
	const int wild[] = {-1, INT_MIN, 5000, 16000000, INT_MAX};

	for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		assert_int_equal(scry_fiber_wait(wild[i], SCRY_FIBER_READ, 1000), -EBADF);
		assert_int_equal(scry_fiber_wait(wild[i], SCRY_FIBER_READ, 0), -EBADF);
		assert_int_equal(scry_fiber_forget(wild[i]), 0);
	}
	assert_true(here->watch_room <= 64);
}

/* One that epoll refuses, though it is open, is no reason to open anything. */
static void a_descriptor_without_events_is_an_error(void **state)
{
	int path = open("/", O_PATH), epoll = here->epoll;

	assert_int_equal(scry_fiber_wait(path, SCRY_FIBER_READ, 1000), -EBADF);
	assert_int_equal(scry_fiber_wait(epoll, SCRY_FIBER_READ, 1000), -EINVAL);
	assert_int_equal(here->epoll, epoll);
	close(path);
}

static void *waits_for_input(void *pipe)
{
	return (void *)(long)scry_fiber_wait(*(int *)pipe, SCRY_FIBER_READ, SCRY_FIBER_FOREVER);
}

/* The processor time that a sleep of a fifth of a second takes, in ns. */
static int64_t cost_of_sleep(void)
{
	struct timespec before, after;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
	assert_int_equal(scry_fiber_sleep(200000000), 0);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
	return (after.tv_sec - before.tv_sec) * 1000000000ll + after.tv_nsec - before.tv_nsec;
}

/* Its own descriptors are opened again, and those who wait for others wait on, or hear of it. */
static void descriptors_that_the_program_has_closed_are_opened_again(void **state)
{
	int kept[2], gone[2];
	struct scry_fiber *waits, *hears, *other;
	pthread_t thread;
	void *value;

	assert_int_equal(pipe(kept), 0);
	assert_int_equal(pipe(gone), 0);
	waits = spawn(waits_for_input, kept);
	hears = spawn(waits_for_input, gone);
	scry_fiber_yield();
	close(here->epoll);
	close(here->event);
	close(gone[0]);
	close(gone[1]);
	assert_true(cost_of_sleep() < 100000000);
	assert_int_equal(scry_fiber_join(hears, &value), 0);
	assert_int_equal((long)value, -EBADF);
	assert_int_equal(write(kept[1], "x", 1), 1);
	assert_int_equal(scry_fiber_join(waits, &value), 0);
	assert_int_equal((long)value, SCRY_FIBER_READ);
	/* other threads wake it as before */
	calls_returned = 0;
	sleeper = scry_fiber_self();
	assert_int_equal(pthread_create(&thread, NULL, calls_while_cancelled, NULL), 0);
	assert_int_equal(scry_fiber_park_within(LONG_NS), 0);
	pthread_join(thread, NULL);
	/* a number that is another file's now is no epoll */
	assert_int_equal(dup2(kept[0], here->epoll), here->epoll);
	other = spawn(waits_for_input, kept);
	assert_true(cost_of_sleep() < 100000000);
	assert_int_equal(scry_fiber_join(other, &value), 0);
	assert_int_equal((long)value, SCRY_FIBER_READ);
	scry_fiber_forget(kept[0]);
	close(kept[0]);
	close(kept[1]);
}

/* Linked with --wrap=realloc. */
static bool has_no_memory;
void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size)
{
	return has_no_memory ? NULL : __real_realloc(memory, size);
}

static void *hears(void *fd)
{
	return (void *)(long)scry_fiber_wait((int)(long)fd, SCRY_FIBER_READ, LONG_NS);
}

static void *sleeps_long(void *arg)
{
	scry_fiber_park_within(LONG_NS);
	return arg;
}

/* One fiber waits to read, then another's wait to write for the same descriptor fails for want of
 * memory: the first one still hears. */
static void a_wait_that_fails_takes_nothing_from_another(void **state)
{
	struct scry_fiber *reader, *sleepers[64];
	int sockets[2], count = 0;
	char room[4096] = "";
	void *events;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
	while (write(sockets[0], room, sizeof(room)) > 0)
		;
	reader = spawn(hears, (void *)(long)sockets[0]);
	scry_fiber_yield();
	/* until the table of times has to grow */
	while (here->timer_count < here->timer_room) {
		sleepers[count++] = spawn(sleeps_long, NULL);
		scry_fiber_yield();
	}
	has_no_memory = true;
	assert_int_equal(scry_fiber_wait(sockets[0], SCRY_FIBER_WRITE, LONG_NS), -ENOMEM);
	has_no_memory = false;
	assert_int_equal(write(sockets[1], "x", 1), 1);
	assert_int_equal(scry_fiber_join(reader, &events), 0);
	assert_int_equal((long)events, SCRY_FIBER_READ);
	for (int i = 0; i < count; i++) {
		scry_fiber_wake(sleepers[i]);
		assert_int_equal(scry_fiber_join(sleepers[i], NULL), 0);
	}
	for (int i = 0; i < 2; i++) {
		scry_fiber_forget(sockets[i]);
		close(sockets[i]);
	}
}

/* --- threads ---------------------------------------------------------------------------------- */

static void *opens_and_closes(void *barrier)
{
	for (int i = 0; i < 20; i++) {
		struct scry_fiber *fiber;

		pthread_barrier_wait(barrier);
		if (scry_fiber_open(NULL, NULL) != 0 ||
		    scry_fiber_spawn(NULL, leaves_and_yields, scry_fiber_self(), &fiber) != 0)
			return "open";
		if (scry_fiber_transfer(fiber) != -EBUSY || scry_fiber_sleep(1) != 0 ||
		    scry_fiber_join(fiber, NULL) != 0 || scry_fiber_close() != 0)
			return "close";
	}
	return NULL;
}

/* With ThreadSanitizer this shows what they share without a lock. */
static void threads_open_at_the_same_time(void **state)
{
	pthread_barrier_t barrier;
	pthread_t threads[4];
	void *complaint;

	pthread_barrier_init(&barrier, NULL, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, opens_and_closes, &barrier), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], &complaint), 0);
		assert_null(complaint);
	}
}

/* --- threads that end with a scheduler open --------------------------------------------------- */

static void *parks(void *arg)
{
	scry_fiber_park();
	return arg;
}

struct left { /* behind by a thread */
	struct scry_fiber_sched *sched;
	struct scry_fiber *fiber;
	int report_fd;
};

static void *leaves_a_fiber(void *arg)
{
	struct left *left = arg;

	if (scry_fiber_open(&(struct scry_fiber_sched_attr){.report_fd = left->report_fd},
			    &left->sched) != 0 ||
	    scry_fiber_spawn(NULL, parks, NULL, &left->fiber) != 0)
		return "open";
	scry_fiber_yield();
	return NULL;
}

static void *exits(void *arg)
{
	pthread_exit(NULL);
}

static void *leaves_while_in_a_fiber(void *arg)
{
	struct left *left = arg;

	if (scry_fiber_open(&(struct scry_fiber_sched_attr){.report_fd = left->report_fd},
			    &left->sched) != 0 ||
	    scry_fiber_spawn(NULL, exits, NULL, &left->fiber) != 0)
		return "open";
	scry_fiber_join(left->fiber, NULL);
	return "it did not exit";
}

static size_t descriptors(void)
{
	size_t count = 0;

	for (int fd = 0; fd < 1000; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* What others may use stays: they are refused. What the library has of the system's goes. */
static void what_a_thread_leaves_is_lost_and_said(void **state)
{
	void *(*const ways[])(void *) = {leaves_a_fiber, leaves_while_in_a_fiber};
#ifdef __SANITIZE_THREAD__ /* it ends a program whose thread exits in a fiber */
	const int count = 1;
#else
	const int count = 2;
#endif
	char said[400];
	int pipes[2];

	assert_int_equal(pipe(pipes), 0);
	for (int i = 0; i < count; i++) {
		struct left left = {.report_fd = pipes[1]};
		const size_t had = descriptors();
		pthread_t thread;
		void *complaint;
		ssize_t n;

		assert_int_equal(pthread_create(&thread, NULL, ways[i], &left), 0);
		assert_int_equal(pthread_join(thread, &complaint), 0);
		assert_null(complaint);
		assert_int_equal(descriptors(), had);
		assert_int_equal(fcntl(pipes[0], F_SETFL, O_NONBLOCK), 0);
		n = read(pipes[0], said, sizeof(said) - 1);
		assert_true(n > 0);
		said[n] = '\0';
		assert_non_null(strstr(said, "1 of its fibers did not end"));
		assert_int_equal(scry_fiber_wake(left.fiber), -ESRCH);
		assert_int_equal(scry_fiber_join(left.fiber, NULL), -ESRCH);
		assert_int_equal(scry_fiber_spawn_on(left.sched, wakes_sleeper, NULL), -ESRCH);
	}
	close(pipes[0]);
	close(pipes[1]);
}

static void *ends(void *arg)
{
	return arg;
}

/* One that nobody joins. */
static void *leaves_ended_ones(void *arg)
{
	struct scry_fiber *fiber;

	if (scry_fiber_open(NULL, NULL) != 0 || scry_fiber_spawn(NULL, ends, NULL, &fiber) != 0)
		return "open";
	scry_fiber_yield();
	return scry_fiber_count() == 0 ? NULL : "it did not end";
}

/* More of them than there may be schedulers. */
static void the_end_of_a_thread_closes_a_scheduler_whose_fibers_have_ended(void **state)
{
	const size_t had = descriptors();

	for (int i = 0; i < SCRY_SCHEDS + 100; i++) {
		pthread_t thread;
		void *complaint;

		assert_int_equal(pthread_create(&thread, NULL, leaves_ended_ones, NULL), 0);
		assert_int_equal(pthread_join(thread, &complaint), 0);
		assert_null(complaint);
	}
	assert_int_equal(descriptors(), had);
}

/* --- limits ----------------------------------------------------------------------------------- */

static bool has_signal_stack(void)
{
	stack_t is;

	return sigaltstack(NULL, &is) == 0 && (is.ss_flags & SS_DISABLE) == 0;
}

static void *watches_and_opens(void *arg)
{
	const bool had = has_signal_stack(); /* a sanitizer's */

	if (scry_stack_watch() != 0 || scry_fiber_open(NULL, NULL) != 0 || scry_fiber_close() != 0)
		return "open";
	if (!has_signal_stack())
		return "what the program watches was given up by close";
	scry_stack_unwatch();
	return has_signal_stack() != had ? "it stays" : NULL;
}

static void close_leaves_the_programs_own_watch(void **state)
{
	pthread_t thread;
	void *complaint;

	assert_int_equal(pthread_create(&thread, NULL, watches_and_opens, NULL), 0);
	assert_int_equal(pthread_join(thread, &complaint), 0);
	assert_null(complaint);
}

static void *knows_its_size(void *arg)
{
	const struct scry_stack *stack = &scry_fiber_self()->stack;

	*(size_t *)arg = (char *)stack->top - (char *)stack->low;
	return NULL;
}

static void the_least_size_is_not_the_default(void **state)
{
	struct scry_fiber_attr attr = {.size_bytes = 1};
	size_t least = 0, plain = 0;
	struct scry_fiber *fiber;

	assert_int_equal(scry_fiber_spawn(&attr, knows_its_size, &least, &fiber), 0);
	assert_int_equal(scry_fiber_join(fiber, NULL), 0);
	assert_int_equal(scry_fiber_join(spawn(knows_its_size, &plain), NULL), 0);
	assert_in_range(least, 14 << 10, 16 << 10);
	assert_in_range(plain, 254 << 10, 256 << 10);
}

static void *opens_while_there_is_no_descriptor(void *arg)
{
	const int error = scry_fiber_open(NULL, NULL);

	return error == -EMFILE && strstr(scry_fiber_note(), "ulimit -n") != NULL ? NULL : "open";
}

/* No pool is left, and no descriptor: each is said. */
static void notes_say_why(void **state)
{
	static struct scry_stack_pool *pools[SCRY_POOLS];
	struct rlimit was, none;
	struct scry_fiber *fiber;
	int count = 0;
	pthread_t thread;
	void *complaint;

	while (count < SCRY_POOLS && scry_stack_pool_new(NULL, &pools[count]) == 0)
		count++;
	assert_int_equal(scry_fiber_new(NULL, leaves_and_yields, NULL, &fiber), -EAGAIN);
	assert_non_null(strstr(scry_fiber_note(), "256 pools"));
	while (count > 0)
		scry_stack_pool_free(pools[--count]);
	assert_int_equal(scry_fiber_new(&(struct scry_fiber_attr){.size_bytes = SIZE_MAX},
					leaves_and_yields, NULL, &fiber),
			 -EINVAL);
	assert_non_null(strstr(scry_fiber_note(), "1 GiB"));
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = (struct rlimit){0, was.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(pthread_create(&thread, NULL, opens_while_there_is_no_descriptor, NULL),
			 0);
	pthread_join(thread, &complaint);
	setrlimit(RLIMIT_NOFILE, &was);
	assert_null(complaint);
}

static int mails_run;

static void *is_mail(void *arg)
{
	mails_run++;
	return NULL;
}

/* What no stack can be had for waits; its scheduler does not look all the time. */
static void mail_without_a_stack_waits(void **state)
{
	static struct scry_stack_pool *pools[SCRY_POOLS];
	int count = 0;

	mails_run = 0;
	while (count < SCRY_POOLS && scry_stack_pool_new(NULL, &pools[count]) == 0)
		count++;
	assert_int_equal(scry_fiber_spawn_on(here, is_mail, NULL), 0);
	assert_true(cost_of_sleep() < 100000000);
	assert_int_equal(mails_run, 0);
	while (count > 0)
		scry_stack_pool_free(pools[--count]);
	while (mails_run == 0)
		scry_fiber_sleep(1000000);
	assert_int_equal(mails_run, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_sched, close_sched)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_cancelled_thread_loses_no_wake),
		TEST(no_call_is_a_point_of_cancellation),
		TEST(one_that_has_been_resumed_is_not_resumed_by_another),
		TEST(a_scheduler_of_before_a_fork_takes_no_fibers),
		TEST(a_wild_descriptor_is_an_error_and_takes_no_memory),
		TEST(a_descriptor_without_events_is_an_error),
		TEST(descriptors_that_the_program_has_closed_are_opened_again),
		TEST(a_wait_that_fails_takes_nothing_from_another),
		TEST(threads_open_at_the_same_time),
		TEST(what_a_thread_leaves_is_lost_and_said),
		TEST(the_end_of_a_thread_closes_a_scheduler_whose_fibers_have_ended),
		TEST(close_leaves_the_programs_own_watch),
		TEST(the_least_size_is_not_the_default),
		TEST(notes_say_why),
		TEST(mail_without_a_stack_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
