/*
 * Jails, as root and as an ordinary user, with namespaces and without: a hostile program
 * (test/targets/jailed.c) fails in all that it tries, can do what a Ruby needs, and leaves nobody
 * behind. Who must not be run is refused.
 */
#include "sys/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"

#define USER 23456
#define OTHER 23466
#define LIFE_S 10
#define PROGRAM SCRY_TARGET_DIR "/target_jailed"

#define NEED(condition, what)                                 \
	do {                                                  \
		if (!(condition)) {                           \
			print_message("skipped: " what "\n"); \
			skip();                               \
		}                                             \
	} while (0)
#define NEED_ROOT() NEED(geteuid() == 0, "not root")

/* A copy of the program that other users may execute, and a directory that they may write to. */
static char directory[] = "/tmp/scry_jail.XXXXXX";
static char program[64], victims_place[64];

static int set_up(void **state)
{
	char command[8192];

	if (!mkdtemp(directory))
		return -1;
	snprintf(program, sizeof(program), "%s/ruby", directory);
	snprintf(victims_place, sizeof(victims_place), "%s/open", directory);
	snprintf(command, sizeof(command),
		 "cp %s %s && chmod 755 %s %s && mkdir -m 777 %s && echo kept > %s/file && "
		 "chmod 666 %s/file",
		 PROGRAM, program, directory, program, victims_place, victims_place, victims_place);
	return system(command);
}

static int tear_down(void **state)
{
	char command[256];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	return system(command);
}

/* --- targets -----------------------------------------------------------------------------------
 */

struct target {
	struct scry_proc proc;
	pid_t first; /* our child */
};

/* A target of user `uid` in the namespaces of `flags` (CLONE_NEW*), with /proc of its own if it has
 * pids of its own. */
static struct target start_target(uid_t uid, int flags)
{
	struct target t;
	char line[64] = "";
	int p[2], n = 0;
	pid_t pid;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	t.first = fork();
	if (t.first == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (flags && unshare(flags))
			_exit(125);
		pid = flags & CLONE_NEWPID ? fork() : 0;
		if (pid) {
			waitpid(pid, NULL, 0);
			_exit(0);
		}
		if (flags & CLONE_NEWPID)
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (flags & CLONE_NEWNS &&
		    (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		     (flags & CLONE_NEWPID && mount("proc", "/proc", "proc", 0, NULL))))
			_exit(126);
		if (uid && (setgroups(0, NULL) || setgid(uid) || setuid(uid)))
			_exit(127);
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* which another user takes away */
		dup2(p[1], 1);
		execl(program, "ruby", NULL);
		_exit(124);
	}
	close(p[1]);
	while (!strchr(line, '\n')) {
		ssize_t got = read(p[0], line + n, sizeof(line) - 1 - (size_t)n);

		assert_true(got > 0);
		n += (int)got;
	}
	close(p[0]);
	pid = t.first;
	if (flags & CLONE_NEWPID) {
		char path[64], text[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
		f = fopen(path, "re");
		assert_non_null(f);
		assert_non_null(fgets(text, sizeof(text), f));
		fclose(f);
		pid = atoi(text);
	}
	assert_int_equal(scry_proc_open(&t.proc, pid), 0);
	return t;
}

static void stop_target(struct target *t)
{
	kill(t->proc.pid, SIGKILL);
	kill(t->first, SIGKILL);
	waitpid(t->first, NULL, 0);
	scry_proc_close(&t->proc);
}

/* --- jails -------------------------------------------------------------------------------------
 */

struct run {
	struct scry_jail jail;
	int out; /* what it prints */
};

static int start_jail(const struct scry_proc *target, char *const argv[], struct run *ret)
{
	static char *const envp[] = {NULL};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), p[2];
	const struct scry_jail_plan plan = {
		.target = target,
		.exe = open(program, O_RDONLY | O_CLOEXEC),
		.files = {null, (assert_int_equal(pipe2(p, O_CLOEXEC), 0), p[1]), 2},
		.argv = argv,
		.envp = envp,
		.cpu_s = LIFE_S,
		.life_s = LIFE_S,
	};
	int r = scry_jail_start(&plan, &ret->jail);

