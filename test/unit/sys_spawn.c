/*
 * sys/spawn: what befalls a program in its start: a signal that comes while its image stands still,
 * its end between two of our looks, one that nobody handles; many of them later.
 */
#include "sys/spawn.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/brk_signal.h"
#include "sys/proc.h"

long __real_ptrace(enum __ptrace_request request, pid_t pid, void *address, void *data);
long __wrap_ptrace(enum __ptrace_request request, pid_t pid, void *address, void *data);

static bool kills;   /* who stands in a system call, before we look at it */
static size_t looks; /* at who stands in one */

long __wrap_ptrace(enum __ptrace_request request, pid_t pid, void *address, void *data)
{
	looks += request == PTRACE_GET_SYSCALL_INFO;
	if ((request == PTRACE_GET_SYSCALL_INFO || request == PTRACE_GETREGSET) && kills) {
		siginfo_t info;

		kill(pid, SIGKILL);
		waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | __WALL);
	}
	return __real_ptrace(request, pid, address, data);
}

static pid_t start(struct scry_spawns *s)
{
	int go[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(go[1]);
		if (read(go[0], &byte, 1) == 0)
			execlp("sleep", "sleep", "100", (char *)NULL);
		_exit(127);
	}
	close(go[0]);
	assert_int_equal(scry_spawns_add(s, pid), 0);
	close(go[1]);
	return pid;
}

static struct scry_tracee *image_of(struct scry_spawns *s)
{
	struct scry_tracee *t = NULL;

	for (int tries = 0; !t && s->count && tries < 100000; tries++) {
		t = scry_spawns_step(s);
		if (!t)
			nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	}
	return t;
}

static void test_signal_while_held(void **state)
{
	struct scry_spawns s = {0};
	pid_t pid = start(&s);
	struct scry_tracee *t = image_of(&s);
	siginfo_t info = {0};

	(void)state;
	assert_non_null(t);
	kill(pid, SIGUSR1);
	assert_int_equal(scry_tracee_step(t, 5), 0);
	assert_int_equal(t->signal, SIGUSR1);
	scry_spawns_go_on(&s, t);
	for (int tries = 0; !info.si_pid && tries < 5000; tries++) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT | __WALL);
	}
	kill(pid, SIGKILL);
	assert_int_equal(info.si_pid, pid);
	assert_int_equal(info.si_status, SIGUSR1);
	scry_spawns_done(&s);
	waitpid(pid, NULL, 0);
}

/* Can a breakpoint send its signal here? */
static bool has_signal(void)
{
	pid_t pid = fork();
	int fd;

	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	fd = scry_brk_signal_open(pid, (uintptr_t)has_signal);
	if (fd > 0)
		close(fd);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return fd > 0;
}

/* Its loader makes some fifty calls, and is not stopped at them. */
static void test_stops_are_few(void **state)
{
	struct scry_spawns s = {0};
	struct scry_tracee *t;
	pid_t pid;

	(void)state;
	if (!has_signal()) {
		fputs("# no breakpoint of perf: who starts is stopped at each call\n", stderr);
		skip();
	}
	looks = 0;
	pid = start(&s);
	t = image_of(&s);
	assert_non_null(t);
	assert_int_equal(t->pid, pid);
	assert_in_range(looks, 0, 8);
	scry_spawns_let_go(&s, t);
	kill(pid, SIGKILL);
	scry_spawns_done(&s);
	waitpid(pid, NULL, 0);
}

/* Who starts with the signal blocked, or gets it from others, is found all the same. */
static void test_signal_of_others(void **state)
{
	struct scry_spawns s = {0};
	struct scry_tracee *t;
	sigset_t urgent, old;
	pid_t pid;

	(void)state;
	sigemptyset(&urgent);
	sigaddset(&urgent, SIGURG);
	sigprocmask(SIG_BLOCK, &urgent, &old);
	pid = start(&s);
	sigprocmask(SIG_SETMASK, &old, NULL);
	kill(pid, SIGURG);
	t = image_of(&s);
	assert_non_null(t);
	scry_spawns_let_go(&s, t);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);

	t = NULL;
	pid = start(&s);
	while (s.count && !(t = scry_spawns_step(&s)))
		kill(pid, SIGURG);
	assert_non_null(t);
	scry_spawns_let_go(&s, t);
	kill(pid, SIGKILL);
	scry_spawns_done(&s);
	waitpid(pid, NULL, 0);
}

