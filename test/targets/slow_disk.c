/*
 * Preloaded into scry: a disk that takes its time. Of its keeper, the first write of a recording
 * after there is a file SLOW_DISK/stall ends when there is a file SLOW_DISK/go; SLOW_DISK/stalls
 * says that it stands.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static bool has_stalled;

static bool is_keeper(void)
{
	char name[16] = "";

	return prctl(PR_GET_NAME, name) == 0 && !strcmp(name, "scry-keeper");
}

static bool has(const char *dir, const char *file, int flags)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, flags | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void stall(const char *dir)
{
	has_stalled = has(dir, "stalls", O_WRONLY | O_CREAT);
	while (!has(dir, "go", O_RDONLY))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
	const char *dir = getenv("SLOW_DISK");

	if (dir && !has_stalled && is_keeper() && has(dir, "stall", O_RDONLY))
		stall(dir);
	return syscall(SYS_writev, fd, parts, count);
}
