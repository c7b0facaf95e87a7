/*
 * sys/tracee: a thread is let go in the midst of making another, which is let go with it; signals
 * that come while it is stepped are handled.
 */
#include "sys/tracee.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/proc.h"

#define OPTIONS (PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE)

enum { GO, RAN, FIRST, SECOND, WORDS };
static volatile int *shared; /* with the child */

static bool becomes(volatile int *word, int value)
{
	for (int tries = 0; *word != value && tries < 5000; tries++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return *word == value;
}

static bool gets_into(pid_t pid, char state)
{
	for (int tries = 0; scry_proc_task_state(pid, pid) != state && tries < 5000; tries++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return scry_proc_task_state(pid, pid) == state;
}

static pid_t child(void (*body)(void))
{
	pid_t pid;

	for (int i = 0; i < WORDS; i++)
		shared[i] = 0;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (!shared[GO])
			;
		body();
		_exit(0);
	}
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void *run(void *unused)
{
	shared[RAN] = 1;
	return unused;
}

static void forks(void)
{
	if (fork() == 0) {
		run(NULL);
		_exit(0);
	}
	wait(NULL);
}

static void vforks(void)
{
	if (vfork() == 0) {
		shared[RAN] = 1;
		_exit(0);
	}
	wait(NULL);
}

static void clones(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, run, NULL);
	pthread_join(thread, NULL);
}

/* It stands in the event: nobody has taken that. */
static void test_let_go_in_the_midst(void **state)
{
	void (*const ways[])(void) = {forks, vforks, clones};

	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		pid_t pid = child(ways[i]);
		struct scry_tracee t;

		assert_int_equal(scry_tracee_seize_with(&t, pid, pid, OPTIONS), 0);
		shared[GO] = 1;
		assert_true(gets_into(pid, 't'));
		assert_int_equal(shared[RAN], 0);
		scry_tracee_release(&t);
		assert_true(becomes(&shared[RAN], 1));
		for (int tries = 0; scry_tracee_lingering() && tries < 5000; tries++) {
			scry_tracee_poll_lingering();
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		}
		assert_int_equal(scry_tracee_lingering(), 0);
		assert_true(gets_into(pid, 'Z'));
		end(pid);
	}
}

static void on_signal(int sig)
{
	shared[sig == SIGUSR1 ? FIRST : SECOND]++;
}

static void takes_signals(void)
{
	const struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	shared[RAN] = 1;
	for (;;)
		;
}

/* Two that come while a thread is stepped: each is handled, once. */
static void test_signals_while_stepped(void **state)
{
	pid_t pid = child(takes_signals);
	struct scry_tracee t;

	(void)state;
	shared[GO] = 1;
	assert_true(becomes(&shared[RAN], 1));
	assert_int_equal(scry_tracee_seize(&t, pid, pid), 0);
	assert_int_equal(scry_tracee_stop(&t, scry_now_ns() + 1000000000), 0);
	kill(pid, SIGUSR1);
	kill(pid, SIGUSR2);
	for (int i = 0; i < 4; i++)
		assert_int_equal(scry_tracee_step(&t, 3), 0);
	scry_tracee_release(&t);
	assert_true(becomes(&shared[FIRST], 1));
	assert_true(becomes(&shared[SECOND], 1));
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
		cmocka_unit_test(test_let_go_in_the_midst),
		cmocka_unit_test(test_signals_while_stepped),
	};

	return cmocka_run_group_tests(tests, share, NULL);
}
