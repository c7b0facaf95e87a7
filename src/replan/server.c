/* See server.h. */
#include "replan/server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "replan/allocators.h"
#include "replan/check.h"
#include "replan/rss.h"
#include "sys/inherited.h"
#include "sys/proc.h"

#define LOOK_NS 10000000
#define AGAIN_NS 50000000u   /* between two tries of `ready` */
#define TRY_NS 5000000000u   /* one of them */
#define STOP_NS 10000000000u /* it ends by itself */
#define KILL_NS 30000000000u /* what is killed gives its memory back first */
#define PROCESSES_MAX 4096u
#define DEPTH_MAX 256
#define LEFT_LOOKS 100 /* 1 ms each */
#define LIBC "libc.so.6"

struct outcome { /* by the keeper, in memory that both have */
	int err;
	char sentence[768];
	struct scry_malloc_server_run run;
};

struct keeper {
	const struct scry_malloc_server *server;
	const struct scry_malloc_allocator *allocator;
	struct outcome *outcome;
	sigset_t waited, before;
	pid_t started, command; /* command: ready, load or stop; 0: none runs */
	int started_status, command_status;
	bool has_started_ended, is_stopped;
	uint64_t reaped_ns;
	pid_t pids[PROCESSES_MAX]; /* of the server */
	uint32_t count;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void set_error(struct keeper *k, int err)
{
	k->outcome->err = err;
	snprintf(k->outcome->sentence, sizeof(k->outcome->sentence), "%s", scry_error());
}

/* --- its processes --------------------------------------------------------------------------- */

/*
 * A child of its own the keeper sends signals by its id: no other process can reap it, so that the
 * id is the child's until then. The id of a process below may be another's by then: a pidfd pins
 * it.
 */

/* The command that runs is not the server's, nor is what it leaves to the keeper meanwhile. */
static bool is_of_command(const struct keeper *k, pid_t pid)
{
	return k->command && (pid == k->command || getsid(pid) == k->command);
}

/* Adds the children of one thread. */
static void add_children(struct keeper *k, const char *path)
{
	FILE *f = fopen(path, "re");
	int pid;

	while (f && k->count < PROCESSES_MAX && fscanf(f, "%d", &pid) == 1)
		if (!is_of_command(k, pid))
			k->pids[k->count++] = pid;
	if (f)
		fclose(f);
}

static void add_children_of(struct keeper *k, pid_t pid)
{
	char path[96];
	DIR *tasks;
	struct dirent *task;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	while (tasks && (task = readdir(tasks))) {
		if (task->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/children", pid, task->d_name);
		add_children(k, path);
	}
	if (tasks)
		closedir(tasks);
}

static void find_own_children(struct keeper *k)
{
	k->count = 0;
	add_children_of(k, getpid());
}

static void find_processes(struct keeper *k)
{
	find_own_children(k);
	for (uint32_t i = 0; i < k->count; i++)
		add_children_of(k, k->pids[i]);
}

static bool is_below_keeper(pid_t pid)
{
	struct scry_proc_stat stat;

	for (int depth = 0; depth < DEPTH_MAX; depth++, pid = stat.ppid)
		if (pid == getpid())
			return true;
		else if (pid <= 1 || scry_proc_stat(pid, &stat))
			return false;
	return false;
}

static void send_term(const struct keeper *k)
{
	for (uint32_t i = 0; i < k->count; i++) {
		int fd = (int)syscall(SYS_pidfd_open, k->pids[i], 0);

		if (fd < 0)
			continue;
		if (is_below_keeper(k->pids[i])) /* that one, or what is pinned has ended */
			syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0);
		close(fd);
	}
}

/* Its own, exactly, and that of the children for which it has waited, in ticks. */
static uint64_t cpu_of(pid_t pid)
{
	unsigned long long user = 0, system = 0;
	struct timespec t = {0};
	char path[64], line[1024];
	const char *at;
	clockid_t clock;
	FILE *f;

	if (!clock_getcpuclockid(pid, &clock))
		clock_gettime(clock, &t);
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	at = f && fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
	if (at)
		sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %llu %llu",
		       &user, &system);
	if (f)
		fclose(f);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec +
	       (user + system) * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
}

static uint64_t cpu_now(struct keeper *k)
{
	uint64_t sum = k->reaped_ns;

	find_processes(k);
	for (uint32_t i = 0; i < k->count; i++)
		sum += cpu_of(k->pids[i]);
	return sum;
}

static void look_at_memory(struct keeper *k)
{
	uint64_t sum = 0;

	find_processes(k);
	for (uint32_t i = 0; i < k->count; i++) {
		struct scry_malloc_rss rss;

		scry_malloc_rss_open(&rss, k->pids[i]);
		sum += scry_malloc_rss_now(&rss);
		scry_malloc_rss_close(&rss);
	}
	if (sum > k->outcome->run.rss_peak)
		k->outcome->run.rss_peak = sum;
}

