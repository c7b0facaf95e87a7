/* trace/ptrace_stops: a thread that was held before it is taken over; a child that outlives its
 * process; waits that know nothing of us. */
#include "trace/ptrace_stops.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/proc.h"

#define TURN_NS 1000000

static uint64_t next(void *arg, uint64_t address)
{
	(void)arg;
	return address + 1; /* all are ours: behind the int3 */
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

static const struct scry_ptrace_stops_handlers handlers = {next, met, forked, execed};

enum { READY, SIGNALS, GO, CHILD, RAN, EINTRS, OTHERS, WORDS };
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
		scry_ptrace_stops_turn(TURN_NS);
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
	struct scry_ptrace_stops *s;
	struct scry_tracee t;

	(void)state;
	while (!shared[READY])
		;
	assert_int_equal(scry_tracee_seize(&t, pid, pid), 0);
	assert_int_equal(scry_tracee_stop(&t, scry_now_ns() + 1000000000), 0);
	kill(pid, SIGUSR1);
	assert_int_equal(scry_tracee_step(&t, 5), 0);
	assert_int_equal(t.signal, SIGUSR1);
	assert_int_equal(scry_ptrace_stops_new(pid, &handlers, NULL, &t, &s), 0);
	scry_ptrace_stops_go(s);
	assert_true(becomes(SIGNALS, 1));
	assert_int_equal(scry_ptrace_stops_leave(s), 0);
	scry_ptrace_stops_free(s);
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
	struct scry_ptrace_stops *s;

	(void)state;
	while (!shared[READY])
		;
	execs = 0;
	assert_int_equal(scry_ptrace_stops_new(pid, &handlers, NULL, NULL, &s), 0);
	shared[GO] = 1;
	for (int i = 0; !execs && i < 5000; i++)
		scry_ptrace_stops_turn(TURN_NS);
	assert_int_equal(execs, 1);
	other = shared[CHILD];
	kill(other, SIGUSR1);
	assert_true(becomes(SIGNALS, 1));
	assert_int_equal(scry_proc_tracer(other, other), getpid());
	scry_ptrace_stops_free(s);
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
		scry_ptrace_stops_turn(TURN_NS);
	return scry_proc_task_state(pid, pid) == 'S';
}

/* Signals that nobody handles wake who is traced only: a wait knows nothing of them, nor of the
 * leaving. Of one that is handled it knows. */
static void test_waits_are_whole(void **state)
{
	pid_t pid = child(waits_for_events);
	struct scry_ptrace_stops *s;

	(void)state;
	while (!shared[READY] || scry_proc_task_state(pid, pid) != 'S')
		;
	assert_int_equal(scry_ptrace_stops_new(pid, &handlers, NULL, NULL, &s), 0);
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
	assert_int_equal(scry_ptrace_stops_leave(s), 0);
	scry_ptrace_stops_free(s);
	for (int i = 0; scry_proc_task_state(pid, pid) != 'S' && i < 5000; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	assert_int_equal(shared[EINTRS], 1);
	assert_int_equal(shared[OTHERS], 0);
	end(pid);
}

static void *meets(void *unused)
{
	sigset_t set;

	if (vfork() == 0) {
		alarm(60);
		sigemptyset(&set);
		sigaddset(&set, SIGTRAP);
		sigprocmask(SIG_BLOCK, &set, NULL);
		shared[CHILD] = getpid();
		while (!shared[GO])
			;
		__asm__ volatile("int3");
		shared[RAN] = 1;
		execlp("sleep", "sleep", "100", (char *)NULL);
	}
	return unused;
}

static void has_child(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, meets, NULL);
	while (!shared[CHILD])
		;
	shared[READY] = 1;
	waits_for_events();
}

static bool is_traced_by(pid_t tid, pid_t by)
{
	for (int i = 0; scry_proc_tracer(tid, tid) != by && i < 5000; i++)
		scry_ptrace_stops_turn(TURN_NS);
	return scry_proc_tracer(tid, tid) == by;
}

/* A child in vfork that was there before meets breakpoints without harm, until it is a program. */
static void test_child_before(void **state)
{
	pid_t pid = child(has_child), other;
	struct scry_ptrace_stops *s;

	(void)state;
	while (!shared[READY])
		;
	other = shared[CHILD];
	assert_int_equal(scry_ptrace_stops_new(pid, &handlers, NULL, NULL, &s), 0);
	assert_int_equal(scry_proc_tracer(other, other), getpid());
	shared[GO] = 1;
	assert_true(becomes(RAN, 1));
	assert_true(is_traced_by(other, 0));
	assert_int_equal(scry_ptrace_stops_leave(s), 0);
	scry_ptrace_stops_free(s);
	kill(other, SIGKILL);
	end(pid);
}

static int stays(void *unused)
{
	shared[CHILD] = (int)syscall(SYS_gettid);
	for (;;)
		syscall(SYS_pause);
	return unused != NULL;
}

static void makes_untraced(void)
{
	static char stack[65536] __attribute__((aligned(16)));

	shared[READY] = 1;
	while (!shared[GO])
		;
	clone(stays, stack + sizeof(stack),
	      CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
		      CLONE_UNTRACED,
	      NULL);
	for (;;)
		pause();
}

/* A thread that appears untraced, as of one that was in clone when it was seized, is found. */
static void test_late_thread(void **state)
{
	pid_t pid = child(makes_untraced);
	struct scry_ptrace_stops *s;

	(void)state;
	while (!shared[READY])
		;
	assert_int_equal(scry_ptrace_stops_new(pid, &handlers, NULL, NULL, &s), 0);
	shared[GO] = 1;
	while (!shared[CHILD])
		;
	assert_int_equal(scry_proc_tracer(pid, shared[CHILD]), 0);
	for (int i = 0; !scry_proc_tracer(pid, shared[CHILD]) && i < 500; i++)
		scry_ptrace_stops_turn(TURN_NS);
	assert_int_equal(scry_proc_tracer(pid, shared[CHILD]), getpid());
	assert_int_equal(scry_ptrace_stops_leave(s), 0);
	assert_int_equal(scry_proc_tracer(pid, shared[CHILD]), 0);
	scry_ptrace_stops_free(s);
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
		cmocka_unit_test(test_child_before),
		cmocka_unit_test(test_late_thread),
	};

	return cmocka_run_group_tests(tests, share, NULL);
}
