/*
 * sys/pause, on programs that check themselves: threads in every state feel nothing of it, calls in
 * which they wait among them; whoever dies while he holds them leaves them running; a stop by the
 * user stays one; who is traced is refused.
 */
#include "sys/pause.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "child.h"
#include "sys/proc.h"

#define MAX_NS 2000000000ull
#define KILLS 60

static void rest(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static bool is_in(pid_t pid, char state)
{
	for (int tries = 0; tries < 5000; tries++, rest(1000))
		if (scry_proc_task_state(pid, pid) == state)
			return true;
	return false;
}

/* What runs is held; what waits is not. False: on a machine that is busy enough some thread has
 * woken between any two settles, which the caller counts. */
static bool look(struct scry_pause *p)
{
	int r = scry_pause_hold(p, MAX_NS);

	if (r == -EBUSY)
		return false;
	assert_int_equal(r, 0);
	for (size_t i = 0; i < p->count; i++) {
		const struct scry_pause_task *t = &p->tasks[i];

		if (t->now.is_gone)
			continue;
		assert_int_equal(t->is_held, t->now.is_running);
		assert_ptr_equal(scry_pause_find(p, t->tid), t);
	}
	r = scry_pause_settle(p, MAX_NS);
	assert_true(r >= 0 || r == -EBUSY);
	scry_pause_release(p);
	return r >= 0;
}

static void test_states(void **state)
{
	struct scry_pause p;
	struct child c;
	uint32_t held = 0;
	size_t looks = 0, late = 0;
	int status;

	if (!child_start(&c, "target_states", "1"))
		skip();
	assert_int_equal(scry_pause_open(&p, c.pid), 0);
	while (!scry_tracee_has_ended(c.pid, &status)) {
		if (scry_proc_task_state(c.pid, c.pid) == 'S') {
			bool is_done = look(&p);

			looks += is_done;
			late += !is_done;
		}
		held = p.held > held ? p.held : held;
		scry_tracee_poll_lingering();
		rest(500);
	}
	scry_pause_close(&p);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	print_message("%zu looks, %zu given up, %u held at most\n", looks, late, held);
	assert_true(looks > 5 && held > 1);
	assert_non_null(strstr(child_next(&c), "ok 1 epoll_eintr 0"));
}

/* Holds and lets go until it is killed. */
static void hold_on(pid_t pid)
{
	struct scry_pause p;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (scry_pause_open(&p, pid))
		_exit(1);
	for (;;) {
		if (scry_pause_hold(&p, MAX_NS) == 0)
			scry_pause_release(&p);
		scry_tracee_poll_lingering();
	}
}

static void test_killed(void **state)
{
	struct scry_pause p;
	struct child c;
	int status;

	if (!child_start(&c, "target_states", NULL))
		skip();
	srand((unsigned int)c.pid);
	for (int i = 0; i < KILLS; i++) {
		pid_t holder = fork();

		if (holder == 0)
			hold_on(c.pid);
		rest(500 + rand() % 6000);
		kill(holder, SIGKILL);
		assert_int_equal(waitpid(holder, &status, 0), holder);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		assert_int_equal(scry_pause_open(&p, c.pid), 0); /* nobody traces it */
		for (size_t k = 0; k < p.count; k++)
			assert_null(strchr("tT", scry_proc_task_state(c.pid, p.tasks[k].tid)));
		scry_pause_close(&p);
	}
	child_next(&c);
	assert_non_null(strstr(c.line, "ok 1 ")); /* no line "wrong" before it */
	kill(c.pid, SIGTERM);
	assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Stops by the user: before, and while it is held. */
static void test_job_control(void **state)
{
	struct scry_pause p;
	struct child c;
	int r, status;

	if (!child_start(&c, "target_states", NULL))
		skip();
	assert_int_equal(scry_pause_open(&p, c.pid), 0);
	kill(c.pid, SIGSTOP);
	assert_true(is_in(c.pid, 'T'));
	for (int i = 0; i < 3; i++)
		assert_true(look(&p));
	assert_int_equal(scry_proc_task_state(c.pid, c.pid), 'T');
	kill(c.pid, SIGCONT);
	assert_true(is_in(c.pid, 'S'));
	for (int tries = 0; (r = scry_pause_hold(&p, MAX_NS)) == -EBUSY; tries++)
		assert_true(tries < 100);
	assert_int_equal(r, 0);
	assert_true(p.held > 0);
	kill(c.pid, SIGSTOP);
	scry_pause_release(&p);
	assert_true(is_in(c.pid, 'T'));
	for (size_t i = 0; i < p.count; i++) /* all of it */
		for (int tries = 0; scry_proc_task_state(c.pid, p.tasks[i].tid) != 'T'; tries++) {
			assert_true(tries < 5000);
			rest(1000);
		}
	scry_pause_close(&p);
	kill(c.pid, SIGCONT);
	assert_non_null(strstr(child_next(&c), "ok "));
	kill(c.pid, SIGTERM);
	assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static volatile int *shared; /* with the children */

#define CHAIN 40

/* The thread that is not the first becomes the program's next life, CHAIN times. */
static void *run_next(void *left)
{
	struct timespec t;
	uint64_t till = scry_now_ns() + 2000000;
	char text[16];

	while (scry_now_ns() < till)
		clock_gettime(CLOCK_REALTIME, &t);
	snprintf(text, sizeof(text), "%d", *(int *)left - 1);
	execl("/proc/self/exe", "chain", text, NULL);
	_exit(1);
}

static int chain(int left)
{
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (left == 0)
		return 42;
	if (pthread_create(&thread, NULL, run_next, &left))
		return 1;
	for (;;)
		pause();
}

static void test_exec(void **state)
{
	struct scry_pause p;
	pid_t pid = fork();
	int status, looks = 0;

	if (pid == 0) {
		int left = CHAIN;

		run_next(&left);
	}
	assert_int_equal(scry_pause_open(&p, pid), 0);
	while (!scry_tracee_has_ended(pid, &status)) {
		if (scry_pause_hold(&p, MAX_NS) == 0)
			looks += p.held > 0;
		scry_pause_release(&p);
		scry_tracee_poll_lingering();
		scry_error_clear();
	}
	scry_pause_close(&p);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 42);
	print_message("%d looks with a stop\n", looks);
	assert_true(looks > 0);
}

enum { RUNS, EINTRS, OTHERS, SIGNALS };

static void on_signal(int sig)
{
	(void)sig;
	shared[SIGNALS]++;
}

static pid_t child(void (*body)(void))
{
	pid_t pid;

	memset((void *)shared, 0, 4096);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
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

static void wait_for_events(void)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct epoll_event event;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	sigaction(SIGUSR1, &action, NULL);
	for (;; shared[RUNS]++)
		if (epoll_wait(fd, &event, 1, -1) < 0 && errno == EINTR)
			shared[EINTRS]++;
		else
			shared[OTHERS]++;
}

static void stop_once(pid_t pid, bool mends, int sig)
{
	struct scry_tracee t;

	assert_true(is_in(pid, 'S'));
	assert_int_equal(scry_tracee_seize(&t, pid, pid), 0);
	assert_int_equal(scry_tracee_stop(&t, scry_now_ns() + MAX_NS), 0);
	if (sig)
		kill(pid, sig);
	if (mends)
		scry_tracee_mend(&t);
	scry_tracee_release(&t);
	assert_true(is_in(pid, 'S'));
}

/* epoll_wait knows nothing of a stop that was mended; a signal that comes meanwhile it knows. */
static void test_mended(void **state)
{
	pid_t pid = child(wait_for_events);

	while (!is_in(pid, 'S'))
		;
	stop_once(pid, false, 0);
	for (int tries = 0; tries < 5000 && !shared[EINTRS]; tries++)
		rest(1000);
	assert_int_equal(shared[EINTRS], 1); /* so it is without */
	for (int i = 0; i < 50; i++)
		stop_once(pid, true, 0);
	assert_int_equal(shared[EINTRS], 1);
	for (int i = 0; i < 50; i++) { /* released before it has stopped */
		struct scry_tracee t;

		assert_int_equal(scry_tracee_seize(&t, pid, pid), 0);
		scry_tracee_release(&t);
		assert_true(is_in(pid, 'S'));
	}
	assert_int_equal(shared[EINTRS], 1);
	stop_once(pid, true, SIGUSR1);
	for (int tries = 0; tries < 5000 && shared[EINTRS] < 2; tries++)
		rest(1000);
	assert_int_equal(shared[SIGNALS], 1);
	assert_int_equal(shared[EINTRS], 2);
	assert_int_equal(shared[OTHERS], 0);
	end(pid);
}

static void *run_other(void *arg)
{
	(void)arg;
	shared[OTHERS] = gettid();
	while (!shared[SIGNALS])
		;
	execl("/proc/self/exe", "chain", "0", NULL);
	_exit(1);
}

static void *wait_for_ever(void *arg)
{
	shared[RUNS] = gettid();
	for (;;)
		pause();
	return arg;
}

static void run_other_in_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, wait_for_ever, NULL);
	pthread_create(&thread, NULL, run_other, NULL);
	for (;;)
		pause();
}

