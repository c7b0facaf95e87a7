/* Fibers: orders of running with known answers, ends, errors, time, descriptors, other threads,
 * fork. */
#include "fiber/scry_fiber.h"
#include "fiber/scry_stack.h"
#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char order[200]; /* who ran, by letters */

static void note(char letter)
{
	size_t size = strlen(order);

	assert_true(size < sizeof(order) - 1);
	order[size] = letter;
	order[size + 1] = '\0';
}

static int open_sched(void **state)
{
	order[0] = '\0';
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

static void *three_times(void *letter)
{
	for (int i = 0; i < 3; i++) {
		note(*(char *)letter);
		scry_fiber_yield();
	}
	return letter;
}

static void the_queue_is_fair_and_join_gives_the_value(void **state)
{
	struct scry_fiber *a = spawn(three_times, "a"), *b = spawn(three_times, "b");
	void *value = NULL;

	assert_int_equal(scry_fiber_count(), 2);
	assert_string_equal(order, "");
	assert_int_equal(scry_fiber_join(b, &value), 0);
	assert_string_equal(value, "b");
	assert_string_equal(order, "ababab");
	assert_int_equal(scry_fiber_join(a, &value), 0);
	assert_string_equal(value, "a");
	assert_int_equal(scry_fiber_count(), 0);
}

static void resume_and_yield_are_a_pair(void **state)
{
	struct scry_fiber *a;

	assert_int_equal(scry_fiber_new(NULL, three_times, "a", &a), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(scry_fiber_resume(a), 0);
		note('m');
	}
	assert_int_equal(scry_fiber_resume(a), 1);
	assert_string_equal(order, "amamam");
	assert_int_equal(scry_fiber_resume(a), -EBUSY);
	assert_int_equal(scry_fiber_join(a, NULL), 0);
}

static struct scry_fiber *ring[3];

static void *pass_on(void *arg)
{
	long me = (long)arg;

	for (;;) {
		note('a' + (char)me);
		if (strlen(order) == 9)
			scry_fiber_transfer(ring[0]);
		scry_fiber_transfer(me == 2 ? ring[1] : ring[2]);
	}
	return NULL;
}

static void *never(void *arg)
{
	fail();
	return arg;
}

/* A child's exit status. */
static int in_child(int (*function)(void))
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		_exit(function());
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int transfer_in_child(void)
{
	ring[0] = scry_fiber_self();
	scry_fiber_new(NULL, pass_on, (void *)1, &ring[1]);
	scry_fiber_new(NULL, pass_on, (void *)2, &ring[2]);
	if (scry_fiber_transfer(ring[1]) != 0)
		return 1;
	return strcmp(order, "bcbcbcbcb") == 0 ? 0 : 2;
}

static void transfer_goes_where_it_is_told(void **state)
{
	assert_int_equal(in_child(transfer_in_child), 0);
}

static void wrong_calls_are_errors(void **state)
{
	struct scry_fiber *a, *self = scry_fiber_self();

	assert_int_equal(scry_fiber_open(NULL, NULL), -EEXIST);
	assert_int_equal(scry_fiber_new(NULL, three_times, "a", &a), 0);
	assert_int_equal(scry_fiber_close(), -EBUSY);
	assert_int_equal(scry_fiber_start(a), 0);
	assert_int_equal(scry_fiber_start(a), -EBUSY);
	assert_int_equal(scry_fiber_transfer(a), -EBUSY);
	assert_int_equal(scry_fiber_resume(a), -EBUSY);
	assert_int_equal(scry_fiber_transfer(self), 0);
	assert_int_equal(scry_fiber_resume(self), -EBUSY);
	assert_int_equal(scry_fiber_join(self, NULL), -EDEADLK);
	assert_int_equal(scry_fiber_join(a, NULL), 0);
}

static void *without_scheduler(void *other)
{
	struct scry_fiber *a;

	if (scry_fiber_self() != NULL || scry_fiber_new(NULL, never, NULL, &a) != -EPERM ||
	    scry_fiber_transfer(other) != -EPERM || scry_fiber_park() != -EPERM)
		return "no scheduler";
	if (scry_fiber_open(NULL, NULL) != 0 || scry_fiber_transfer(other) != -EXDEV ||
	    scry_fiber_resume(other) != -EXDEV || scry_fiber_join(other, NULL) != -EXDEV)
		return "other scheduler";
	return scry_fiber_close() == 0 ? NULL : "close";
}

static void fibers_do_not_migrate(void **state)
{
	struct scry_fiber *a;
	pthread_t thread;
	void *complaint;

	assert_int_equal(scry_fiber_new(NULL, three_times, "a", &a), 0);
	assert_int_equal(pthread_create(&thread, NULL, without_scheduler, a), 0);
	pthread_join(thread, &complaint);
	assert_null(complaint);
	scry_fiber_start(a);
	assert_int_equal(scry_fiber_join(a, NULL), 0);
}

static void *yields_often(void *arg)
{
	for (int i = 0; i < 1000; i++)
		scry_fiber_yield();
	return arg;
}

/* Returns what went wrong. */
static void *opens_and_closes(void *arg)
{
	enum { FIBERS = 20 };
	struct scry_fiber *fibers[FIBERS];

	for (int round = 0; round < 20; round++) {
		if (scry_fiber_open(NULL, NULL) != 0)
			return "open";
		for (int i = 0; i < FIBERS; i++)
			if (scry_fiber_spawn(NULL, yields_often, &fibers[i], &fibers[i]) != 0)
				return "spawn";
		for (int i = 0; i < FIBERS; i++) {
			void *value;

			if (scry_fiber_join(fibers[i], &value) != 0 || value != &fibers[i])
				return "join";
		}
		if (scry_fiber_close() != 0)
			return "close";
	}
	return NULL;
}

static void threads_have_schedulers_of_their_own(void **state)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, opens_and_closes, NULL), 0);
	for (int i = 0; i < 4; i++) {
		void *complaint;

		assert_int_equal(pthread_join(threads[i], &complaint), 0);
		assert_null(complaint);
	}
}

