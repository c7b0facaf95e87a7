/*
 * Runs the calibration child.
 *
 * Everything that may allocate or fail with a sentence is done before the fork; between fork and
 * exec only system calls run. The binary is executed by descriptor (opened through /proc/PID/exe),
 * so a deleted or replaced file does not matter. The child enters the target's mount namespace
 * first, for its libraries are there. The working directory is "/": nothing is written, so nothing
 * must be cleaned up.
 */
#include "vm/ruby_calib.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "vm/ruby_calib_script.h" /* made by meson from ruby_calib.rb: static const char calib_script[] */

#define LIMIT_MS 5000
#define TEXT_MAX (4u << 20)
#define FACTS_MAX 65536u

struct plan {
	const struct scry_proc *target;
	int exe, mount_ns; /* mount_ns -1: ours */
	int in[2], out[2];
	char library_path[4096]; /* "LD_LIBRARY_PATH=..." or "" */
	pid_t parent;
};

/* The target's LD_LIBRARY_PATH, the only thing of its environment that the child may see. */
static void find_library_path(struct plan *plan)
{
	static const char key[] = "LD_LIBRARY_PATH=";
	char path[64], *text = NULL;
	size_t size = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)plan->target->pid);
	f = fopen(path, "re");
	while (f && getdelim(&text, &size, '\0', f) > 0) {
		if (strncmp(text, key, sizeof(key) - 1) == 0 &&
		    strlen(text) < sizeof(plan->library_path)) {
			strcpy(plan->library_path, text);
			break;
		}
	}
	free(text);
	if (f)
		fclose(f);
}

/* The target's mount namespace when it is not ours; -1 when it is, or when we may not enter it. */
static int open_mount_ns(pid_t pid)
{
	char path[64];
	struct stat ours, theirs;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &theirs) == 0 && stat("/proc/self/ns/mnt", &ours) == 0 &&
	    (ours.st_ino != theirs.st_ino || ours.st_dev != theirs.st_dev))
		return fd;
	close(fd);
	return -1;
}

static void limit(int what, rlim_t value)
{
	struct rlimit r = {value, value};

	setrlimit(what, &r);
}

/* After fork: system calls only; never returns. */
static _Noreturn void run_child(const struct plan *plan)
{
	static char *const argv[] = {"ruby", "--disable=gems,rubyopt", "-W0", "-", NULL};
	char *envp[] = {(char *)(uintptr_t)plan->library_path, NULL};
	const struct scry_proc *t = plan->target;
	sigset_t none;
	int null;

	if (plan->mount_ns >= 0 && setns(plan->mount_ns, CLONE_NEWNS) != 0)
		_exit(121);
	null = open("/dev/null", O_WRONLY);
	if (chdir("/") != 0 || dup2(plan->in[0], 0) < 0 || dup2(plan->out[1], 1) < 0 ||
	    dup2(null >= 0 ? null : plan->out[1], 2) < 0)
		_exit(122);
	if (geteuid() == 0 &&
	    (setgroups(0, NULL) != 0 || setresgid(t->egid, t->egid, t->egid) != 0 ||
	     setresuid(t->euid, t->euid, t->euid) != 0))
		_exit(123);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (getppid() != plan->parent)
		_exit(124);
	limit(RLIMIT_CPU, 5);
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_FSIZE, 0);
	limit(RLIMIT_NOFILE, 64);
	limit(RLIMIT_AS, 8ull << 30);
	for (int s = 1; s < 32; s++)
		signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	/* Keep 0, 1, 2 and the binary as 3, which the exec closes. */
	if (plan->exe != 3 && dup3(plan->exe, 3, O_CLOEXEC) < 0)
		_exit(125);
	syscall(SYS_close_range, 4, ~0u, 0);
	syscall(SYS_execveat, 3, "", argv, plan->library_path[0] ? envp : envp + 1, AT_EMPTY_PATH);
	_exit(126);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Feeds the script and collects the facts until the line "ready". Returns malloc'ed text or NULL.
 */
