/*
 * sample/pause: a look that is made again, as a thread woke, is made so often and no more:
 * what runs stands still meanwhile.
 */
#include "sample/pause.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "sys/proc.h"

static int to[2], from[2];
static pid_t echo_tid;

/* Waits for a byte, and answers with it. */
static void *echo(void *arg)
{
	pid_t tid = gettid();
	char byte;

	if (write(from[1], &tid, sizeof(tid)) != sizeof(tid))
		_exit(1);
	while (read(to[0], &byte, 1) == 1)
		if (write(from[1], &byte, 1) != 1)
			break;
	return arg;
}

static pid_t start(void)
{
	pthread_t thread;
	pid_t pid;

	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (pthread_create(&thread, NULL, echo, NULL))
			_exit(1);
		for (;;) /* runs, and so is held */
			;
	}
	assert_int_equal(read(from[0], &echo_tid, sizeof(echo_tid)), sizeof(echo_tid));
	return pid;
}

static void wait_till_it_waits(pid_t pid)
{
	while (scry_proc_task_state(pid, echo_tid) != 'S')
		nanosleep(&(struct timespec){0, 10000}, NULL);
}

static void wake(pid_t pid)
{
	char byte = 'x';

	assert_int_equal(write(to[1], &byte, 1), 1);
	assert_int_equal(read(from[0], &byte, 1), 1);
	wait_till_it_waits(pid);
}

/* A machine with much else to do may not let it stop in time. */
static void begin(struct scry_samples_pause *p)
{
	uint64_t stands;
	int r = 0;

	for (int tries = 0; tries < 1000 && r == 0; tries++) {
		stands = 1;
		p->not_before_ns = 0; /* how seldom it may be held is none of this test's */
		r = scry_samples_pause_begin(p, &stands);
		if (r == 0)
			nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	assert_int_equal(r, 1);
}

static void a_thread_that_wakes_again_and_again(void **state)
{
	struct scry_samples_pause *p;
	pid_t pid = start();
	uint32_t late;
	int rounds = 0, r = 0;

	(void)state;
	wait_till_it_waits(pid);
	assert_int_equal(scry_samples_pause_open(pid, &p), 0);
	begin(p);
	assert_int_equal(scry_samples_pause_holds(p, 1), 1);
	scry_samples_pause_end(p);

	begin(p);
	late = p->sums.late;
	while (r == 0 && rounds < 1000) {
		wake(pid);
		r = scry_samples_pause_holds(p, 1);
		rounds++;
	}
	assert_int_equal(r, 2);
	assert_int_equal(rounds, SCRY_SAMPLES_PAUSE_ROUNDS);
	assert_int_equal(p->sums.late, late + 1);
	assert_int_equal(scry_proc_tracer(pid, pid), 0); /* let go */
	begin(p);					 /* the next look is one as any */
	assert_int_equal(scry_samples_pause_holds(p, 1), 1);
	scry_samples_pause_end(p);
	scry_samples_pause_close(p);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_thread_that_wakes_again_and_again)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