static void *rounds_up(void *arg)
{
	assert_int_equal(fegetround(), FE_TONEAREST);
	fesetround(FE_UPWARD);
	scry_fiber_yield();
	assert_int_equal(fegetround(), FE_UPWARD);
	return arg;
}

static void control_words_are_each_fibers_own(void **state)
{
	struct scry_fiber *a = spawn(rounds_up, NULL);

	fesetround(FE_DOWNWARD);
	scry_fiber_yield();
	assert_int_equal(fegetround(), FE_DOWNWARD);
	assert_int_equal(scry_fiber_join(a, NULL), 0);
	assert_int_equal(fegetround(), FE_DOWNWARD);
	fesetround(FE_TONEAREST);
}

static void *leaks_upward(void *arg)
{
	fesetround(FE_UPWARD);
	return arg;
}

static int without_fp(void)
{
	struct scry_fiber *a;
	int mode;

	if (scry_fiber_close() != 0 ||
	    scry_fiber_open(&(struct scry_fiber_sched_attr){.flags = SCRY_FIBER_NO_FP}, NULL) !=
		    0 ||
	    scry_fiber_spawn(NULL, leaks_upward, NULL, &a) != 0 || scry_fiber_join(a, NULL) != 0)
		return 1;
	mode = fegetround();
	return mode == FE_UPWARD ? 0 : 2;
}

static void control_words_are_left_alone_when_asked(void **state)
{
	assert_int_equal(in_child(without_fp), 0);
}

static void *sleeps(void *arg)
{
	const char *text = arg;

	assert_int_equal(scry_fiber_sleep((text[0] - 'a') * 3000000ll), 0);
	note(text[0]);
	return NULL;
}

static void sleepers_wake_in_order_of_time(void **state)
{
	const char *names[] = {"d", "b", "e", "c", "a"};
	struct scry_fiber *fibers[5];

	for (int i = 0; i < 5; i++)
		fibers[i] = spawn(sleeps, (void *)names[i]);
	for (int i = 0; i < 5; i++)
		assert_int_equal(scry_fiber_join(fibers[i], NULL), 0);
	assert_string_equal(order, "abcde");
}

static int pair[2];

