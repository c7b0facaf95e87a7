/* A function of the agent is run in threads of the entered process only: numbers of threads come
 * from the memory of a VM, and a fork child's names its parent's. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "hook/inject.h"

static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	assert_true(pid > 0);
	while (scry_proc_task_state(pid, pid) != 'S')
		sched_yield();
	return pid;
}

static void in_nobody_else(void **unused)
{
	pid_t ours = sleeper(), other = sleeper();
	struct scry_undo_report report;
	struct scry_inject inj;
	struct scry_proc proc;
	uint64_t left;

	(void)unused;
	assert_int_equal(scry_proc_open(&proc, ours), 0);
	assert_int_equal(scry_inject_lock(&inj, &proc), 0);
	inj.max_pause_ns = 1000000000;
	if (scry_inject_enter(&inj, 0, NULL) < 0)
		fail_msg("%s", scry_error());
	assert_int_equal(scry_inject_run(&inj, other, "scry_agent_restorer"), -EAGAIN);
	assert_int_equal(scry_proc_tracer(other, other), 0);
	/* it would have been led to an address at which nothing is */
	assert_int_equal(scry_proc_task_state(other, other), 'S');
	assert_int_equal(scry_inject_leave(&inj, &report, &left), 0);
	assert_int_equal(left, 0);
	scry_inject_done(&inj);
	scry_proc_close(&proc);
	kill(ours, SIGKILL);
	kill(other, SIGKILL);
	waitpid(ours, NULL, 0);
	waitpid(other, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(in_nobody_else)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