/*
 * A thread that is let go of on its way into another program, and could not stop: its exec waits
 * for the end of a thread of which we have not taken notice. It is found again under its new
 * number.
 */
static void test_lingering_exec(void **state)
{
	pid_t pid = child(run_other_in_thread);
	struct scry_tracee waits, runs;
	int status = SIGKILL;

	while (!shared[RUNS] || !shared[OTHERS])
		rest(1000);
	assert_int_equal(scry_tracee_seize(&waits, pid, shared[RUNS]), 0);
	assert_int_equal(scry_tracee_seize(&runs, pid, shared[OTHERS]), 0);
	shared[SIGNALS] = 1;
	for (int tries = 0; scry_proc_task_state(pid, shared[RUNS]) != 'Z'; tries++, rest(1000))
		assert_true(tries < 5000);
	scry_tracee_release(&runs);
	assert_int_equal(scry_tracee_lingering(), 1);
	scry_tracee_release(&waits);
	for (int tries = 0; tries < 5000 && scry_tracee_lingering(); tries++, rest(1000))
		scry_tracee_poll_lingering();
	assert_int_equal(scry_tracee_lingering(), 0);
	for (int tries = 0; tries < 5000 && waitpid(pid, &status, WNOHANG) != pid; tries++)
		rest(1000);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 42);
}

