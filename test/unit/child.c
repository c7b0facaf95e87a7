/* See child.h. */
#include "child.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

bool child_start(struct child *c, const char *name, const char *arg)
{
	char path[4096];
	int in[2], out[2];

	snprintf(path, sizeof(path), "%s%s", *name == '/' ? "" : SCRY_TARGET_DIR "/", name);
	if (access(path, X_OK) != 0) {
		print_message("skipped: there is no %s\n", path);
		return false;
	}
	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	c->pid = fork();
	assert_true(c->pid >= 0);
	if (c->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		for (int fd = 3; fd < 64; fd++)
			close(fd);
		execl(path, path, arg, NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	c->to = fdopen(in[1], "w");
	c->from = fdopen(out[0], "r");
	assert_true(c->to && c->from);
	assert_non_null(strstr(child_next(c), "pid "));
	return true;
}

const char *child_next(struct child *c)
{
	assert_non_null(fgets(c->line, sizeof(c->line), c->from));
	c->line[strcspn(c->line, "\n")] = '\0';
	return c->line;
}

const char *child_ask(struct child *c, const char *ask, const char *expect)
{
	fprintf(c->to, "%s\n", ask);
	fflush(c->to);
	child_next(c);
	if (strncmp(c->line, expect, strlen(expect)) != 0)
		fail_msg("'%s' was answered by '%s'", ask, c->line);
	return c->line + strlen(expect);
}

void child_end(struct child *c)
{
	int status = -1;

	fclose(c->to);
	fclose(c->from);
	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
