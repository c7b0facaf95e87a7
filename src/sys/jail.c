/*
 * Starts and ends jails: see jail.h.
 *
 *   scry            first                 second                    stub           child
 *   fork ---------> files, namespaces,
 *                   user, mounts
 *                   clone --------------> (in the target's pids)
 *                                         unshare pids, no rights
 *                                         clone ------------------> fork --------> limits, filter,
 *                                                                   watches        exec
 *
 * Each step makes the next one its own sibling (CLONE_PARENT) and ends, so that the stub is our
 * child. What is in the target's pid namespace can be traced by the target's own root: so nothing
 * goes there that has a right over us, which is what the fresh user namespace is for. Numbers of
 * processes differ between these namespaces: the kernel itself says which process speaks, by the
 * credentials of a message. After the first fork only system calls run.
 */
#include "sys/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"

#define GROUPS_MAX 1024
#define JAILS_MAX 8
#define ANCESTORS_MAX 16
#define TICK_NS 20000000
#define LATER_MS 1000	 /* the child's own limits come first, and say what it was */
#define NUMBERS_MAX 4000 /* processes and threads that a jail may have made, dead ones too */
#define STACK_BYTES (8ull << 20)
#define MEMORY_BYTES (8ull << 30)
#define SHARED_BYTES (64ull << 20) /* with scry: a file to the kernel. Others cannot be opened */

/* Descriptors of the child, until it executes. */
enum { EXE = 3, REPORT, ROOT, TARGET, HIGH = 32 };

enum step { FILES, NAMESPACES, USER, ALONE, FORK, PARENT, FILTER, EXEC, STEPS };
static const char *const failed[STEPS] = {
	"cannot set up its files",
	"cannot enter the target's namespaces and root directory",
	"cannot become the target's user",
	"cannot make a user namespace, without which a program of another container is not run",
	"cannot fork",
	"its parent is gone",
	"cannot filter its system calls",
	"cannot execute the binary",
};
static const char *const mend[STEPS] = {
	[NAMESPACES] = "; fix: run scry as root of the host",
	[USER] = "; fix: run scry as root, or as that user",
	[ALONE] = "; fix: sysctl user.max_user_namespaces=1000; or run scry in that container",
};

enum what { IS_BETWEEN, IS_STUB, IS_CHILD, HAS_FAILED, HAS_ENDED };
struct message {
	int32_t what;
	int32_t value; /* the step; the status as of wait(2) */
	int32_t error;
};

struct cell {
	const struct scry_jail_plan *plan;
	const struct scry_proc *target;
	int root;     /* -1: ours */
	int report;   /* our child's end */
	int joins;    /* CLONE_NEW*: namespaces of the target that are not ours */
	bool is_home; /* it lives in ours, as far as they matter */
	bool takes_user;
	bool has_pids;
	pid_t parent;
	uint64_t end_ms;
	gid_t groups[GROUPS_MAX];
	size_t group_count;
};

static pid_t standing[JAILS_MAX];

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* --- what is looked up before the fork ---------------------------------------------------------
 */

static int find_groups(struct cell *c)
{
	char path[64], *text = NULL, *at, *end;
	size_t size = 0;
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)c->target->pid);
	f = fopen(path, "re");
	while (f && !found && getline(&text, &size, f) > 0) {
		found = strncmp(text, "Groups:", 7) == 0;
		for (at = text + 7; found && c->group_count < GROUPS_MAX; at = end) {
			gid_t gid = (gid_t)strtoul(at, &end, 10);

			if (end == at)
				break;
			c->groups[c->group_count++] = gid;
		}
	}
	free(text);
	if (f)
		fclose(f);
	return found ? 0 : -ESRCH;
}

/* Is /proc/PID/NAME of the target another file than our own `ours`? */
static bool is_other(pid_t pid, const char *name, const char *ours)
{
	struct stat mine, theirs;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return stat(path, &theirs) == 0 && stat(ours, &mine) == 0 &&
	       (mine.st_ino != theirs.st_ino || mine.st_dev != theirs.st_dev);
}

