/*
 * The calibration child seen from outside while it sits still: whose it is, what it may do, what it
 * has been given. The kernel's own words (/proc) are the truth; nothing races, because the child
 * stands between scry_calib_start() and scry_calib_stop().
 */
#include "vm/ruby_calib.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "vm/ruby.h"

#define USER 23456
#define GROUP 23457

#define NEED(condition, what)                                 \
	do {                                                  \
		if (!(condition)) {                           \
			print_message("skipped: " what "\n"); \
			skip();                               \
		}                                             \
	} while (0)
#define NEED_RUBY() NEED(access("/usr/bin/ruby", X_OK) == 0, "no /usr/bin/ruby")

struct target {
	pid_t pid;
	struct scry_proc proc;
};

/* A ruby that runs (it said so), as `uid` when that is not 0, with much that the child must not
 * get. */
static struct target start(const char *program, uid_t uid)
{
	static char *const argv[] = {"ruby", "-e", "$stdout.syswrite('x'); sleep", NULL};
	static char *const envp[] = {"LD_LIBRARY_PATH=/nonexistent/scry",
				     "SECRET=x",
				     "RUBYLIB=/nonexistent",
				     "RUBYOPT=-W1",
				     "HOME=/",
				     NULL};
	const gid_t groups[] = {GROUP + 1, GROUP + 2};
	struct target t;
	int p[2];
	char c;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	t.pid = fork();
	if (t.pid == 0) {
		if (uid && (setgroups(2, groups) || setgid(GROUP) || setuid(uid)))
			_exit(126);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(p[1], 1);
		execve(program, argv, envp);
		_exit(127);
	}
	close(p[1]);
	assert_int_equal(read(p[0], &c, 1), 1);
	close(p[0]);
	assert_int_equal(scry_proc_open(&t.proc, t.pid), 0);
	return t;
}

static void stop(struct target *t)
{
	scry_proc_close(&t->proc);
	kill(t->pid, SIGKILL);
	waitpid(t->pid, NULL, 0);
}

static size_t slurp(pid_t pid, const char *name, char *buf, size_t size)
{
	char path[64];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	f = fopen(path, "re");
	assert_non_null(f);
	n = fread(buf, 1, size - 1, f);
	buf[n] = '\0';
	fclose(f);
	return n;
}

/* The line of /proc/PID/NAME that begins with `key`, blanks squeezed: "Uid: 0 0 0 0". */
static void expect_line(pid_t pid, const char *name, const char *key, const char *want)
{
	char text[8192], got[256] = "", *line, *rest = text;
	size_t n = 0;

	slurp(pid, name, text, sizeof(text));
	while ((line = strsep(&rest, "\n")) && strncmp(line, key, strlen(key)) != 0)
		;
	assert_non_null(line);
	for (char *p = line; *p && n + 1 < sizeof(got); p++) {
		char c = *p == '\t' ? ' ' : *p;

		if (c != ' ' || (n && got[n - 1] != ' '))
			got[n++] = c;
	}
	while (n && got[n - 1] == ' ')
		n--;
	got[n] = '\0';
	assert_string_equal(got, want);
}

static void link_of(pid_t pid, const char *name, char *buf, size_t size)
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	n = readlink(path, buf, size - 1);
	buf[n > 0 ? n : 0] = '\0';
}

static void fd_link(pid_t pid, int fd, char *buf, size_t size)
{
	char name[16];

	snprintf(name, sizeof(name), "fd/%d", fd);
	link_of(pid, name, buf, size);
}

static void expect_no_rights(pid_t pid, bool root)
{
	expect_line(pid, "status", "CapInh:", "CapInh: 0000000000000000");
	expect_line(pid, "status", "CapPrm:", "CapPrm: 0000000000000000");
	expect_line(pid, "status", "CapEff:", "CapEff: 0000000000000000");
	expect_line(pid, "status", "CapAmb:", "CapAmb: 0000000000000000");
	if (root)
		expect_line(pid, "status", "CapBnd:", "CapBnd: 0000000000000000");
	expect_line(pid, "status", "NoNewPrivs:", "NoNewPrivs: 1");
	expect_line(pid, "status", "Seccomp:", "Seccomp: 2");
}

/* Namespaces of its own, where they may be made; the stub is pid 1 of those of pids, the child 2.
 */
static void expect_alone(const struct scry_calib *calib)
{
	static const char *const names[] = {"ns/user", "ns/pid", "ns/ipc",   "ns/uts",
					    "ns/net",  "ns/mnt", "ns/cgroup"};
	char ours[256], theirs[256];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		link_of(getpid(), names[i], ours, sizeof(ours));
		link_of(calib->pid, names[i], theirs, sizeof(theirs));
		if (calib->jail.has_pids)
			assert_string_not_equal(ours, theirs);
	}
	if (calib->jail.has_pids) {
		assert_int_equal(scry_proc_tid_inside(calib->jail.stub, calib->jail.stub), 1);
		assert_int_equal(scry_proc_tid_inside(calib->pid, calib->pid), 2);
	} else {
		print_message("skipped: no right to make namespaces\n");
	}
}