static void be_killed_in_a_stop(void)
{
	struct scry_spawns s = {0};
	pid_t pid = start(&s);

	kills = true;
	assert_null(image_of(&s));
	kills = false;
	assert_int_equal(s.count, 0);
	scry_spawns_done(&s);
	waitpid(pid, NULL, 0);
}

/* Where its loader says that it is done; with the signal blocked, at a system call. */
static void test_killed_in_a_stop(void **state)
{
	sigset_t urgent, old;

	(void)state;
	be_killed_in_a_stop();
	sigemptyset(&urgent);
	sigaddset(&urgent, SIGURG);
	sigprocmask(SIG_BLOCK, &urgent, &old);
	be_killed_in_a_stop();
	sigprocmask(SIG_SETMASK, &old, NULL);
}

static volatile int *shared; /* ready, waits that were cut short */

static void waits_for_events(void)
{
	struct epoll_event event;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	for (shared[0] = 1;;)
		shared[1] += epoll_wait(fd, &event, 1, -1) < 0;
}

/* A wait knows nothing of a signal that nobody handles. */
static void test_waits_are_whole(void **state)
{
	struct scry_spawns s = {0};
	pid_t pid;

	(void)state;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(shared != MAP_FAILED);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		waits_for_events();
	}
	while (!shared[0] || scry_proc_task_state(pid, pid) != 'S')
		;
	assert_int_equal(scry_spawns_add(&s, pid), 0);
	for (int i = 0; i < 20; i++) {
		kill(pid, SIGWINCH);
		for (int tries = 0; scry_proc_task_state(pid, pid) != 'S' && tries < 5000;
		     tries++) {
			assert_null(scry_spawns_step(&s));
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		}
	}
	assert_int_equal(shared[1], 0);
	scry_spawns_done(&s);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void send(struct scry_spawns *s, pid_t pid, int signal, int times)
{
	for (int i = 0; i < times; i++) {
		kill(pid, signal);
		for (int tries = 0; scry_proc_task_state(pid, pid) != 'S' && tries < 5000;
		     tries++) {
			assert_null(scry_spawns_step(s));
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		}
	}
}

/* Who is kept is stopped for so many signals and no more. */
static void test_signals_of_who_is_kept(void **state)
{
	struct scry_spawns s = {0};
	pid_t pid = start(&s);
	struct scry_tracee *t = image_of(&s);

	(void)state;
	assert_non_null(t);
	scry_spawns_keep(&s, t);
	while (scry_proc_task_state(pid, pid) != 'S') /* it sleeps */
		assert_null(scry_spawns_step(&s));
	send(&s, pid, SIGCHLD, 100);
	send(&s, pid, SIGWINCH, 32);
	assert_true(scry_spawns_has(&s, pid));
	assert_int_equal(scry_proc_traced_by(getpid()), pid);
	send(&s, pid, SIGWINCH, 1);
	assert_false(scry_spawns_has(&s, pid));
	assert_int_equal(scry_proc_traced_by(getpid()), 0);
	send(&s, pid, SIGWINCH, 1);
	assert_int_equal(scry_proc_task_state(pid, pid), 'S');
	scry_spawns_done(&s);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signal_while_held),
		cmocka_unit_test(test_stops_are_few),
		cmocka_unit_test(test_signal_of_others),
		cmocka_unit_test(test_killed_in_a_stop),
		cmocka_unit_test(test_waits_are_whole),
		cmocka_unit_test(test_signals_of_who_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