static void find_namespaces(struct cell *c)
{
	static const struct {
		const char *name, *ours;
		int flag;
	} kinds[] = {
		{"ns/user", "/proc/self/ns/user", CLONE_NEWUSER},
		{"ns/pid", "/proc/self/ns/pid", CLONE_NEWPID},
		{"ns/mnt", "/proc/self/ns/mnt", CLONE_NEWNS},
		{"ns/ipc", "/proc/self/ns/ipc", 0},
		{"ns/net", "/proc/self/ns/net", 0},
	};
	pid_t pid = c->target->pid;
	char path[64];

	c->is_home = true;
	for (size_t i = 0; pid && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!is_other(pid, kinds[i].name, kinds[i].ours))
			continue;
		c->joins |= kinds[i].flag;
		c->is_home = false;
	}
	snprintf(path, sizeof(path), "/proc/%d/root", (int)pid);
	if (pid && (c->joins & CLONE_NEWNS || is_other(pid, "root", "/")))
		c->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Whose program it is: one look, so that a target which changes its user, or executes another
 * program, meanwhile does not get one as the other. */
static int find_user(struct cell *c, struct scry_proc *now)
{
	struct scry_proc_stat before, after;
	struct stat program, runs;
	char path[64];
	int r;

	c->takes_user = scry_proc_can(CAP_SETUID) && scry_proc_can(CAP_SETGID);
	if (!now->pid)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)now->pid);
	r = scry_proc_stat(now->pid, &before);
	if (r == 0)
		r = scry_proc_refresh(now);
	if (r == 0)
		r = find_groups(c);
	if (r == 0 && stat(path, &runs) < 0)
		r = -errno;
	if (r == 0)
		r = scry_proc_stat(now->pid, &after);
	if (r < 0)
		return scry_proc_fail_gone(now->pid);
	if (before.image != after.image || fstat(c->plan->exe, &program) < 0 ||
	    program.st_ino != runs.st_ino || program.st_dev != runs.st_dev)
		return scry_fail(-EAGAIN, "process %d runs another program now; fix: try again",
				 (int)now->pid);
	if (now->uid != now->euid || now->gid != now->egid)
		return scry_fail(-ENOTSUP,
				 "process %d runs with the rights of a user who did not start it "
				 "(uid %u, effective uid %u): scry does not run its program to "
				 "learn its layout",
				 (int)now->pid, now->uid, now->euid);
	return 0;
}

/* --- the steps to the child --------------------------------------------------------------------
 */

static void say(enum what what, int value, int error)
{
	const struct message m = {what, value, error};

	/* the filter lets no send() through */
	while (write(REPORT, &m, sizeof(m)) < 0 && errno == EINTR)
		;
}

static _Noreturn void give_up(enum step step)
{
	say(HAS_FAILED, step, errno);
	_exit(1);
}

/* Each to its own number, whatever numbers they have; all others are closed. */
static void set_files(const struct cell *c)
{
	const struct scry_jail_plan *plan = c->plan;
	const int from[] = {plan->files[0],
			    plan->files[1],
			    plan->files[2],
			    plan->exe,
			    c->report,
			    c->root,
			    c->target->pid ? c->target->pidfd : -1};
	enum { COUNT = sizeof(from) / sizeof(from[0]) };
	int high[COUNT];

	for (int i = 0; i < COUNT; i++) {
		high[i] = from[i] < 0 ? -1 : fcntl(from[i], F_DUPFD, HIGH);
		if (from[i] >= 0 && high[i] < 0)
			_exit(1);
	}
	dup3(high[REPORT], REPORT, O_CLOEXEC);
	for (int i = 0; i < COUNT; i++) {
		if (high[i] < 0)
			close(i);
		else if (dup3(high[i], i, i < EXE ? 0 : O_CLOEXEC) < 0)
			give_up(FILES);
	}
	if (syscall(SYS_close_range, COUNT, ~0u, 0) != 0)
		give_up(FILES);
}

/* Memory is short: it goes first. Before the mounts change, for whose /proc is it then? */
static void offer_memory(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "1000", 4) < 0)
		errno = 0;
	if (fd >= 0)
		close(fd);
}

/* All rights that are permitted become effective; with `all` false none is left. */
static int set_rights(bool all)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[2] = {{0}};

	if (all && syscall(SYS_capget, &head, caps) != 0)
		return -1;
	for (int i = 0; i < 2; i++)
		caps[i].effective = all ? caps[i].permitted : 0;
	return (int)syscall(SYS_capset, &head, caps);
}

