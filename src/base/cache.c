/* See cache.h. A file is written beside its place and renamed, so that a reader sees all of it or
 * nothing. All is done below one descriptor of the directory, which was looked at. */
#include "base/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_ours(int fd, mode_t type, mode_t closed)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == type && st.st_uid == geteuid() &&
	       (st.st_mode & closed) == 0;
}

/*
 * Opens, and makes if asked, the directory that holds caches. It may be open to others, but not
 * theirs: under sudo the environment may still name the caller's. Where another user owns the
 * directory that it is in, and could put a link there, nothing is made and no link followed.
 */
static int open_named(char *path, bool make)
{
	char *name = strrchr(path, '/') + 1;
	int parent, fd;
	bool is_own;

	if (!*name)
		return -1;
	name[-1] = '\0';
	parent = open(name - 1 == path ? "/" : path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0)
		return -1;
	is_own = is_ours(parent, S_IFDIR, 0);
	if (make && is_own)
		mkdirat(parent, name, 0700);
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (is_own ? 0 : O_NOFOLLOW));
	close(parent);
	if (fd >= 0 && !is_ours(fd, S_IFDIR, 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int open_base(bool make)
{
	const char *home = getenv("HOME"), *xdg = getenv("XDG_CACHE_HOME");
	char path[4096];
	int n;

	if (!home || home[0] != '/') {
		struct passwd *pw = getpwuid(geteuid());

		home = pw ? pw->pw_dir : "";
	}
	if (xdg && xdg[0] == '/')
		n = snprintf(path, sizeof(path), "%s", xdg);
	else
		n = snprintf(path, sizeof(path), "%s/.cache", home);
	if (path[0] != '/' || n >= (int)sizeof(path))
		return -1;
	while (n > 1 && path[n - 1] == '/')
		path[--n] = '\0';
	return open_named(path, make);
}

static int open_dir(bool make)
{
	const char *off = getenv("SCRY_NO_CACHE");
	int base, fd;

	if (off && *off)
		return -1;
	base = open_base(make);
	if (base < 0)
		return -1;
	if (make)
		mkdirat(base, "scry", 0700);
	fd = openat(base, "scry", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	close(base);
	if (fd >= 0 && !is_ours(fd, S_IFDIR, 077)) {
		close(fd);
		return -1;
	}
	return fd;
}

void *scry_cache_read_file(const char *name, size_t max, size_t *ret_size)
{
	int dir = open_dir(false), fd = -1;
	uint8_t *bytes = NULL;
	struct stat st;
	size_t used = 0;
	ssize_t n = -1;

	if (dir >= 0)
		fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0 && is_ours(fd, S_IFREG, 077) && fstat(fd, &st) == 0 &&
	    (uint64_t)st.st_size <= max)
		bytes = malloc((size_t)st.st_size + 1);
	if (bytes)
		while (used <= (size_t)st.st_size &&
		       (n = read(fd, bytes + used, (size_t)st.st_size + 1 - used)) > 0)
			used += (size_t)n;
	if (n != 0) { /* it cannot be read, or grows */
		free(bytes);
		bytes = NULL;
	}
	if (fd >= 0)
		close(fd);
	if (dir >= 0)
		close(dir);
	*ret_size = used;
	return bytes;
}

static int write_all(int fd, const char *bytes, size_t size)
{
	while (size) {
		ssize_t n = write(fd, bytes, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EIO;
		bytes += n;
		size -= (size_t)n;
	}
	return 0;
}

int scry_cache_write_file(const char *name, const void *bytes, size_t size)
{
	char fresh[SCRY_CACHE_NAME_MAX + 16];
	int dir = open_dir(true), fd, err;

	if (dir < 0)
		return -ENOENT;
	snprintf(fresh, sizeof(fresh), "%s.%d", name, (int)getpid());
	fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	err = fd < 0 ? -EIO : write_all(fd, bytes, size);
	if (!err && renameat(dir, fresh, dir, name) != 0)
		err = -errno;
	if (fd >= 0) {
		close(fd);
		if (err)
			unlinkat(dir, fresh, 0);
	}
	close(dir);
	return err;
}

void scry_cache_remove_file(const char *name)
{
	int dir = open_dir(false);

	if (dir >= 0) {
		unlinkat(dir, name, 0);
		close(dir);
	}
}

void scry_cache_name(const char *kind, const struct scry_cache_id *id,
		     char ret[SCRY_CACHE_NAME_MAX])
{
	int n = snprintf(ret, SCRY_CACHE_NAME_MAX, "%.16s-", kind);

	for (size_t i = 0; i < id->size && n + 2 < (int)SCRY_CACHE_NAME_MAX; i++)
		n += snprintf(ret + n, SCRY_CACHE_NAME_MAX - (size_t)n, "%02x", id->bytes[i]);
}