/* Of the process that works most. */
static void look_who_serves(struct keeper *k)
{
	struct scry_malloc_server_run *run = &k->outcome->run;
	uint64_t most = 0;
	pid_t pid = 0;

	find_processes(k);
	for (uint32_t i = 0; i < k->count; i++) {
		uint64_t cpu = cpu_of(k->pids[i]);

		if (cpu >= most) {
			most = cpu;
			pid = k->pids[i];
		}
	}
	run->is_seen = pid && scry_malloc_serves(pid, &run->serves);
}

/* The command has ended and is not reaped yet: until then the id of its group is its own. What it
 * left in that goes, too. */
static void end_command(struct keeper *k)
{
	const struct timespec t = {.tv_nsec = 1000000};
	int status;
	pid_t pid = 0;

	kill(-k->command, SIGKILL);
	for (int i = 0; i < LEFT_LOOKS && pid >= 0; i++) {
		if (i)
			nanosleep(&t, NULL);
		while ((pid = waitpid(-k->command, &status, WNOHANG)) > 0)
			if (pid == k->command)
				k->command_status = status;
	}
	k->command = 0;
}

/* False: there are no children any more, and so none below. (/proc may leave some out.) */
static bool reap(struct keeper *k)
{
	siginfo_t info = {0};
	struct rusage usage;
	int status;

	while (!waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT)) {
		const pid_t pid = info.si_pid;
		const bool is_server = pid && !is_of_command(k, pid);

		if (!pid)
			return true;
		if (pid == k->command) {
			end_command(k);
			continue;
		}
		if (wait4(pid, &status, 0, &usage) != pid)
			return true;
		if (is_server)
			k->reaped_ns +=
				(uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) *
					1000000000u +
				(uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000u;
		if (pid == k->started) {
			k->started_status = status;
			k->has_started_ended = true;
		}
	}
	return false;
}

/* Waits a little, or for a signal. False: the keeper was asked to stop. */
static bool wait_a_little(struct keeper *k, uint64_t ns)
{
	const struct timespec t = {.tv_nsec = (long)ns};
	int signal_ = sigtimedwait(&k->waited, NULL, &t);

	if (signal_ > 0 && signal_ != SIGCHLD)
		k->is_stopped = true;
	reap(k);
	return !k->is_stopped;
}

/* --- commands -------------------------------------------------------------------------------- */

static pid_t run_shell(struct keeper *k, const char *text, bool is_server)
{
	char *const command[] = {"sh", "-c", (char *)text, NULL};
	pid_t keeper = getpid(), pid = fork();
	int null;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != keeper)
		_exit(126);
	setsid();
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null, STDIN_FILENO);
	dup2(k->server->is_loud ? STDERR_FILENO : null, STDOUT_FILENO);
	if (!k->server->is_loud)
		dup2(null, STDERR_FILENO);
	scry_malloc_allocators_unset();
	if (is_server && k->allocator->path)
		setenv("LD_PRELOAD", k->allocator->path, 1);
	for (unsigned int i = 0; is_server && i < k->allocator->env_count; i++)
		putenv((char *)k->allocator->env[i]);
	sigprocmask(SIG_SETMASK, &k->before, NULL);
	scry_inherited_give_back();
	execv("/bin/sh", command);
	_exit(127);
}

/* 0: it ended with 0; 1: otherwise, or not in time; -EINTR. */
static int run_command(struct keeper *k, const char *text, uint64_t limit_ns)
{
	uint64_t begun = now_ns();
	pid_t pid = run_shell(k, text, false);

	if (pid < 0)
		return scry_fail(-errno, "cannot start '%s': %s", text, strerror(errno));
	k->command = pid;
	while (k->command) {
		if (!wait_a_little(k, LOOK_NS))
			return -EINTR;
		look_at_memory(k);
		if (k->command && limit_ns && now_ns() - begun > limit_ns) {
			kill(-pid, SIGKILL);
			kill(pid, SIGKILL);
			limit_ns = 0;
		}
	}
	return k->command_status != 0;
}

static uint64_t try_ns(const struct scry_malloc_server *s)
{
	return s->ready_ns < TRY_NS ? s->ready_ns : TRY_NS;
}