/* The target's user and groups; rights are kept for the next steps. */
static void become_user(const struct cell *c)
{
	const struct scry_proc *t = c->target;

	if (!c->takes_user) {
		if (t->euid != geteuid()) {
			errno = EPERM;
			give_up(USER);
		}
		return;
	}
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 || setgroups(c->group_count, c->groups) != 0 ||
	    setresgid(t->egid, t->egid, t->egid) != 0 ||
	    setresuid(t->euid, t->euid, t->euid) != 0 || set_rights(true) != 0)
		give_up(USER);
	prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
}

/*
 * Those of the target that are not ours, all at once: the kernel asks for rights over each before
 * it enters any. For an ordinary user who may not enter the pid namespace of a process of their own
 * it goes without.
 */
static void join_target(struct cell *c)
{
	if (c->joins && setns(TARGET, c->joins) != 0) {
		if (c->joins != CLONE_NEWPID || c->takes_user)
			give_up(NAMESPACES);
		c->joins = 0;
		c->is_home = true;
	}
	close(TARGET);
}

/*
 * A tree of mounts of its own, read-only and without devices: the container's cgroup, which says
 * what devices it may open, does not bind our child. Only after a successful unshare: it would be
 * the target's tree.
 */
static void close_mounts(void)
{
	struct mount_attr attr = {.attr_set =
					  MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID,
				  .propagation = MS_SLAVE};

	mount_setattr(-1, "/", AT_RECURSIVE, &attr, sizeof(attr));
}

/* Namespaces of its own, and the target's root directory. The order is the kernel's: no user
 * namespace is made within a chroot, and a new tree of mounts takes the working directory along. */
static void be_alone(struct cell *c)
{
	static const int kinds[] = {CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWNET, CLONE_NEWCGROUP};
	bool has_mounts;

	if (unshare(CLONE_NEWUSER) != 0 && !(c->joins & CLONE_NEWUSER) && !c->is_home)
		give_up(ALONE);
	if (c->root >= 0 && fchdir(ROOT) != 0)
		give_up(NAMESPACES);
	has_mounts = unshare(CLONE_NEWNS) == 0;
	if (has_mounts)
		close_mounts();
	if (c->root >= 0 && chroot(".") != 0)
		give_up(NAMESPACES);
	close(ROOT);
	if (chdir("/") != 0)
		give_up(NAMESPACES);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		unshare(kinds[i]); /* what is not permitted is left to the filter */
}

/* A sibling goes on. */
static void go_on(enum what as)
{
	long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);

	if (pid < 0)
		give_up(FORK);
	if (pid > 0)
		_exit(0);
	say(as, 0, 0);
}

/*
 * No right is left, and none comes back: not by an exec as root (the bounding set, the securebits),
 * not by a file (no_new_privs).
 */
static void drop_rights(void)
{
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	for (int cap = 0; cap < 64; cap++)
		prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
					 SECBIT_NO_SETUID_FIXUP_LOCKED);
	if (set_rights(false) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		give_up(USER);
}

static void limit(int what, rlim_t value)
{
	const struct rlimit r = {value, value};

	setrlimit(what, &r);
}

static _Noreturn void be_child(const struct cell *c, pid_t stub)
{
	const struct scry_jail_plan *plan = c->plan;
	sigset_t none;
	int r;

	say(IS_CHILD, c->has_pids, 0);
	for (int s = 1; s < 32; s++)
		signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	limit(RLIMIT_CPU, plan->cpu_s);
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_FSIZE, SHARED_BYTES);
	limit(RLIMIT_NOFILE, 64);
	limit(RLIMIT_STACK, STACK_BYTES);
	limit(RLIMIT_AS, MEMORY_BYTES);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != stub)
		give_up(PARENT);
	alarm(plan->life_s); /* the kernel ends it, even if we are stopped */
	r = scry_jail_filter(c->has_pids ? 0 : getpid());
	if (r < 0) {
		errno = -r;
		give_up(FILTER);
	}
	syscall(SYS_execveat, EXE, "", plan->argv, plan->envp, AT_EMPTY_PATH);
	give_up(EXEC);
}

/* --- the stub ----------------------------------------------------------------------------------
 */

