/* See check.h. */
#include "replan/check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
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
#include "replan/allocators.h"
#include "replan/rss.h"
#include "sys/inherited.h"

#define FIRST_LOOK_NS 250000
#define LOOK_NS 2000000
#define LIBC "libc.so.6" /* by its name the loader finds the one of the program */

void scry_malloc_check_input(void)
{
	struct stat st;
	int fd = -1;

	if (fstat(STDIN_FILENO, &st) == 0 && S_ISREG(st.st_mode))
		fd = open("/proc/self/fd/0", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	dup2(fd, STDIN_FILENO);
}

/* In the child; what failed goes through the pipe. */
static _Noreturn void become(const struct scry_malloc_allocator *a, char *const *command, int out)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), failure;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	scry_malloc_allocators_unset();
	if (a->path)
		setenv("LD_PRELOAD", a->path, 1);
	for (unsigned int i = 0; i < a->env_count; i++)
		putenv((char *)a->env[i]);
	scry_malloc_check_input();
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	scry_inherited_give_back();
	execvp(command[0], command);
	failure = errno;
	if (write(out, &failure, sizeof(failure)) < 0)
		_exit(126);
	_exit(127);
}

bool scry_malloc_is_served_by(const struct scry_malloc_serves *s, const char *path)
{
	char resolved[PATH_MAX];
	size_t n, have = strlen(s->path);

	if (!path)
		return s->is_glibc;
	if (!realpath(path, resolved))
		return false;
	n = strlen(resolved); /* in a chroot the mapping's path is longer */
	return have >= n && !strcmp(s->path + have - n, resolved);
}

/* What serves is looked up once, and again when it runs another program. */
static void look_who(pid_t pid, struct scry_malloc_real *real)
{
	if (!real->is_seen || real->serves.exe_inode != scry_malloc_serves_exe(pid))
		real->is_seen |= scry_malloc_serves(pid, &real->serves);
}

/* Waits for its end, and looks at it until then: at once and soon again, as it may be short. */
static void follow(pid_t pid, struct scry_malloc_real *real)
{
	struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	struct timespec wait = {.tv_nsec = FIRST_LOOK_NS};
	struct scry_malloc_rss rss;

	scry_malloc_rss_open(&rss, pid);
	while (end.fd >= 0 && ppoll(&end, 1, &wait, NULL) == 0) {
		/* (ru_maxrss will not do: it counts what scry had when it forked.) */
		uint64_t now = scry_malloc_rss_now(&rss), kept = scry_malloc_rss_kept(&rss);

		if (kept > now)
			now = kept;
		if (now > real->rss_peak)
			real->rss_peak = now;
		look_who(pid, real);
		wait.tv_nsec = wait.tv_nsec * 2 < LOOK_NS ? wait.tv_nsec * 2 : LOOK_NS;
	}
	scry_malloc_rss_close(&rss);
	if (end.fd >= 0)
		close(end.fd);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t ns_of(struct timeval t)
{
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000;
}

static int run(const struct scry_malloc_allocator *allocator, char *const *command,
	       struct scry_malloc_real *ret_real)
{
	int out[2], failure = 0;
	struct rusage usage;
	uint64_t begun;
	pid_t pid;

	memset(ret_real, 0, sizeof(*ret_real));
	if (pipe2(out, O_CLOEXEC))
		return scry_fail(-errno, "cannot make a pipe: %s", strerror(errno));
	pid = fork();
	if (pid == 0)
		become(allocator, command, out[1]);
	close(out[1]);
	if (pid > 0 && read(out[0], &failure, sizeof(failure)) != sizeof(failure))
		failure = 0;
	close(out[0]);
	if (pid < 0)
		return scry_fail(-errno, "cannot start '%s': %s", command[0], strerror(errno));
	begun = now_ns();
	if (!failure) /* the pipe was closed by exec: what is looked at is the program */
		follow(pid, ret_real);
	while (wait4(pid, &ret_real->status, 0, &usage) < 0)
		if (errno != EINTR)
			return scry_fail(-errno, "cannot wait for '%s': %s", command[0],
					 strerror(errno));
	if (failure)
		return scry_fail(-failure, "cannot run '%s': %s", command[0], strerror(failure));
	ret_real->wall_ns = now_ns() - begun;
	ret_real->cpu_ns = ns_of(usage.ru_utime) + ns_of(usage.ru_stime);
	return 0;
}

int scry_malloc_check(struct scry_malloc_checked *program,
		      const struct scry_malloc_allocator *allocator,
		      struct scry_malloc_real *ret_real)
{
	struct scry_malloc_allocator a = *allocator;
	int err;

	if (!a.path && program->needs_libc)
		a.path = LIBC;
	err = run(&a, program->command, ret_real);
	if (!err && !a.path && ret_real->is_seen && !ret_real->serves.is_glibc &&
	    !ret_real->serves.is_static) {
		program->needs_libc = true;
		a.path = LIBC;
		err = run(&a, program->command, ret_real);
	}
	ret_real->is_served =
		ret_real->is_seen && scry_malloc_is_served_by(&ret_real->serves, allocator->path);
	return err;
}

void scry_malloc_check_why(const struct scry_malloc_real *real, const char *label,
			   const char *program, struct scry_malloc_why *ret_why)
{
	const struct scry_malloc_serves *s = &real->serves;

	if (real->is_seen)
		snprintf(
			ret_why->text, sizeof(ret_why->text),
			"'%s' is served by %s%s, not by %s: its own runs under %s are not compared",
			program, s->path,
			s->is_static ? ", which is static, so that nothing can be preloaded" : "",
			label, label);
	else
		snprintf(ret_why->text, sizeof(ret_why->text),
			 "'%s' ended before scry saw which allocator serves it: its figures under "
			 "%s may be "
			 "those of its own allocator",
			 program, label);
}
