/* See malloc_check.h. */
#include "cmd/malloc_check.h"

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
#include <unistd.h>

#include "base/err.h"
#include "cmd/malloc_allocators.h"
#include "cmd/malloc_rss.h"

#define LOOK_MS 2

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
	execvp(command[0], command);
	failure = errno;
	if (write(out, &failure, sizeof(failure)) < 0)
		_exit(126);
	_exit(127);
}

/* Is the library mapped? A program that is static, or has dropped LD_PRELOAD, has its own. */
static bool is_mapped(pid_t pid, const char *path)
{
	char name[64], line[4400];
	bool found = false;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%d/maps", pid);
	f = fopen(name, "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		found = strlen(line) >= strlen(path) &&
			!strcmp(line + strlen(line) - strlen(path), path);
	}
	if (f)
		fclose(f);
	return found;
}

/* Waits for its end, and looks at it until then. */
static void follow(pid_t pid, const char *path, struct scry_malloc_real *real)
{
	struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	struct scry_malloc_rss rss;
	char resolved[PATH_MAX];

	scry_malloc_rss_open(&rss, pid);
	if (path && !realpath(path, resolved))
		path = NULL;
	real->is_served = !path;
	while (end.fd >= 0 && poll(&end, 1, LOOK_MS) == 0) {
		/* (ru_maxrss will not do: it counts what scry had when it forked.) */
		uint64_t now = scry_malloc_rss_now(&rss), kept = scry_malloc_rss_kept(&rss);

		if (kept > now)
			now = kept;
		if (now > real->rss_peak)
			real->rss_peak = now;
		if (!real->is_served)
			real->is_served = is_mapped(pid, resolved);
	}
	scry_malloc_rss_close(&rss);
	if (end.fd >= 0)
		close(end.fd);
}

static uint64_t ns_of(struct timeval t)
{
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000;
}

int scry_malloc_check(const struct scry_malloc_allocator *allocator, char *const *command,
		      struct scry_malloc_real *ret_real)
{
	int out[2], failure = 0;
	struct rusage usage;
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
	if (!failure) /* the pipe was closed by exec: what is looked at is the program */
		follow(pid, allocator->path, ret_real);
	while (wait4(pid, &ret_real->status, 0, &usage) < 0)
		if (errno != EINTR)
			return scry_fail(-errno, "cannot wait for '%s': %s", command[0],
					 strerror(errno));
	if (failure)
		return scry_fail(-failure, "cannot run '%s': %s", command[0], strerror(failure));
	ret_real->cpu_ns = ns_of(usage.ru_utime) + ns_of(usage.ru_stime);
	return 0;
}