static void kill_child(const struct cell *c, pid_t child)
{
	kill(c->has_pids ? -1 : -child, SIGKILL);
	kill(child, SIGKILL);
}

/* The number that a process made now gets: so many have been made. The end of that one is not news,
 * and whether the child has ended is looked at after each. */
static pid_t next_number(const sigset_t *news)
{
	const struct timespec zero = {0, 0};
	pid_t pid = vfork();

	if (pid == 0)
		_exit(0);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	while (sigtimedwait(news, NULL, &zero) == SIGCHLD)
		;
	return pid;
}

/* Has scry ended? Its end of the socket is closed then, unless a child of its own has it too. */
static bool is_left(void)
{
	struct pollfd p = {.fd = REPORT};

	return poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR);
}

/* Its status as of wait(2). It stays a zombie, so that its number does not become another's while
 * scry uses it. */
static bool has_ended(pid_t child, int *ret_status)
{
	siginfo_t info = {0};

	if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || !info.si_pid)
		return false;
	*ret_status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
	return true;
}

static _Noreturn void watch(const struct cell *c, pid_t child)
{
	const struct timespec tick = {.tv_nsec = TICK_NS};
	bool is_reported = false;
	pid_t ticks = 0;
	sigset_t set;
	int status;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	for (;; ticks++) {
		if (sigtimedwait(&set, NULL, &tick) == SIGTERM || is_left())
			break;
		if (now_ms() > c->end_ms + LATER_MS ||
		    (c->has_pids && !is_reported && next_number(&set) - ticks > NUMBERS_MAX))
			kill_child(c, child);
		if (!is_reported && has_ended(child, &status)) {
			is_reported = true;
			kill_child(c, child);
			say(HAS_ENDED, status, 0);
		}
	}
	kill_child(c, child);
	_exit(0);
}

/* Signals wait: of pid 1 the kernel would drop most, and those of the terminal are not for it. */
static _Noreturn void be_stub(const struct cell *c)
{
	pid_t child, self = getpid();

	prctl(PR_SET_PDEATHSIG, c->has_pids ? SIGKILL : SIGTERM);
	if (is_left())
		_exit(1);
	setsid();
	child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (child == 0)
		be_child(c, self);
	if (child < 0)
		give_up(FORK);
	syscall(SYS_close_range, 0, REPORT - 1, 0);
	watch(c, child);
}

static _Noreturn void be_first(struct cell *c)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	set_files(c);
	offer_memory();
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* it is a copy of scry: it is not looked into */
	become_user(c);
	join_target(c);
	be_alone(c);
	if (c->joins & CLONE_NEWPID)
		go_on(IS_BETWEEN);
	c->has_pids = unshare(CLONE_NEWPID) == 0;
	drop_rights();
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	go_on(IS_STUB);
	be_stub(c);
}

/* --- scry's side -------------------------------------------------------------------------------
 */

/* 1: *ret, and which process says it, by our numbers; 0: nothing until `end_ms`; -EPIPE: no process
 * is there.
 */
static int hear(int fd, uint64_t end_ms, struct message *ret, pid_t *ret_from)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec iov = {ret, sizeof(*ret)};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof(control)};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	const struct cmsghdr *head;
	struct ucred who;

	for (;;) {
		uint64_t now = now_ms();
		int n = poll(&p, 1, end_ms > now ? (int)(end_ms - now) : 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n;
		break;
	}
	if (recvmsg(fd, &m, MSG_CMSG_CLOEXEC) != sizeof(*ret))
		return -EPIPE;
	head = CMSG_FIRSTHDR(&m);
	if (!head || head->cmsg_type != SCM_CREDENTIALS)
		return -EPIPE;
	memcpy(&who, CMSG_DATA(head), sizeof(who));
	*ret_from = who.pid;
	return 1;
}