static void *reads(void *arg)
{
	char byte;

	note('r');
	assert_int_equal(scry_fiber_wait(pair[0], SCRY_FIBER_READ, SCRY_FIBER_FOREVER),
			 SCRY_FIBER_READ);
	assert_int_equal(read(pair[0], &byte, 1), 1);
	note(byte);
	return arg;
}

static void a_descriptor_wakes_its_reader(void **state)
{
	struct scry_fiber *a;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	a = spawn(reads, NULL);
	scry_fiber_yield();
	assert_int_equal(scry_fiber_wait(pair[0], SCRY_FIBER_READ, SCRY_FIBER_FOREVER), -EBUSY);
	assert_int_equal(scry_fiber_wait(pair[0], SCRY_FIBER_WRITE, SCRY_FIBER_FOREVER),
			 SCRY_FIBER_WRITE);
	assert_int_equal(write(pair[1], "x", 1), 1);
	assert_int_equal(scry_fiber_join(a, NULL), 0);
	assert_string_equal(order, "rx");
	/* what is there already is told at once; a hang-up counts as ready */
	assert_int_equal(write(pair[1], "y", 1), 1);
	for (int i = 0; i < 2; i++)
		assert_int_equal(scry_fiber_wait(pair[0], SCRY_FIBER_READ, SCRY_FIBER_FOREVER),
				 SCRY_FIBER_READ);
	close(pair[1]);
	assert_int_equal(
		scry_fiber_wait(pair[0], SCRY_FIBER_READ | SCRY_FIBER_WRITE, SCRY_FIBER_FOREVER),
		SCRY_FIBER_READ | SCRY_FIBER_WRITE);
	scry_fiber_forget(pair[0]);
	close(pair[0]);
}

static void a_wait_may_end_by_time(void **state)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(scry_fiber_wait(pair[0], SCRY_FIBER_READ, 0), 0);
	assert_int_equal(scry_fiber_wait(pair[0], SCRY_FIBER_READ, 2000000), 0);
	assert_int_equal(write(pair[1], "x", 1), 1);
	assert_int_equal(scry_fiber_wait(pair[0], SCRY_FIBER_READ, 0), SCRY_FIBER_READ);
	scry_fiber_forget(pair[0]);
	close(pair[0]);
	close(pair[1]);
}

static void *waits_for_close(void *arg)
{
	assert_int_equal(scry_fiber_wait(pair[0], SCRY_FIBER_READ, SCRY_FIBER_FOREVER), -EBADF);
	return arg;
}

static void closed_duplicated_and_regular_files(void **state)
{
	int copy, file = open("/proc/self/exe", O_RDONLY), now[2];
	struct scry_fiber *a;

	assert_int_equal(scry_fiber_wait(file, SCRY_FIBER_READ, SCRY_FIBER_FOREVER),
			 SCRY_FIBER_READ);
	close(file);
	assert_int_equal(scry_fiber_wait(file, SCRY_FIBER_READ, SCRY_FIBER_FOREVER), -EBADF);
	assert_int_equal(scry_fiber_wait(-1, SCRY_FIBER_READ, SCRY_FIBER_FOREVER), -EBADF);
	/* forgotten while somebody waits */
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	a = spawn(waits_for_close, NULL);
	scry_fiber_yield();
	assert_int_equal(scry_fiber_forget(pair[0]), 0);
	assert_int_equal(scry_fiber_join(a, NULL), 0);
	/* closed, but kept open by a copy: its event is not taken for one of the file that has the
	 * number now */
	assert_int_equal(scry_fiber_wait(pair[0], SCRY_FIBER_READ, 1000000), 0);
	copy = dup(pair[0]);
	close(pair[0]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, now), 0);
	assert_int_equal(now[0], pair[0]);
	assert_int_equal(write(pair[1], "x", 1), 1);
	assert_int_equal(scry_fiber_wait(now[0], SCRY_FIBER_READ, 20000000), 0);
	scry_fiber_forget(now[0]);
	close(copy);
	close(pair[1]);
	close(now[0]);
	close(now[1]);
}

static struct scry_fiber_sched *here;
static struct scry_fiber *parked;
static int made_by_mail;

static void *by_mail(void *arg)
{
	made_by_mail++;
	if (made_by_mail == 100)
		scry_fiber_wake(parked);
	return arg;
}