static int get_ready(struct keeper *k)
{
	const struct scry_malloc_server *s = k->server;
	uint64_t begun = now_ns();
	int r;

	while ((r = run_command(k, s->ready, try_ns(s))) == 1) {
		if (k->has_started_ended && (k->started_status || !k->count))
			return scry_fail(-EINVAL,
					 "'%s' ended with status %d before it was ready; fix: "
					 "-v shows what it prints",
					 s->start,
					 WIFEXITED(k->started_status)
						 ? WEXITSTATUS(k->started_status)
						 : 128 + WTERMSIG(k->started_status));
		if (now_ns() - begun > s->ready_ns)
			return scry_fail(-EINVAL,
					 "'%s' did not succeed within %.3g s of the start of '%s'; "
					 "fix: --ready-within TIME, and -v shows what they print",
					 s->ready, (double)s->ready_ns / 1e9, s->start);
		if (!wait_a_little(k, AGAIN_NS))
			return -EINTR;
	}
	return r;
}

/* --- a run ----------------------------------------------------------------------------------- */

/* Whatever is left, from the top: what a process leaves becomes the keeper's child. 0, or -EBUSY
 * with a sentence: some cannot be killed, or not yet. */
static int kill_all(struct keeper *k)
{
	const struct timespec t = {.tv_nsec = 2000000};
	const uint64_t begun = now_ns();

	k->command = 0;
	while (reap(k)) {
		if (now_ns() - begun > KILL_NS)
			return scry_fail(-EBUSY,
					 "the server has not ended: process %d and its descendants "
					 "cannot be killed",
					 k->count ? (int)k->pids[0] : 0);
		find_own_children(k);
		for (uint32_t p = 0; p < k->count; p++)
			kill(k->pids[p], SIGKILL);
		nanosleep(&t, NULL);
	}
	return 0;
}

/* As its owner would; what does not end then is killed. */
static int stop_server(struct keeper *k)
{
	uint64_t begun;
	int r = 0;

	find_processes(k);
	if (k->server->stop)
		r = run_command(k, k->server->stop, STOP_NS);
	else if (!k->has_started_ended)
		kill(-k->started, SIGTERM); /* a shell does not pass it on */
	else
		send_term(k);
	k->outcome->run.has_stop_failed = r > 0;
	if (r < 0)
		return r;
	begun = now_ns();
	for (find_processes(k); k->count; find_processes(k)) {
		if (now_ns() - begun > STOP_NS) {
			k->outcome->run.was_killed = true;
			return 0;
		}
		if (!wait_a_little(k, LOOK_NS))
			return -EINTR;
	}
	return 0;
}

static int serve(struct keeper *k)
{
	const struct scry_malloc_server *s = k->server;
	uint64_t cpu, now, begun;
	int r = run_command(k, s->ready, try_ns(s));

	if (r == 0)
		return scry_fail(-EINVAL,
				 "'%s' succeeds before the server is started: another one "
				 "answers, and would be measured; fix: stop that one, or use "
				 "another port",
				 s->ready);
	if (r < 0)
		return r;
	k->started = run_shell(k, s->start, true);
	if (k->started < 0)
		return scry_fail(-errno, "cannot start '%s': %s", s->start, strerror(errno));
	r = get_ready(k);
	if (r < 0)
		return r;
	cpu = cpu_now(k);
	begun = now_ns();
	r = run_command(k, s->load, 0);
	k->outcome->run.load_ns = now_ns() - begun;
	if (r == 1)
		return scry_fail(-EINVAL,
				 "the load '%s' ended with status %d: its work was not done; fix: "
				 "-v shows what it prints",
				 s->load,
				 WIFEXITED(k->command_status) ? WEXITSTATUS(k->command_status)
							      : 128 + WTERMSIG(k->command_status));
	if (r < 0)
		return r;
	find_processes(k);
	if (!k->count)
		return scry_fail(-EINVAL,
				 "'%s' ended while the load ran; fix: -v shows what it "
				 "prints",
				 s->start);
	now = cpu_now(k);
	if (now < cpu)
		return scry_fail(
			-EINVAL,
			"processes of '%s' ended while the load ran, and their parents did "
			"not wait for them: its processor time is not known",
			s->start);
	k->outcome->run.cpu_ns = now - cpu;
	look_who_serves(k);
	return stop_server(k);
}

static _Noreturn void keep(struct keeper *k, pid_t parent)
{
	int err;

	/* All are blocked: what a terminal sends to both, the caller passes on as SIGTERM. */
	sigemptyset(&k->waited);
	sigaddset(&k->waited, SIGTERM);
	sigaddset(&k->waited, SIGCHLD);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	err = serve(k);
	if (k->is_stopped)
		scry_fail(err, "stopped by a signal; the server was ended");
	set_error(k, err);
	err = kill_all(k);
	if (err)
		set_error(k, err);
	_exit(0);
}

/* --- the guardian --------------------------------------------------------------------------- */

/* What the keeper leaves when it is killed becomes the guardian's, which has nothing else to do: in
 * a session of its own, so that a kill of our group does not reach it. */