static void reap(pid_t pid)
{
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static int fail_step(const struct message *m)
{
	if (m->value < 0 || m->value >= STEPS)
		return scry_fail(-EPROTO, "the child says what it cannot know");
	return scry_fail(m->error == EPERM && m->value == USER ? -EPERM : -ENOTSUP, "%s: %s%s",
			 failed[m->value], strerror(m->error),
			 mend[m->value] ? mend[m->value] : "");
}

/* Until the child is there. */
static int follow(struct scry_jail *jail, pid_t first, uint64_t end_ms)
{
	pid_t between = 0, from;
	struct message m = {0};
	int r;

	while ((r = hear(jail->report, end_ms, &m, &from)) > 0) {
		if (m.what == IS_BETWEEN)
			between = from;
		else if (m.what == IS_STUB)
			jail->stub = from;
		else if (m.what == HAS_FAILED)
			r = fail_step(&m);
		if (m.what == IS_CHILD || r < 0)
			break;
	}
	if (r > 0) {
		jail->pid = from;
		jail->has_pids = m.value;
	} else if (r == 0 || r == -EPIPE) {
		r = scry_fail(-ENOTSUP, "the child could not be started");
	}
	if (r < 0) /* each of them may be what hangs, or have gone */
		kill(first, SIGKILL);
	if (r < 0 && between)
		kill(between, SIGKILL);
	reap(first);
	reap(between);
	return r < 0 ? r : 0;
}

static int open_report(struct scry_jail *jail, struct cell *c)
{
	const int on = 1;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return scry_fail(-errno, "cannot make a socket: %s", strerror(errno));
	jail->report = fcntl(fds[0], F_DUPFD_CLOEXEC, 3); /* 0 is none */
	c->report = fds[1];
	close(fds[0]);
	if (setsockopt(jail->report, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0)
		return 0;
	return scry_fail(-errno, "cannot ask for credentials on a socket: %s", strerror(errno));
}

static int start(struct cell *c, struct scry_jail *jail)
{
	pid_t first;
	int r = open_report(jail, c);

	if (r < 0)
		return r;
	first = fork();
	if (first == 0)
		be_first(c);
	if (first < 0)
		return scry_fail(-errno, "cannot fork: %s", strerror(errno));
	close(c->report);
	c->report = -1;
	return follow(jail, first, c->end_ms);
}

static void note(pid_t old, pid_t new)
{
	for (size_t i = 0; i < JAILS_MAX; i++)
		if (standing[i] == old) {
			standing[i] = new;
			return;
		}
}

int scry_jail_start(const struct scry_jail_plan *plan, struct scry_jail *ret)
{
	struct scry_proc now = *plan->target;
	struct scry_jail jail = {0};
	struct cell *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return scry_no_memory("starting a child");
	*c = (struct cell){.plan = plan,
			   .target = &now,
			   .root = -1,
			   .report = -1,
			   .end_ms = now_ms() + 1000ull * plan->life_s};
	r = find_user(c, &now);
	if (r == 0) {
		find_namespaces(c);
		r = now.pid && !scry_proc_is_alive(&now) ? scry_proc_fail_gone(now.pid)
							 : start(c, &jail);
	}
	if (c->root >= 0)
		close(c->root);
	if (c->report >= 0)
		close(c->report);
	free(c);
	if (r == 0) {
		note(0, jail.pid);
		*ret = jail;
	} else {
		scry_jail_end(&jail);
	}
	return r;
}

int scry_jail_wait(struct scry_jail *jail, uint64_t end_ms, int *ret_status)
{
	struct message m = {0};
	pid_t from;
	int r;

	while ((r = hear(jail->report, end_ms, &m, &from)) > 0)
		if (m.what == HAS_FAILED)
			return fail_step(&m);
		else if (m.what == HAS_ENDED)
			break;
	if (r == -EPIPE)
		return scry_fail(-ECHILD, "it was killed");
	if (r > 0)
		*ret_status = m.value;
	return r;
}

void scry_jail_end(struct scry_jail *jail)
{
	if (jail->pid)
		note(jail->pid, 0);
	if (jail->pid && !jail->has_pids)
		kill(-jail->pid, SIGKILL); /* none of them can leave its session */
	if (jail->stub)
		kill(jail->stub, SIGKILL);
	reap(jail->stub);
	if (jail->report > 0)
		close(jail->report);
	*jail = (struct scry_jail){0};
}

bool scry_jail_has(pid_t pid)
{
	struct scry_proc_stat stat;

	for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
		for (size_t k = 0; k < JAILS_MAX; k++)
			if (standing[k] == pid)
				return true;
		if (scry_proc_stat(pid, &stat) < 0)
			return false;
		pid = stat.ppid;
	}
	return false;
}