static void run_and_vfork(void)
{
	if (vfork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		shared[RUNS] = 1;
		sleep(600);
		_exit(0);
	}
}

/* A parent whose vfork child has not run another program waits, and is not waited for. */
static void test_vfork(void **state)
{
	pid_t pid = child(run_and_vfork);
	struct scry_pause p;

	while (!shared[RUNS])
		rest(1000);
	assert_true(is_in(pid, 'D') || is_in(pid, 'S'));
	assert_int_equal(scry_pause_open(&p, pid), 0);
	assert_int_equal(scry_pause_hold(&p, MAX_NS), 0);
	assert_int_equal(p.held, 0);
	assert_int_equal(scry_pause_settle(&p, MAX_NS), 0);
	scry_pause_close(&p);
	end(pid);
}

static void spin(void)
{
	for (;;)
		;
}

/* An end that was told while it was held is not forgotten for another's. */
static void test_ends(void **state)
{
	pid_t asked = child(spin), other;
	struct scry_pause p;
	int status;

	assert_false(scry_tracee_has_ended(asked, &status));
	other = child(spin);
	for (int i = 0; i < 2; i++) {
		pid_t pid = i ? other : asked;

		assert_int_equal(scry_pause_open(&p, pid), 0);
		do {
			scry_pause_release(&p);
			assert_int_equal(scry_pause_hold(&p, MAX_NS), 0);
		} while (!p.held);
		kill(pid, SIGKILL);
		scry_pause_close(&p);
		for (int tries = 0; tries < 5000 && scry_tracee_lingering(); tries++, rest(1000))
			scry_tracee_poll_lingering();
		assert_int_equal(scry_tracee_lingering(), 0);
	}
	assert_true(scry_tracee_has_ended(asked, &status));
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static pid_t traced;
static void trace(void)
{
	shared[RUNS] = ptrace(PTRACE_SEIZE, traced, 0, 0) == 0 ? 1 : -1;
	pause();
}

static void test_traced(void **state)
{
	struct scry_pause p, q;
	pid_t tracer;

	traced = child(spin);
	assert_int_equal(scry_pause_open(&q, traced), 0);
	tracer = child(trace);
	while (!shared[RUNS])
		rest(1000);
	assert_int_equal(shared[RUNS], 1);
	assert_int_equal(scry_pause_open(&p, traced), -EPERM);
	assert_non_null(strstr(scry_error(), "traces its thread"));
	assert_non_null(strstr(scry_error(), "fix: "));
	scry_error_clear();
	assert_int_equal(scry_pause_hold(&q, MAX_NS), -EPERM); /* one that came meanwhile */
	scry_error_clear();
	end(tracer);
	signal(SIGTSTP, on_signal);
	assert_int_equal(scry_pause_hold(&q, MAX_NS), 0);
	assert_int_equal(q.held, 1);
	shared[SIGNALS] = 0;
	raise(SIGTSTP); /* a ^Z waits until nobody is held */
	assert_int_equal(shared[SIGNALS], 0);
	scry_pause_release(&q);
	assert_int_equal(shared[SIGNALS], 1);
	signal(SIGTSTP, SIG_DFL);
	scry_pause_close(&q);
	end(traced);
	assert_int_equal(scry_pause_open(&p, traced), -ESRCH);
	scry_error_clear();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),	       cmocka_unit_test(test_killed),
		cmocka_unit_test(test_job_control),    cmocka_unit_test(test_mended),
		cmocka_unit_test(test_vfork),	       cmocka_unit_test(test_traced),
		cmocka_unit_test(test_exec),	       cmocka_unit_test(test_ends),
		cmocka_unit_test(test_lingering_exec),
	};

	if (argc == 2 && !strcmp(argv[0], "chain"))
		return chain(atoi(argv[1]));
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