static void expect_limits(pid_t pid)
{
	expect_line(pid, "limits", "Max cpu time", "Max cpu time 5 5 seconds");
	expect_line(pid, "limits", "Max file size", "Max file size 67108864 67108864 bytes");
	expect_line(pid, "limits", "Max core file size", "Max core file size 0 0 bytes");
	expect_line(pid, "limits", "Max open files", "Max open files 64 64 files");
	expect_line(pid, "limits", "Max stack size", "Max stack size 8388608 8388608 bytes");
	expect_line(pid, "limits", "Max address space",
		    "Max address space 8589934592 8589934592 bytes");
}

/* 0, 1, 2 are pipes of its own; what is above is what Ruby itself makes, nameless. */
static void expect_files(pid_t pid, const char *leak_file, const char *leak_pipe)
{
	int seen = 0;

	for (int fd = 0; fd < 1024; fd++) {
		char to[256];

		fd_link(pid, fd, to, sizeof(to));
		if (!to[0])
			continue;
		seen++;
		assert_string_not_equal(to, leak_file);
		assert_string_not_equal(to, leak_pipe);
		if (fd <= 2)
			assert_memory_equal(to, "pipe:", 5);
		else
			assert_true(strncmp(to, "pipe:", 5) == 0 ||
				    strncmp(to, "anon_inode:", 11) == 0);
	}
	assert_true(seen >= 3);
}

/* Everything about one child of a target that runs as `uid`; then it is left alone until it ends.
 */
static void confined(uid_t uid)
{
	char text[8192], leak_file[256], leak_pipe[256], want[64];
	int file = memfd_create("leak", 0), pipes[2], status;
	struct target t = start("/usr/bin/ruby", uid);
	struct scry_calib calib;
	bool root = geteuid() == 0;
	uid_t u = uid ? uid : geteuid();
	pid_t child;
	size_t n;

	assert_int_equal(pipe(pipes), 0); /* no close-on-exec: would be inherited */
	fd_link(getpid(), file, leak_file, sizeof(leak_file));
	fd_link(getpid(), pipes[0], leak_pipe, sizeof(leak_pipe));
	if (scry_calib_start(&t.proc, &calib) != 0)
		fail_msg("%s", scry_error());

	snprintf(want, sizeof(want), "Uid: %u %u %u %u", u, u, u, u);
	expect_line(calib.pid, "status", "Uid:", want);
	if (uid) {
		snprintf(want, sizeof(want), "Gid: %u %u %u %u", GROUP, GROUP, GROUP, GROUP);
		expect_line(calib.pid, "status", "Gid:", want);
		snprintf(want, sizeof(want), "Groups: %u %u", GROUP + 1, GROUP + 2);
		expect_line(calib.pid, "status", "Groups:", want);
	}
	expect_no_rights(calib.pid, root || calib.jail.has_pids);
	expect_alone(&calib);
	expect_limits(calib.pid);
	expect_files(calib.pid, leak_file, leak_pipe);
	n = slurp(calib.pid, "environ", text, sizeof(text));
	assert_int_equal(n, sizeof("LD_LIBRARY_PATH=/nonexistent/scry"));
	assert_string_equal(text, "LD_LIBRARY_PATH=/nonexistent/scry");
	link_of(calib.pid, "cwd", text, sizeof(text));
	assert_string_equal(text, "/");
	if (calib.jail.has_pids) {
		slurp(calib.pid, "net/dev", text, sizeof(text)); /* a loopback, and that is down */
		assert_non_null(strstr(text, "lo:"));
		assert_null(strstr(strstr(text, "lo:") + 3, ":"));
	}
	/* One that is under a filter is refused, but this filter is ours. */
	assert_true(scry_jail_has(calib.pid));
	assert_false(scry_jail_has(t.pid));

	/* The kernel ends it even if nobody here does. Until it is let go its number is its own. */
	assert_int_equal(scry_jail_wait(&calib.jail, UINT64_MAX / 2, &status), 1);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
	assert_int_equal(scry_proc_task_state(calib.pid, calib.pid), 'Z');
	child = calib.pid;
	scry_calib_stop(&calib);
	assert_int_equal(kill(child, 0), -1);
	assert_false(scry_jail_has(child));
	close(file);
	close(pipes[0]);
	close(pipes[1]);
	stop(&t);
}

static void test_confined_as_target_user(void **state)
{
	NEED_RUBY();
	NEED(geteuid() == 0, "not root: cannot start a target of another user");
	confined(USER);
}

static void test_confined_as_own_user(void **state)
{
	NEED_RUBY();
	confined(0);
}