	close(null);
	close(plan.exe);
	close(p[1]);
	ret->out = p[0];
	if (r < 0)
		close(p[0]);
	return r;
}

/* Takes what it prints up to the line `last`; false: it never came. */
static bool take_output(const struct run *run, const char *last, char *text, size_t size)
{
	size_t used = 0;

	while (used + 1 < size) {
		struct pollfd p = {run->out, POLLIN, 0};
		ssize_t n = poll(&p, 1, 2 * LIFE_S * 1000) == 1
				    ? read(run->out, text + used, size - 1 - used)
				    : 0;

		if (n <= 0)
			return false;
		used += (size_t)n;
		text[used] = '\0';
		if (strstr(text, last))
			return true;
	}
	return false;
}

/* How many processes live in the pid namespace, or the session, of a jail. */
static int count_inside(const char *pids, pid_t session)
{
	int count = 0;

	for (pid_t pid = 2; pid <= scry_proc_newest(); pid++) {
		char path[64], text[128] = "";
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
		n = readlink(path, text, sizeof(text) - 1);
		if (n > 0 && scry_proc_task_state(pid, pid) != 'Z' &&
		    (*pids ? !strcmp(text, pids) : getsid(pid) == session))
			count++;
	}
	return count;
}

static void pids_of(const struct scry_jail *jail, char *ret, size_t size)
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)jail->stub);
	n = jail->has_pids ? readlink(path, ret, size - 1) : 0;
	ret[n > 0 ? n : 0] = '\0';
}

/* A process outside, of the same user as the target: it must not come to harm. */
static pid_t start_victim(uid_t uid)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	if (uid && (setgroups(0, NULL) || setgid(uid) || setuid(uid)))
		_exit(1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_DUMPABLE, 1);
	for (;;)
		pause();
}

/* The jail of a target of `uid` in `flags`: nothing that it tries goes. 0 or the error of the
 * start. */
static int try_all(uid_t uid, int flags, bool has_pids)
{
	struct target t = start_target(uid, flags);
	pid_t victim = start_victim(uid);
	int shmid = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0666), r;
	char numbers[4][16], text[16384] = "", *bad;
	char *argv[] = {"ruby",	       "try",	   numbers[0], numbers[1],
			victims_place, numbers[2], numbers[3], NULL};
	struct run run;

	snprintf(numbers[0], 16, "%d", victim);
	snprintf(numbers[1], 16, "%d", shmid);
	snprintf(numbers[2], 16, "%d", getpid());
	snprintf(numbers[3], 16, "%d", has_pids);
	r = start_jail(&t.proc, argv, &run);
	if (r == 0) {
		assert_int_equal(run.jail.has_pids, has_pids);
		if (!take_output(&run, "done\n", text, sizeof(text)))
			fail_msg("it ended: %s", text);
		bad = strstr(text, "FAIL");
		if (bad)
			fail_msg("%s", bad);
		scry_jail_end(&run.jail);
		close(run.out);
	}
	assert_int_equal(waitpid(victim, NULL, WNOHANG), 0);
	kill(victim, SIGKILL);
	waitpid(victim, NULL, 0);
	shmctl(shmid, IPC_RMID, NULL);
	stop_target(&t);
	return r;
}

/* --- who runs scry -----------------------------------------------------------------------------
 */

/* As a container's runtime does it: no namespaces for anybody. */
static void forbid_namespaces(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setns, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog f = {sizeof(code) / sizeof(code[0]), code};

	assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &f), 0);
}

static void become(uid_t uid)
{
	assert_int_equal(setgroups(0, NULL), 0);
	assert_int_equal(setgid(uid), 0);
	assert_int_equal(setuid(uid), 0);
	prctl(PR_SET_DUMPABLE, 1);
}

/* In a process of its own, as it changes for good what it may. What it says is shown if it fails.
 */