static _Noreturn void guard(struct keeper *k, pid_t parent)
{
	siginfo_t ended;
	int signal_, status = 0, err;
	pid_t pid;

	setsid();
	sigemptyset(&k->waited);
	sigaddset(&k->waited, SIGTERM);
	sigaddset(&k->waited, SIGCHLD);
	prctl(PR_SET_NAME, "scry-guardian");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	parent = getpid();
	pid = fork();
	if (pid == 0)
		keep(k, parent);
	if (pid < 0) {
		set_error(k, scry_fail(-errno, "cannot start a process: %s", strerror(errno)));
		_exit(0);
	}
	for (ended.si_pid = 0; !ended.si_pid;) {
		signal_ = sigwaitinfo(&k->waited, NULL);
		if (signal_ > 0 && signal_ != SIGCHLD)
			kill(pid, SIGTERM);
		if (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) < 0)
			break;
	}
	waitpid(pid, &status, 0);
	if (!status)
		_exit(0);
	err = kill_all(k);
	if (!err)
		err = scry_fail(-ECHILD, "the process that ends the server was itself killed: the "
					 "server was killed, too");
	set_error(k, err);
	_exit(0);
}

static volatile sig_atomic_t stopped; /* by this signal */
static volatile pid_t guardian_pid;

static void on_signal(int sig)
{
	stopped = sig;
	if (guardian_pid > 0)
		kill(guardian_pid, SIGTERM);
}

/* Signals are passed on, so that the keeper has ended the server before the guardian and we end. */
static int wait_for_guardian(pid_t pid, const sigset_t *before)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	const struct sigaction ours = {.sa_handler = on_signal};
	struct sigaction old[3];
	siginfo_t ended;
	int status = 0;

	guardian_pid = pid;
	for (int i = 0; i < 3; i++) {
		sigaction(signals[i], NULL, &old[i]);
		if (signals[i] != SIGHUP || old[i].sa_handler != SIG_IGN) /* nohup */
			sigaction(signals[i], &ours, NULL);
	}
	sigprocmask(SIG_SETMASK, before, NULL);
	while (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR)
		;
	guardian_pid = 0; /* before its id can become another's */
	waitpid(pid, &status, 0);
	for (int i = 0; i < 3; i++)
		sigaction(signals[i], &old[i], NULL);
	return status;
}

static int run_once(const struct scry_malloc_server *server,
		    const struct scry_malloc_allocator *allocator,
		    struct scry_malloc_server_run *ret_run)
{
	struct outcome *outcome = mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	static struct keeper k;
	sigset_t all;
	pid_t parent = getpid(), pid;
	int status, err;

	if (outcome == MAP_FAILED)
		return scry_no_memory("");
	outcome->err = -ECHILD;
	k = (struct keeper){.server = server, .allocator = allocator, .outcome = outcome};
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &k.before); /* none is lost between fork and handler */
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		guard(&k, parent);
	if (pid < 0) {
		err = scry_fail(-errno, "cannot start a process: %s", strerror(errno));
		sigprocmask(SIG_SETMASK, &k.before, NULL);
		goto out;
	}
	status = wait_for_guardian(pid, &k.before);
	*ret_run = outcome->run;
	err = stopped && outcome->err != -EBUSY && outcome->err != -ECHILD ? -EINTR : outcome->err;
	if (status)
		err = scry_fail(-ECHILD,
				"the process that guards the server was itself killed: if the "
				"one below it was, too, what became a daemon may still run");
	else if (err == -EINTR && stopped)
		scry_fail(err, "stopped by signal %d; the server was ended", (int)stopped);
	else if (err)
		scry_fail(err, "%s", outcome->sentence);
out:
	munmap(outcome, sizeof(*outcome));
	return err;
}

int scry_malloc_server_run(struct scry_malloc_server *server,
			   const struct scry_malloc_allocator *allocator,
			   struct scry_malloc_server_run *ret_run)
{
	struct scry_malloc_allocator a = *allocator;
	char children[64];
	int err;

	snprintf(children, sizeof(children), "/proc/%d/task/%d/children", getpid(), getpid());
	if (access(children, R_OK))
		return scry_fail(-ENOSYS, "this kernel does not list a process's children "
					  "(CONFIG_PROC_CHILDREN): a server could be left behind");
	if (!a.path && server->needs_libc)
		a.path = LIBC;
	err = run_once(server, &a, ret_run);
	if (!err && !a.path && ret_run->is_seen && !ret_run->serves.is_glibc &&
	    !ret_run->serves.is_static) {
		server->needs_libc = true;
		a.path = LIBC;
		err = run_once(server, &a, ret_run);
	}
	ret_run->is_served =
		ret_run->is_seen && scry_malloc_is_served_by(&ret_run->serves, allocator->path);
	return err;
}