/* Dies with its parent, and so does the stub: killed, it cannot clean up. */
static void test_dies_with_parent(void **state)
{
	int p[2];
	pid_t pid;
	struct scry_calib calib = {0};
	struct scry_proc child, stub;
	struct target t;

	NEED_RUBY();
	t = start("/usr/bin/ruby", 0);
	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		if (scry_calib_start(&t.proc, &calib) == 0 &&
		    write(p[1], &calib, sizeof(calib)) == sizeof(calib))
			pause();
		_exit(1);
	}
	assert_int_equal(read(p[0], &calib, sizeof(calib)), sizeof(calib));
	assert_int_equal(scry_proc_open(&child, calib.pid), 0);
	assert_int_equal(scry_proc_open(&stub, calib.jail.stub), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	while (scry_proc_is_alive(&child) || scry_proc_is_alive(&stub))
		poll(NULL, 0, 1);
	scry_proc_close(&child);
	scry_proc_close(&stub);
	close(p[0]);
	close(p[1]);
	stop(&t);
}

/* What is not a Ruby: its own complaint is in the refusal. */
static void test_not_a_ruby(void **state)
{
	struct scry_calib calib;
	struct scry_proc proc;
	pid_t pid = fork();
	char text[16] = "";

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/bin/sleep", "sleep", "100", NULL);
		_exit(127);
	}
	while (strncmp(text, "sleep", 5) != 0)
		slurp(pid, "comm", text, sizeof(text));
	assert_int_equal(scry_proc_open(&proc, pid), 0);
	assert_int_equal(scry_calib_start(&proc, &calib), -ENOTSUP);
	assert_non_null(strstr(scry_error(), "it ended with status 1: ruby: unrecognized option"));
	scry_proc_close(&proc);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void run(const char *fmt, const char *a, const char *b)
{
	char command[1024];

	snprintf(command, sizeof(command), fmt, a, b);
	assert_int_equal(system(command), 0);
}

/* The file is gone, or another one has its name: the child still runs the target's binary. */
static void test_deleted_binary(void **state)
{
	char dir[] = "/tmp/scry_calib.XXXXXX", path[64];
	struct scry_ruby *ruby = NULL;
	struct target t;

	NEED_RUBY();
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/ruby", dir);
	run("cp \"$(readlink -f /usr/bin/ruby)\" %s%s", path, "");
	t = start(path, 0);
	unlink(path);
	if (scry_ruby_open(t.pid, SCRY_RUBY_BOOTED, &ruby) != 0)
		fail_msg("%s", scry_error());
	scry_ruby_free(ruby);
	run("cp /bin/false %s%s", path, "");
	if (scry_ruby_open(t.pid, SCRY_RUBY_BOOTED, &ruby) != 0)
		fail_msg("%s", scry_error());
	scry_ruby_free(ruby);
	stop(&t);
	run("rm -rf %s%s", dir, "");
}

/* A script of the caller's: line by line, still after each answer, confined as the other; and its
 * end is told with its own complaint. */
static void test_talk(void **state)
{
	static const char script[] = "while (l = gets)\n"
				     "  raise 'enough' if l == \"end\\n\"\n"
				     "  puts \"sum #{l.split.sum(&:to_i)}\", 'ready'\n"
				     "  $stdout.flush\n"
				     "end";
	struct scry_calib_talk talk;
	struct scry_calib answer;
	struct target t;
	pid_t child;

	NEED_RUBY();
	t = start("/usr/bin/ruby", 0);
	assert_int_equal(scry_calib_open(&t.proc, script, &talk), 0);
	child = talk.pid;
	for (int i = 0; i < 3; i++) {
		char line[32];

		snprintf(line, sizeof(line), "%d 20 300\n", i);
		assert_int_equal(scry_calib_ask(&talk, line, &answer), 0);
		assert_int_equal(scry_fact_number(scry_fact_next(&answer, NULL, "sum"), 1),
				 320 + i);
		scry_calib_stop(&answer);
		assert_int_equal(kill(child, 0), 0); /* an answer's end is not the child's */
		expect_line(child, "status", "NoNewPrivs:", "NoNewPrivs: 1");
	}
	assert_true(scry_calib_ask(&talk, "end\n", &answer) < 0);
	assert_non_null(strstr(scry_error(), "enough"));
	scry_error_clear();
	scry_calib_close(&talk);
	assert_int_equal(kill(child, 0), -1);
	stop(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_confined_as_target_user),
		cmocka_unit_test(test_confined_as_own_user),
		cmocka_unit_test(test_dies_with_parent),
		cmocka_unit_test(test_not_a_ruby),
		cmocka_unit_test(test_deleted_binary),
		cmocka_unit_test(test_talk),
	};
	/* The cache must not answer for the child. */
	setenv("SCRY_NO_CACHE", "1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