static void apart(CMUnitTestFunction what)
{
	const struct CMUnitTest only[] = {{"apart", what, NULL, NULL, NULL}};
	FILE *said = tmpfile();
	char line[256];
	int status = 1;
	pid_t pid;

	assert_non_null(said);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		dup2(fileno(said), 1);
		dup2(fileno(said), 2);
		_exit(cmocka_run_group_tests(only, NULL, NULL) ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	rewind(said);
	while (status && fgets(line, sizeof(line), said))
		print_message("# %s", line);
	fclose(said);
	assert_int_equal(status, 0);
}

static bool may_make_users(void)
{
	int status = 1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0);
	waitpid(pid, &status, 0);
	return status == 0;
}

/* --- tests -------------------------------------------------------------------------------------
 */

static void test_root_and_root(void **state)
{
	NEED_ROOT();
	assert_int_equal(try_all(0, 0, true), 0);
}

static void test_root_and_user(void **state)
{
	NEED_ROOT();
	assert_int_equal(try_all(USER, 0, true), 0);
}

static void test_root_and_containers(void **state)
{
	const int container = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET;

	NEED_ROOT();
	assert_int_equal(try_all(0, container, true), 0);
	assert_int_equal(try_all(USER, container, true), 0);
	assert_int_equal(try_all(0, CLONE_NEWPID, true), 0);
	assert_int_equal(try_all(0, CLONE_NEWNS, true), 0);
	assert_int_equal(try_all(0, CLONE_NEWUSER, true), 0);
	assert_int_equal(try_all(0, container | CLONE_NEWUSER, true), 0);
}

static void user(void **state)
{
	become(USER);
	if (try_all(0, 0, may_make_users()) != 0)
		fail_msg("%s", scry_error());
}

static void user_alone(void **state)
{
	become(USER);
	forbid_namespaces();
	if (try_all(0, 0, false) != 0)
		fail_msg("%s", scry_error());
}

static void root_alone(void **state)
{
	struct target t;
	struct run run;
	char *argv[] = {"ruby", "stay", NULL};

	t = start_target(0, CLONE_NEWIPC);
	forbid_namespaces();
	assert_int_equal(try_all(0, 0, false), 0);
	assert_int_equal(try_all(USER, 0, false), 0);
	/* in other namespaces than ours it would get more than it has */
	assert_int_equal(start_jail(&t.proc, argv, &run), -ENOTSUP);
	assert_non_null(strstr(scry_error(), "cannot make a user namespace"));
	stop_target(&t);
}

static void test_user(void **state)
{
	NEED_ROOT();
	apart(user);
}

static void test_no_namespaces(void **state)
{
	NEED_ROOT();
	apart(user_alone);
	apart(root_alone);
}

static struct target others, roots;

static void with_ptrace_only(void **state)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[2] = {{1u << CAP_SYS_PTRACE, 1u << CAP_SYS_PTRACE, 0}};
	char *argv[] = {"ruby", "stay", NULL};
	struct run run;

	prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
	become(USER);
	assert_int_equal(syscall(SYS_capset, &head, caps), 0);
	assert_int_equal(start_jail(&others.proc, argv, &run), -EPERM);
	assert_non_null(strstr(scry_error(), "cannot become the target's user"));
	assert_int_equal(start_jail(&roots.proc, argv, &run), -EPERM);
}

/* Another user's program is not run as oneself. */
static void test_ptrace_only(void **state)
{
	NEED_ROOT();
	others = start_target(OTHER, 0);
	roots = start_target(0, 0);
	apart(with_ptrace_only);
	stop_target(&others);
	stop_target(&roots);
}

