/* sys/execs on a child of this program that execs when it is told to. */
#include "sys/execs.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_exec(void **state)
{
	struct scry_execs e;
	struct pollfd p = {.events = POLLIN};
	int go[2], r;
	pid_t pid;
	char c;

	(void)state;
	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (pid == 0) {
		close(go[1]);
		if (read(go[0], &c, 1) == 0) {
			prctl(PR_SET_NAME, "another name"); /* is no other program */
			execl("/bin/sh", "sh", "-c", "exec sh -c 'exec sleep 1000'", NULL);
		}
		_exit(1);
	}
	close(go[0]);
	r = scry_execs_open(&e, pid);
	if (r == -EACCES || r == -EPERM || r == -ENOSYS) {
		print_message("skipped: perf events are not permitted\n");
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		skip();
	}
	assert_int_equal(r, 0);
	p.fd = e.fd;
	assert_int_equal(poll(&p, 1, 0), 0);
	close(go[1]);
	while (e.count < 3) {
		assert_int_equal(poll(&p, 1, -1), 1);
		assert_int_equal(p.revents, POLLIN);
		scry_execs_take(&e);
	}
	assert_int_equal(poll(&p, 1, 0), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	scry_execs_close(&e);
	scry_execs_close(&e);
	assert_int_equal(e.count, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exec),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