static char *talk(int in, int out, uint64_t end_ms)
{
	size_t sent = 0, used = 0, room = 1u << 16, total = sizeof(calib_script) - 1;
	char *text = malloc(room);

	while (text) {
		struct pollfd p[2] = {{out, POLLIN, 0}, {sent < total ? in : -1, POLLOUT, 0}};
		int64_t left = (int64_t)(end_ms - now_ms());
		ssize_t n;

		if (left <= 0 || (poll(p, 2, (int)left) < 0 && errno != EINTR))
			break;
		if (p[1].revents) {
			n = write(in, calib_script + sent, total - sent);
			sent = n > 0 ? sent + (size_t)n : errno == EAGAIN ? sent : total;
			if (sent == total)
				close(in);
		}
		if (!p[0].revents)
			continue;
		if (room - used < 4096) {
			char *more = room < TEXT_MAX ? realloc(text, room * 2) : NULL;

			if (!more)
				break;
			text = more;
			room *= 2;
		}
		n = read(out, text + used, room - used - 1);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			break;
		used += n > 0 ? (size_t)n : 0;
		text[used] = '\0';
		if (used >= 7 && strcmp(text + used - 7, "\nready\n") == 0) {
			if (sent < total)
				close(in);
			return text;
		}
	}
	if (sent < total)
		close(in);
	free(text);
	return NULL;
}

/* All tasks asleep, seen twice: after "ready" the main thread has one call to go. */
static bool wait_still(pid_t pid, uint64_t end_ms)
{
	int quiet = 0;

	while (quiet < 2 && now_ms() < end_ms) {
		pid_t *tasks = NULL;
		ssize_t n = scry_proc_tasks(pid, &tasks);
		bool all = n > 0;

		for (ssize_t i = 0; i < n && all; i++)
			all = scry_proc_task_state(pid, tasks[i]) == 'S';
		free(tasks);
		quiet = all ? quiet + 1 : 0;
		if (quiet < 2)
			poll(NULL, 0, 1);
	}
	return quiet >= 2;
}

/* Links the facts of each kind, for they are walked again and again. */
static int link_kinds(struct scry_calib *calib)
{
	size_t last[SCRY_FACT_KINDS];

	for (size_t i = 0; i < calib->fact_count; i++) {
		const char *kind = calib->facts[i].words[0];
		size_t k = 0;

		while (k < calib->kind_count &&
		       strcmp(calib->facts[calib->first[k]].words[0], kind) != 0)
			k++;
		if (k == SCRY_FACT_KINDS)
			return scry_fail(-EPROTO, "the calibration child tells too many kinds");
		if (k == calib->kind_count)
			calib->first[calib->kind_count++] = i;
		else
			calib->facts[last[k]].next = i;
		last[k] = i;
	}
	return 0;
}

int scry_calib_parse(struct scry_calib *calib, char *text)
{
	size_t lines = 1;

	calib->text = text;
	for (const char *p = text; (p = strchr(p, '\n')); p++)
		lines++;
	if (lines > FACTS_MAX)
		lines = FACTS_MAX;
	calib->facts = calloc(lines, sizeof(*calib->facts));
	if (!calib->facts)
		return scry_fail(-ENOMEM, "no memory for %zu facts", lines);
	for (char *line, *rest = text; calib->fact_count < lines && (line = strsep(&rest, "\n"));) {
		struct scry_fact *fact = &calib->facts[calib->fact_count];
		char *word;

		while (fact->count < SCRY_FACT_WORDS && (word = strsep(&line, " "))) {
			if (*word)
				fact->words[fact->count++] = word;
		}
		calib->fact_count += fact->count > 0;
	}
	if (!calib->fact_count ||
	    strcmp(calib->facts[calib->fact_count - 1].words[0], "ready") != 0)
		return scry_fail(-EPROTO, "the calibration child did not finish its facts");
	return link_kinds(calib);
}

/* Why the child said nothing, from its exit status. Reaps it if it ended: *pid is 0 then. */
static int explain(pid_t *pid)
{
	static const char *const why[] = {
		"cannot enter the target's mount namespace",
		"cannot set up its files",
		"cannot become the target's user",
		"its parent is gone",
		"cannot pass the binary on",
		"cannot execute the binary",
	};
	int status = 0;

	if (waitpid(*pid, &status, WNOHANG) != *pid)
		return scry_fail(-ENOTSUP, "the calibration child was not ready after %d s",
				 LIMIT_MS / 1000);
	*pid = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) >= 121 && WEXITSTATUS(status) <= 126)
		return scry_fail(-ENOTSUP, "the calibration child failed: %s",
				 why[WEXITSTATUS(status) - 121]);
	if (WIFEXITED(status))
		return scry_fail(-ENOTSUP, "the calibration child ended with status %d",
				 WEXITSTATUS(status));
	return scry_fail(-ENOTSUP, "the calibration child was ended by signal %d",
			 WTERMSIG(status));
}