/* A setuid program's environment is that of who started it. */
static void test_two_users(void **state)
{
	struct target t;
	char *argv[] = {"ruby", "stay", NULL};
	struct run run;
	pid_t pid;

	NEED_ROOT();
	pid = fork();
	if (pid == 0) {
		dup2(open("/dev/null", O_WRONLY), 1);
		if (setresuid(USER, 0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0)
			execl(program, "ruby", NULL);
		_exit(1);
	}
	t.first = pid;
	do {
		assert_int_equal(scry_proc_open(&t.proc, pid), 0);
		if (t.proc.uid == USER && strstr(t.proc.exe, "/ruby"))
			break;
		scry_proc_close(&t.proc);
	} while (poll(NULL, 0, 1) == 0);
	assert_int_equal(start_jail(&t.proc, argv, &run), -ENOTSUP);
	assert_non_null(strstr(scry_error(), "who did not start it"));
	stop_target(&t);
}

/* It has become another program since its file was opened. */
static void test_another_program(void **state)
{
	struct target t = start_target(0, 0);
	char *argv[] = {"ruby", "stay", NULL}, kept[sizeof(program)];
	struct run run;

	strcpy(kept, program);
	strcpy(program, "/bin/true"); /* as if it were what was opened */
	assert_int_equal(start_jail(&t.proc, argv, &run), -EAGAIN);
	strcpy(program, kept);
	stop_target(&t);
}

/* Many processes are some thousand at most, and gone with the jail. */
static void bomb(uid_t uid)
{
	struct target t = start_target(uid, 0);
	char *argv[] = {"ruby", "bomb", NULL}, pids[128];
	struct run run;
	int status = 0;

	assert_int_equal(start_jail(&t.proc, argv, &run), 0);
	pids_of(&run.jail, pids, sizeof(pids));
	assert_int_equal(scry_jail_wait(&run.jail, UINT64_MAX / 2, &status), 1);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	scry_jail_end(&run.jail);
	assert_int_equal(count_inside(pids, 0), 0);
	close(run.out);
	stop_target(&t);
}

static void test_bomb(void **state)
{
	NEED_ROOT();
	bomb(0);
	bomb(USER);
}

/* Those that a child leaves behind end with it, or with the jail, or with scry. */
static void stay(void **state)
{
	struct target t = start_target(0, 0);
	char *argv[] = {"ruby", "stay", NULL}, pids[128], text[64];
	struct run run;
	int status = 1;
	pid_t child;

	assert_int_equal(start_jail(&t.proc, argv, &run), 0);
	pids_of(&run.jail, pids, sizeof(pids));
	child = run.jail.pid;
	assert_true(take_output(&run, "ready\n", text, sizeof(text)));
	assert_int_equal(scry_jail_wait(&run.jail, UINT64_MAX / 2, &status), 1);
	assert_int_equal(status, 0);
	scry_jail_end(&run.jail);
	while (count_inside(pids,
			    child)) /* where there is no pid namespace they die by themselves */
		poll(NULL, 0, 1);
	close(run.out);
	stop_target(&t);
}

static void stay_alone(void **state)
{
	forbid_namespaces();
	stay(state);
}

static void test_stay(void **state)
{
	NEED_ROOT();
	apart(stay);
	apart(stay_alone);
}

/* scry is killed while they run. */
static void outlive(void **state)
{
	struct target t = start_target(0, 0);
	char *argv[] = {"ruby", "try", "1", "0", victims_place, "1", "0", NULL};
	struct run run = {0};
	struct scry_proc child;
	int p[2];
	pid_t pid;

	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		if (start_jail(&t.proc, argv, &run) == 0 &&
		    write(p[1], &run, sizeof(run)) == sizeof(run))
			pause();
		_exit(1);
	}
	assert_int_equal(read(p[0], &run, sizeof(run)), sizeof(run));
	assert_int_equal(scry_proc_open(&child, run.jail.pid), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	while (scry_proc_is_alive(&child))
		poll(NULL, 0, 1);
	scry_proc_close(&child);
	stop_target(&t);
}

static void outlive_alone(void **state)
{
	forbid_namespaces();
	outlive(state);
}

static void test_outlive(void **state)
{
	NEED_ROOT();
	apart(outlive);
	apart(outlive_alone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_root_and_root),
		cmocka_unit_test(test_root_and_user),
		cmocka_unit_test(test_root_and_containers),
		cmocka_unit_test(test_user),
		cmocka_unit_test(test_no_namespaces),
		cmocka_unit_test(test_ptrace_only),
		cmocka_unit_test(test_two_users),
		cmocka_unit_test(test_another_program),
		cmocka_unit_test(test_bomb),
		cmocka_unit_test(test_stay),
		cmocka_unit_test(test_outlive),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