static void *sends(void *arg)
{
	for (int i = 0; i < 100; i++)
		if (scry_fiber_spawn_on(here, by_mail, NULL) != 0)
			return "spawn_on";
	return NULL;
}

static void *wakes(void *arg)
{
	scry_fiber_wake(parked);
	return NULL;
}

static void other_threads_spawn_and_wake(void **state)
{
	pthread_t thread;
	void *complaint;

	assert_int_equal(scry_fiber_close(), 0);
	assert_int_equal(scry_fiber_open(NULL, &here), 0);
	parked = scry_fiber_self();
	made_by_mail = 0;
	assert_int_equal(pthread_create(&thread, NULL, sends, NULL), 0);
	assert_int_equal(scry_fiber_park(), 0);
	assert_int_equal(made_by_mail, 100);
	pthread_join(thread, &complaint);
	assert_null(complaint);
	while (scry_fiber_count() > 0)
		scry_fiber_yield();
	assert_int_equal(pthread_create(&thread, NULL, wakes, NULL), 0);
	assert_int_equal(scry_fiber_park(), 0);
	pthread_join(thread, NULL);
	/* woken before: park returns at once */
	scry_fiber_wake(parked);
	assert_int_equal(scry_fiber_park(), 0);
}

static _Atomic(struct scry_fiber *) ending;
static atomic_int wakes_made;

static void *wakes_two(void *arg)
{
	for (int i = 0; i < 2; i++) {
		struct scry_fiber *fiber;

		while ((fiber = atomic_exchange(&ending, NULL)) == NULL)
			;
		scry_fiber_wake(fiber);
		atomic_fetch_add(&wakes_made, 1);
	}
	return arg;
}

/* Is woken by another thread while it runs, and then ends or parks. */
static void *is_woken(void *parks)
{
	const int before = wakes_made;

	atomic_store(&ending, scry_fiber_self());
	while (wakes_made == before)
		;
	if (parks != NULL)
		scry_fiber_park();
	return parks;
}

/* Its memory is the next fiber's: that one is woken for itself. */
static void one_that_is_woken_as_it_ends(void **state)
{
	struct scry_fiber *fiber;
	pthread_t thread;

	wakes_made = 0;
	assert_int_equal(pthread_create(&thread, NULL, wakes_two, NULL), 0);
	assert_int_equal(scry_fiber_spawn(NULL, is_woken, NULL, &fiber), 0);
	assert_int_equal(scry_fiber_join(fiber, NULL), 0);
	assert_int_equal(scry_fiber_spawn(NULL, is_woken, "parks", &fiber), 0);
	assert_int_equal(scry_fiber_join(fiber, NULL), 0);
	pthread_join(thread, NULL);
}

/* With the x87 registers full. */
static void *overflows(void *arg)
{
	__asm__ volatile("fld1; fld1; fld1; fld1; fld1; fld1; fld1; fld1");
	frames_small(0);
	return arg;
}

static int end_it(struct scry_stack_overflow *overflow, void *arg)
{
	return strncmp(overflow->function, "frames_small", 12) == 0 &&
	       strcmp(overflow->name, "greedy") == 0;
}

static int overflow_alone(void)
{
	struct scry_fiber *a, *b;
	struct scry_fiber_sched_attr attr = {
		.report_fd = -1, .size_bytes = 32 << 10, .on_overflow = end_it};
	void *value = NULL;

	signal(SIGSEGV, SIG_DFL);
	if (scry_fiber_close() != 0 || scry_fiber_open(&attr, NULL) != 0)
		return 1;
	for (int i = 0; i < 3; i++) {
		if (scry_fiber_spawn(&(struct scry_fiber_attr){.name = "greedy"}, overflows, NULL,
				     &a) != 0 ||
		    scry_fiber_spawn(NULL, three_times, "b", &b) != 0)
			return 2;
		if (scry_fiber_join(a, NULL) != -EOVERFLOW)
			return 3;
		{
			volatile long double sum = i;

			sum = sum * 3.0L + 1.0L;
			if (sum != 3 * i + 1)
				return 6;
		}
		if (scry_fiber_join(b, &value) != 0 || strcmp(value, "b") != 0)
			return 4;
	}
	return scry_fiber_close() == 0 ? 0 : 5;
}

