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

struct entered {
	struct scry_proc proc;
	struct scry_inject inj;
};

static void enter(struct entered *e, pid_t pid)
{
	assert_int_equal(scry_proc_open(&e->proc, pid), 0);
	assert_int_equal(scry_inject_lock(&e->inj, &e->proc), 0);
	e->inj.max_pause_ns = 1000000000;
	if (scry_inject_enter(&e->inj, 0, NULL) < 0)
		fail_msg("%s", scry_error());
}

static void leave(struct entered *e)
{
	struct scry_undo_report report;
	uint64_t left;

	assert_int_equal(scry_inject_leave(&e->inj, &report, &left), 0);
	assert_int_equal(left, 0);
}

static void end(struct entered *e, pid_t pid)
{
	scry_inject_done(&e->inj);
	scry_proc_close(&e->proc);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void in_nobody_else(void **unused)
{
	pid_t ours = sleeper(), other = sleeper();
	struct entered e;

	(void)unused;
	enter(&e, ours);
	assert_int_equal(scry_inject_run(&e.inj, other, "scry_agent_restorer"), -EAGAIN);
	assert_int_equal(scry_proc_tracer(other, other), 0);
	/* it would have been led to an address at which nothing is */
	assert_int_equal(scry_proc_task_state(other, other), 'S');
	leave(&e);
	end(&e, ours);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
}

/* Led to where the agent was, or where another scry may unmap it, it would die. That a thread is
 * led there otherwise is shown by each watch of objects (ruby/objects_attach.bats). */
static void nowhere_else(void **unused)
{
	const uint64_t another = 1;
	pid_t ours = sleeper();
	struct entered e;
	uint64_t claim, nonce;

	(void)unused;
	enter(&e, ours);
	claim = e.inj.state_page + SCRY_OWNER_OFFSET;
	nonce = e.inj.nonce;
	assert_int_equal(scry_edit_poke(e.inj.mem.fd, claim, &another, sizeof(another)), 0);
	assert_int_equal(scry_inject_run(&e.inj, ours, "scry_agent_restorer"), -EPERM);
	assert_int_equal(scry_edit_poke(e.inj.mem.fd, claim, &nonce, sizeof(nonce)), 0);
	leave(&e);
	assert_int_equal(scry_inject_run(&e.inj, ours, "scry_agent_restorer"), -ENOENT);
	assert_int_equal(kill(ours, SIGCONT), 0);
	while (scry_proc_task_state(ours, ours) == 'R')
		sched_yield();
	assert_int_equal(scry_proc_task_state(ours, ours), 'S');
	end(&e, ours);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(in_nobody_else),
					   cmocka_unit_test(nowhere_else)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
