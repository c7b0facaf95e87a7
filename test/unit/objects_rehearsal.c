/*
 * The rehearsal is a net of its own: layouts that the validator takes, as it reads nothing by them,
 * and by which the agent would harm or misread a live Ruby, are refused when a child has borne it.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "vm/ruby_cache.h"

#define RUBY "/usr/bin/ruby"
#define SCRY SCRY_TARGET_DIR "/../../scry"
#define HEAD_BYTES 120u /* of the cache's file; see ruby_cache.c */

static char base[] = "/tmp/scry_rehearse.XXXXXX";
static int answers = -1; /* of the target */

/* It makes objects all the time, and says the sum of what it made when it is told to end. */
static pid_t start(void)
{
	int p[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(p[1], 1);
		execl(RUBY, RUBY, "-e",
		      "run = true; trap(:TERM) { run = false }; $stdout.syswrite('x'); all = 0\n"
		      "(a = Array.new(9) { |i| [i] }; all += a.sum { |b| b[0] } - 36; GC.start) "
		      "while run\n"
		      "$stdout.syswrite(all == 0 ? 'right' : 'wrong')",
		      NULL);
		_exit(127);
	}
	close(p[1]);
	assert_int_equal(read(p[0], &c, 1), 1);
	answers = p[0];
	return pid;
}

/* It has computed right, and ends as it should. */
static void end(pid_t pid)
{
	char said[16] = "";
	int status;

	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(read(answers, said, sizeof(said) - 1) > 0);
	assert_string_equal(said, "right");
	close(answers);
}

/* What scry says to `objects -p PID`, with its exit status. */
static int objects(pid_t pid, char *ret, size_t room)
{
	char command[512];
	size_t used = 0;
	FILE *f;

	snprintf(command, sizeof(command), SCRY " objects -p %d -d 0.2s --top 1 2>&1", (int)pid);
	f = popen(command, "re");
	assert_non_null(f);
	used = fread(ret, 1, room - 1, f);
	ret[used] = '\0';
	return pclose(f);
}

/* Learns the layout, which is then in the cache without a verdict. */
static void infer(pid_t pid)
{
	struct scry_ruby *r = NULL;

	(void)!system("rm -rf $XDG_CACHE_HOME/scry");
	if (scry_ruby_open(pid, SCRY_RUBY_BOOTED, &r) != 0)
		fail_msg("%s", scry_error());
	scry_ruby_free(r);
}

/* Adds 8 to one field of the layout in the cache, and to its checksum what makes it hold. */
static void bend(size_t field)
{
	uint8_t bytes[SCRY_CACHE_FILE_MAX];
	char path[512];
	ssize_t size;
	FILE *f = popen("ls $XDG_CACHE_HOME/scry/layout-*", "re");
	int fd;

	assert_non_null(f);
	assert_non_null(fgets(path, sizeof(path), f));
	pclose(f);
	path[strcspn(path, "\n")] = '\0';
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	size = read(fd, bytes, sizeof(bytes));
	assert_true(size > (ssize_t)(HEAD_BYTES + field));
	bytes[HEAD_BYTES + field] = (uint8_t)(bytes[HEAD_BYTES + field] + 8);
	scry_cache_seal(bytes, (size_t)size);
	assert_int_equal(pwrite(fd, bytes, (size_t)size, 0), size);
	close(fd);
}

static void test_bent(void **state)
{
	static const struct {
		const char *name;
		size_t at;
	} fields[] = {
		{"trace_event", offsetof(struct scry_ruby_layout, trace_event)},
		{"trace_ec", offsetof(struct scry_ruby_layout, trace_ec)},
		{"trace_cfp", offsetof(struct scry_ruby_layout, trace_cfp)},
		{"trace_data", offsetof(struct scry_ruby_layout, trace_data)},
	};
	char said[4096];
	pid_t pid;

	(void)state;
	if (access(RUBY, X_OK) != 0) {
		print_message("skipped: no " RUBY "\n");
		skip();
	}
	pid = start();
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		infer(pid);
		bend(fields[i].at);
		if (objects(pid, said, sizeof(said)) == 0 ||
		    !strstr(said, "in a child of the same Ruby"))
			fail_msg("%s: %s", fields[i].name, said);
		/* the verdict is kept: the next one is refused at once */
		assert_int_not_equal(objects(pid, said, sizeof(said)), 0);
		assert_non_null(strstr(said, "in a child of the same Ruby"));
	}
	infer(pid);
	if (objects(pid, said, sizeof(said)) != 0)
		fail_msg("%s", said);
	end(pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bent),
	};
	int failed;

	if (!mkdtemp(base))
		return 1;
	setenv("XDG_CACHE_HOME", base, 1);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	(void)!system("rm -rf $XDG_CACHE_HOME");
	return failed;
}