static void an_overflow_ends_its_fiber_alone(void **state)
{
	assert_int_equal(in_child(overflow_alone), 0);
}

static volatile long alarms;

static void on_alarm(int signal)
{
	alarms++;
}

/* The same while a timer's handler runs on the signal stack, too, which a report is using. */
static int overflow_under_signals(void)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_ONSTACK | SA_RESTART};
	const struct itimerval often = {{0, 200}, {0, 200}};
	int result = 0;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < 20 && result == 0; i++) {
		result = overflow_alone();
		if (result == 0 && scry_fiber_open(NULL, NULL) != 0)
			result = 6;
	}
	return result != 0 || alarms != 0 ? result : 7;
}

static void signals_wait_for_the_end_of_a_report(void **state)
{
	assert_int_equal(in_child(overflow_under_signals), 0);
}

static struct scry_fiber *sibling;

static void *forks(void *arg)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct scry_fiber *a;

		/* alone, with a scheduler that works */
		if (scry_fiber_count() != 1 || scry_fiber_join(sibling, NULL) != -ESRCH ||
		    scry_fiber_transfer(sibling) != -ESRCH || scry_fiber_wake(sibling) != -ESRCH ||
		    scry_fiber_sleep(1000) != 0 ||
		    scry_fiber_spawn(NULL, three_times, "a", &a) != 0 ||
		    scry_fiber_join(a, NULL) != 0)
			_exit(1);
		return NULL; /* ends the child as exit(0) does */
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return (void *)(long)status;
}

static void a_child_has_the_forking_fiber_only(void **state)
{
	struct scry_fiber *a;
	void *value = "";

	sibling = spawn(three_times, "s");
	a = spawn(forks, NULL);
	assert_int_equal(scry_fiber_join(a, &value), 0);
	assert_null(value);
	assert_int_equal(scry_fiber_join(sibling, NULL), 0);
}

static void *wakes_parent(void *fiber)
{
	assert_int_equal(scry_fiber_wake(fiber), 0);
	return NULL;
}

/* In whose child nothing is left of it: that one ends. */
static void *forks_with_a_wake_under_way(void *arg)
{
	pthread_t thread;
	int status = -1;
	pid_t child;

	assert_int_equal(pthread_create(&thread, NULL, wakes_parent, scry_fiber_self()), 0);
	pthread_join(thread, NULL);
	child = fork();
	if (child == 0)
		return NULL;
	assert_int_equal(waitpid(child, &status, 0), child);
	return (void *)(long)status;
}

static void a_wake_is_not_the_childs(void **state)
{
	void *value = "";

	assert_int_equal(scry_fiber_join(spawn(forks_with_a_wake_under_way, NULL), &value), 0);
	assert_null(value);
}

static void *is_gone(void *arg)
{
	note('d');
	return arg;
}

static void *spawns_on(void *sched)
{
	assert_int_equal(scry_fiber_spawn_on(sched, is_gone, NULL), 0);
	return NULL;
}

static void what_others_spawn_is_not_lost_at_close(void **state)
{
	pthread_t thread;

	order[0] = '\0';
	assert_int_equal(scry_fiber_close(), 0);
	assert_int_equal(scry_fiber_open(NULL, &here), 0);
	assert_int_equal(pthread_create(&thread, NULL, spawns_on, here), 0);
	pthread_join(thread, NULL);
	assert_int_equal(scry_fiber_close(), -EBUSY);
	while (scry_fiber_count() > 0)
		scry_fiber_yield();
	assert_string_equal(order, "d");
}

static atomic_int is_waking;

static void *wakes_each(void *rounds)
{
	for (int i = 0; i < *(int *)rounds; i++) {
		struct scry_fiber *fiber;

		while ((fiber = atomic_exchange(&ending, NULL)) == NULL)
			sched_yield();
		atomic_store(&is_waking, 1);
		scry_fiber_wake(fiber);
	}
	return NULL;
}

static void *is_woken_and_ends(void *arg)
{
	atomic_store(&is_waking, 0);
	atomic_store(&ending, scry_fiber_self());
	while (!atomic_load(
		&is_waking)) /* then the scheduler is not asleep, and no ring ends its sleep */
		;
	scry_fiber_park();
	return arg;
}

