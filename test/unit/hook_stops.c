/* hook/stops: a thread that was held before it is taken over; a child that outlives its process;
 * waits that know nothing of us. */
#include "hook/stops.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/proc.h"

#define TURN_NS 1000000

static uint64_t next(void *arg, uint64_t address)
{
	(void)arg;
	(void)address;
	return 0;
}

static void met(void *arg, struct scry_tracee *t, uint64_t address)
{
	(void)arg;
	(void)t;
	(void)address;
}

static pid_t last_forked;
static int execs;

static void forked(void *arg, pid_t child)
{
	(void)arg;
	last_forked = child;
}

static void execed(void *arg)
{
	(void)arg;
	execs++;
}

static const struct scry_stops_handlers handlers = {next, met, forked, execed};

enum { READY, SIGNALS, GO, CHILD, EINTRS, OTHERS, WORDS };
static volatile int *shared; /* with the child */

static pid_t child(void (*body)(void))
{
	pid_t pid;

	for (int i = 0; i < WORDS; i++)
		shared[i] = 0;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		body();
		_exit(0);
	}
	return pid;
}

/* Nothing but its stops is waited for while it is traced. */
static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, __WALL);
}

static bool becomes(int word, int value)
{
	for (int i = 0; shared[word] != value && i < 5000; i++)
		scry_stops_turn(TURN_NS);
	return shared[word] == value;
}

static void on_signal(int sig)
{
	(void)sig;
	shared[SIGNALS]++;
}

static void takes_signals(void)
{
	const struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGUSR1, &action, NULL);
	shared[READY] = 1;
	for (;;)
		;
}

/* What has come while it was stepped it is given when it goes on. */
static void test_held_with_a_signal(void **state)
{
	pid_t pid = child(takes_signals);
	struct scry_stops *s;
	struct scry_tracee t;

	(void)state;
	while (!shared[READY])
		;
	assert_int_equal(scry_tracee_seize(&t, pid, pid), 0);
	assert_int_equal(scry_tracee_stop(&t, scry_now_ns() + 1000000000), 0);
	kill(pid, SIGUSR1);
	assert_int_equal(scry_tracee_step(&t, 5), 0);
	assert_int_equal(t.signal, SIGUSR1);
	assert_int_equal(scry_stops_new(pid, &handlers, NULL, &t, &s), 0);
	scry_stops_go(s);
	assert_true(becomes(SIGNALS, 1));
	assert_int_equal(scry_stops_leave(s), 0);
	scry_stops_free(s);
	end(pid);
}

static void *makes_child(void *unused)
{
	if (vfork() == 0) {
		alarm(60); /* it is nobody's, should the test fail */
		shared[CHILD] = getpid();
		for (;;)
			;
	}
	return unused;
}

static void makes_child_and_execs(void)
{
	const struct sigaction action = {.sa_handler = on_signal};
	pthread_t thread;

	sigaction(SIGUSR1, &action, NULL);
	shared[READY] = 1;
	while (!shared[GO])
		;
	pthread_create(&thread, NULL, makes_child, NULL);
	while (!shared[CHILD])
		;
	execlp("sleep", "sleep", "100", (char *)NULL);
}

/* A child in vfork is there still when its process has become another program. */
static void test_child_survives_exec(void **state)
{
	pid_t pid = child(makes_child_and_execs), other;
	struct scry_stops *s;

	(void)state;
	while (!shared[READY])
		;
	execs = 0;
	assert_int_equal(scry_stops_new(pid, &handlers, NULL, NULL, &s), 0);
	shared[GO] = 1;
	for (int i = 0; !execs && i < 5000; i++)
		scry_stops_turn(TURN_NS);
	assert_int_equal(execs, 1);
	other = shared[CHILD];
	kill(other, SIGUSR1);
	assert_true(becomes(SIGNALS, 1));
	assert_int_equal(scry_proc_tracer(other, other), getpid());
	scry_stops_free(s);
	assert_int_equal(scry_proc_tracer(other, other), 0);
	assert_int_equal(last_forked, other);
	kill(other, SIGUSR1);
	for (int i = 0; shared[SIGNALS] < 2 && i < 5000; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	kill(other, SIGKILL);
	assert_int_equal(shared[SIGNALS], 2);
	end(pid);
}

static void waits_for_events(void)
{
	const struct sigaction action = {.sa_handler = on_signal};
	struct epoll_event event;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	sigaction(SIGUSR1, &action, NULL);
	shared[READY] = 1;
	for (;;)
		shared[epoll_wait(fd, &event, 1, -1) < 0 && errno == EINTR ? EINTRS : OTHERS]++;
}

static bool turns_to_sleep(pid_t pid)
{
	for (int i = 0; scry_proc_task_state(pid, pid) != 'S' && i < 5000; i++)
		scry_stops_turn(TURN_NS);
	return scry_proc_task_state(pid, pid) == 'S';
}

/* Signals that nobody handles wake who is traced only: a wait knows nothing of them, nor of the
 * leaving. Of one that is handled it knows. */
static void test_waits_are_whole(void **state)
{
	pid_t pid = child(waits_for_events);
	struct scry_stops *s;

	(void)state;
	while (!shared[READY] || scry_proc_task_state(pid, pid) != 'S')
		;
	assert_int_equal(scry_stops_new(pid, &handlers, NULL, NULL, &s), 0);
	for (int i = 0; i < 40; i++) {
		kill(pid, i % 2 ? SIGCHLD : SIGWINCH);
		assert_true(turns_to_sleep(pid));
	}
	assert_int_equal(shared[EINTRS], 0);
	kill(pid, SIGUSR1);
	assert_true(turns_to_sleep(pid));
	assert_int_equal(shared[SIGNALS], 1);
	assert_int_equal(shared[EINTRS], 1);
	kill(pid, SIGWINCH);
	assert_int_equal(scry_stops_leave(s), 0);
	scry_stops_free(s);
	for (int i = 0; scry_proc_task_state(pid, pid) != 'S' && i < 5000; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	assert_int_equal(shared[EINTRS], 1);
	assert_int_equal(shared[OTHERS], 0);
	end(pid);
}

static int share(void **state)
{
	(void)state;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return shared == MAP_FAILED;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_held_with_a_signal),
		cmocka_unit_test(test_child_survives_exec),
		cmocka_unit_test(test_waits_are_whole),
	};

	return cmocka_run_group_tests(tests, share, NULL);
}