static int open_plan(struct plan *plan)
{
	char path[64];
	int err;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)plan->target->pid);
	plan->exe = open(path, O_RDONLY | O_CLOEXEC);
	if (plan->exe < 0) {
		err = -errno;
		return scry_fail(err, "cannot open the program of process %d: %s",
				 (int)plan->target->pid, strerror(-err));
	}
	if (pipe2(plan->in, O_CLOEXEC) != 0)
		plan->in[0] = plan->in[1] = -1;
	if (plan->in[0] < 0 || pipe2(plan->out, O_CLOEXEC) != 0) {
		err = -errno;
		return scry_fail(err, "cannot make a pipe: %s", strerror(-err));
	}
	fcntl(plan->in[1], F_SETFL, O_NONBLOCK);
	fcntl(plan->out[0], F_SETFL, O_NONBLOCK);
	plan->mount_ns = open_mount_ns(plan->target->pid);
	find_library_path(plan);
	return 0;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Writing to a child that died must not kill us: SIGPIPE stays blocked and is swallowed. */
static char *talk_quietly(struct plan *plan, uint64_t end_ms)
{
	struct timespec zero = {0, 0};
	sigset_t pipe_set, old;
	char *text;

	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
	text = talk(plan->in[1], plan->out[0], end_ms);
	plan->in[1] = -1;
	if (!sigismember(&old, SIGPIPE)) {
		while (sigtimedwait(&pipe_set, NULL, &zero) == SIGPIPE)
			;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return text;
}

int scry_calib_start(const struct scry_proc *target, struct scry_calib *ret)
{
	struct plan plan = {.target = target,
			    .exe = -1,
			    .mount_ns = -1,
			    .in = {-1, -1},
			    .out = {-1, -1},
			    .parent = getpid()};
	struct scry_calib calib = {0};
	uint64_t end_ms = now_ms() + LIMIT_MS;
	char *text;
	int err = open_plan(&plan);

	if (err)
		goto out;
	calib.pid = fork();
	if (calib.pid == 0)
		run_child(&plan);
	if (calib.pid < 0) {
		err = -errno;
		scry_fail(err, "cannot fork the calibration child: %s", strerror(-err));
		goto out;
	}
	close_fd(&plan.in[0]);
	close_fd(&plan.out[1]);
	text = talk_quietly(&plan, end_ms);
	if (!text) {
		poll(NULL, 0, 10); /* its exit status comes a moment after its pipe closes */
		err = explain(&calib.pid);
	} else {
		err = scry_calib_parse(&calib, text);
		if (!err && !wait_still(calib.pid, end_ms))
			err = scry_fail(-ENOTSUP, "the calibration child does not sit still");
	}
out:
	close_fd(&plan.exe);
	close_fd(&plan.mount_ns);
	close_fd(&plan.in[0]);
	close_fd(&plan.in[1]);
	close_fd(&plan.out[0]);
	close_fd(&plan.out[1]);
	if (err)
		scry_calib_stop(&calib);
	else
		*ret = calib;
	return err;
}

void scry_calib_stop(struct scry_calib *calib)
{
	if (!calib)
		return;
	if (calib->pid > 0) {
		kill(calib->pid, SIGKILL);
		while (waitpid(calib->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	free(calib->facts);
	free(calib->text);
	memset(calib, 0, sizeof(*calib));
}

const struct scry_fact *scry_fact_next(const struct scry_calib *calib, const struct scry_fact *last,
				       const char *kind)
{
	if (last && strcmp(last->words[0], kind) == 0)
		return last->next ? &calib->facts[last->next] : NULL;
	for (size_t k = 0; k < calib->kind_count; k++) {
		const struct scry_fact *f = &calib->facts[calib->first[k]];

		if (strcmp(f->words[0], kind) != 0)
			continue;
		while (last && f <= last && f->next)
			f = &calib->facts[f->next];
		return last && f <= last ? NULL : f;
	}
	return NULL;
}

uint64_t scry_fact_addr(const struct scry_fact *fact, int i)
{
	return i < fact->count ? strtoull(fact->words[i], NULL, 16) : 0;
}

long scry_fact_number(const struct scry_fact *fact, int i)
{
	return i < fact->count ? strtol(fact->words[i], NULL, 10) : 0;
}

size_t scry_fact_text(const struct scry_fact *fact, int i, char *buf, size_t size)
{
	const char *hex = i < fact->count ? fact->words[i] : "";
	size_t n = 0;

	while (n + 1 < size && hex[2 * n] && hex[2 * n + 1]) {
		char pair[3] = {hex[2 * n], hex[2 * n + 1], '\0'};

		buf[n++] = (char)strtoul(pair, NULL, 16);
	}
	buf[n] = '\0';
	return n;
}
