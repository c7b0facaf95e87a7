/* See regular.h. O_PATH opens nothing: it holds the file that the name stood for. */
#include "sys/regular.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* A switch or a window of the kernel's own, that calls itself a regular file. */
static bool is_kernels(int fd)
{
	static const unsigned long kinds[] = {
		PROC_SUPER_MAGIC, SYSFS_MAGIC,	 TRACEFS_MAGIC,	     DEBUGFS_MAGIC,
		SECURITYFS_MAGIC, SELINUX_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
	};
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return false;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if ((unsigned long)fs.f_type == kinds[i])
			return true;
	return false;
}

int scry_regular_open(const char *path)
{
	int held = open(path, O_PATH | O_CLOEXEC), fd;
	struct stat st;
	char self[32];

	if (held < 0)
		return -errno;
	fd = fstat(held, &st) < 0 ? -errno : S_ISREG(st.st_mode) && !is_kernels(held) ? 0 : -ENXIO;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", held);
	if (fd == 0) {
		fd = open(self,
			  O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* its owner may have a lease on it */
		fd = fd < 0 ? -errno : fd;
	}
	close(held);
	return fd;
}

static bool is_same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool scry_regular_is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       is_same_time(a->st_mtim, b->st_mtim) && is_same_time(a->st_ctim, b->st_ctim);
}

bool scry_regular_may_stay_open(const struct stat *st)
{
	struct stat root;

	return stat("/", &root) == 0 && st->st_dev == root.st_dev;
}