/* The fiber that it wakes ends, and the scheduler closes, before its call comes back. With a
 * sanitizer this shows what is used after it is free. */
static void close_waits_for_who_wakes(void **state)
{
	int rounds = 500;
	struct scry_fiber *fiber;
	pthread_t thread;

	assert_int_equal(scry_fiber_close(), 0);
	assert_int_equal(pthread_create(&thread, NULL, wakes_each, &rounds), 0);
	for (int i = 0; i < rounds; i++) {
		assert_int_equal(scry_fiber_open(NULL, &here), 0);
		assert_int_equal(scry_fiber_spawn(NULL, is_woken_and_ends, NULL, &fiber), 0);
		assert_int_equal(scry_fiber_join(fiber, NULL), 0);
		assert_int_equal(scry_fiber_close(), 0);
	}
	pthread_join(thread, NULL);
	assert_int_equal(scry_fiber_open(NULL, &here), 0);
}

static void *yields(void *arg)
{
	scry_fiber_yield();
	return arg;
}

static void many_live_and_end(void **state)
{
	enum { MANY = 10000 };
	static struct scry_fiber *fibers[MANY];
	struct scry_fiber_attr attr = {.size_bytes = 16 << 10};
	void *value;

	for (int round = 0; round < 2; round++) {
		for (long i = 0; i < MANY; i++)
			assert_int_equal(scry_fiber_spawn(i % 2 ? &attr : NULL, yields, &fibers[i],
							  &fibers[i]),
					 0);
		for (long i = 0; i < MANY; i++) {
			assert_int_equal(scry_fiber_join(fibers[i], &value), 0);
			assert_ptr_equal(value, &fibers[i]);
		}
	}
	order[0] = '\0';
	for (int i = 0; i < 100; i++) {
		assert_int_equal(scry_fiber_spawn(&(struct scry_fiber_attr){.is_detached = 1},
						  is_gone, NULL, NULL),
				 0);
		scry_fiber_yield();
	}
	assert_int_equal(strlen(order), 100);
	assert_int_equal(scry_fiber_count(), 0);
}

static void *uses(void *arg)
{
	volatile char room[100 << 10];

	for (size_t i = 0; i < sizeof(room); i += 1024)
		room[i] = 1;
	return arg;
}

static void measured_stacks_are_advised(void **state)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	unsigned long stacks = 0, deepest = 0, advised = 0;

	assert_int_equal(scry_fiber_close(), 0);
	assert_int_equal(
		scry_fiber_open(&(struct scry_fiber_sched_attr){.flags = SCRY_FIBER_MEASURED},
				NULL),
		0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(scry_fiber_join(spawn(uses, NULL), NULL), 0);
	assert_int_equal(scry_fiber_advise(out), 0);
	fclose(out);
	assert_int_equal(
		sscanf(strchr(text, '\n'), " %*s %lu %lu %lu", &stacks, &deepest, &advised), 3);
	assert_int_equal(stacks, 5);
	assert_in_range(deepest, 100, 112);
	assert_int_equal(advised, 256);
	free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_sched, close_sched)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_queue_is_fair_and_join_gives_the_value),
		TEST(resume_and_yield_are_a_pair),
		TEST(transfer_goes_where_it_is_told),
		TEST(wrong_calls_are_errors),
		TEST(fibers_do_not_migrate),
		TEST(threads_have_schedulers_of_their_own),
		TEST(control_words_are_each_fibers_own),
		TEST(control_words_are_left_alone_when_asked),
		TEST(sleepers_wake_in_order_of_time),
		TEST(a_descriptor_wakes_its_reader),
		TEST(a_wait_may_end_by_time),
		TEST(closed_duplicated_and_regular_files),
		TEST(other_threads_spawn_and_wake),
		TEST(one_that_is_woken_as_it_ends),
		TEST(an_overflow_ends_its_fiber_alone),
		TEST(signals_wait_for_the_end_of_a_report),
		TEST(a_child_has_the_forking_fiber_only),
		TEST(a_wake_is_not_the_childs),
		TEST(what_others_spawn_is_not_lost_at_close),
		TEST(close_waits_for_who_wakes),
		TEST(many_live_and_end),
		TEST(measured_stacks_are_advised),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
