/* sys/task: whether a task that waits has run since, by the kernel's shared page and by its count.
 */
#include "sys/task.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ROUNDS 50

struct echo { /* a child that waits for a byte, and answers with it */
	pid_t pid;
	int to[2], from[2];
	struct scry_task task;
	struct scry_task_now now;
};

static int start(void **state)
{
	static struct echo e;
	char byte;

	if (pipe(e.to) < 0 || pipe(e.from) < 0)
		return -1;
	e.pid = fork();
	if (e.pid == 0) {
		close(e.to[1]);
		while (read(e.to[0], &byte, 1) == 1)
			if (write(e.from[1], &byte, 1) != 1)
				break;
		_exit(0);
	}
	close(e.to[0]);
	scry_task_open(&e.task, e.pid, e.pid);
	*state = &e;
	return e.pid < 0 ? -1 : 0;
}

static int stop(void **state)
{
	struct echo *e = *state;

	scry_task_close(&e->task);
	close(e->to[1]);
	close(e->from[0]);
	close(e->from[1]);
	waitpid(e->pid, NULL, 0);
	return 0;
}

static void wait_till_it_waits(struct echo *e)
{
	do
		scry_task_read(&e->task, &e->now);
	while (e->now.is_running || e->now.nr != 0 || !scry_task_rests(&e->task, &e->now));
}

static void ask(struct echo *e)
{
	char byte = 1;

	assert_int_equal(write(e->to[1], &byte, 1), 1);
	assert_int_equal(read(e->from[0], &byte, 1), 1);
}

static void test_rests(void **state)
{
	struct echo *e = *state;

	for (int i = 0; i < ROUNDS; i++) {
		wait_till_it_waits(e);
		assert_true(scry_task_rests(&e->task, &e->now));
		ask(e);
		assert_false(scry_task_rests(&e->task, &e->now));
	}
}

/* What the page says is what the count says, in each round. */
static void test_watched(void **state)
{
	struct echo *e = *state;

	assert_false(scry_task_is_still(&e->task, &e->now));
	scry_task_watch(&e->task);
	if (!e->task.turns) {
		print_message("perf_event_open is not allowed here: not tried\n");
		skip();
	}
	for (int i = 0; i < ROUNDS; i++) {
		wait_till_it_waits(e);
		assert_true(scry_task_is_still(&e->task, &e->now));
		ask(e);
		assert_false(scry_task_is_still(&e->task, &e->now));
	}
	/* One that ends has run. */
	wait_till_it_waits(e);
	kill(e->pid, SIGKILL);
	while (waitid(P_PID, (id_t)e->pid, &(siginfo_t){0}, WEXITED | WNOWAIT))
		;
	assert_false(scry_task_is_still(&e->task, &e->now));
	scry_task_unwatch(&e->task);
	assert_false(scry_task_is_still(&e->task, &e->now));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_rests, start, stop),
		cmocka_unit_test_setup_teardown(test_watched, start, stop),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
