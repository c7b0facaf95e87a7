/*
 * Files that scry writes for a person. See output.h.
 */
#include "cmd/output.h"

#include "base/err.h"
#include "base/opt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The number in an environment variable of sudo's. */
static bool sudo_id(const char *name, uint64_t *ret_id)
{
	const char *text = getenv(name);

	if (!text || scry_opt_read_u64(text, ret_id)) {
		scry_error_clear();
		return false;
	}
	return *ret_id <= UINT32_MAX;
}

/* A file that stays root's is still a good recording: failing here is no error. */
static void give_to_caller(int fd)
{
	uint64_t uid, gid;

	if (geteuid() == 0 && sudo_id("SUDO_UID", &uid) && sudo_id("SUDO_GID", &gid)) {
		int kept = fchown(fd, (uid_t)uid, (gid_t)gid);

		(void)kept;
	}
}

static int remove_old(const char *path)
{
	struct stat st;

	if (lstat(path, &st))
		return 0;
	if (!S_ISREG(st.st_mode))
		return scry_fail(-EEXIST, "'%s' is no regular file and is not replaced", path);
	if (unlink(path))
		return scry_fail(-errno, "cannot replace '%s': %s", path, strerror(errno));
	return 0;
}

int scry_output_open(const char *path, bool force, int *ret_fd)
{
	int fd, err = force ? remove_old(path) : 0;

	if (err)
		return err;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EEXIST)
		return scry_fail(-EEXIST, "'%s' exists; fix: another name, or --force", path);
	if (fd < 0)
		return scry_fail(-errno, "cannot create '%s': %s", path, strerror(errno));
	give_to_caller(fd);
	*ret_fd = fd;
	return 0;
}

int scry_output_stream(const char *path, bool force, FILE **ret_out)
{
	int fd, err = scry_output_open(path, force, &fd);
	FILE *out;

	if (err)
		return err;
	out = fdopen(fd, "w");
	if (!out) {
		close(fd);
		return scry_fail(-ENOMEM, "no memory to write '%s'", path);
	}
	*ret_out = out;
	return 0;
}

bool scry_output_is(const char *path, const char *suffix)
{
	size_t n = path ? strlen(path) : 0, m = strlen(suffix);

	return n >= m && !strcmp(path + n - m, suffix);
}

int scry_output_recording(const char *path, bool force, int *ret_fd, FILE **ret_out)
{
	bool renders = scry_output_is(path, ".json") || scry_output_is(path, ".txt") ||
		       scry_output_is(path, ".folded") || scry_output_is(path, ".html");
	int r;

	*ret_out = stdout;
	if (renders) {
		r = scry_output_stream(path, force, ret_out);
		if (r < 0)
			return r;
	} else if (path) {
		*ret_out = NULL;
		return scry_output_open(path, force, ret_fd);
	}
	*ret_fd = memfd_create("scry", MFD_CLOEXEC);
	if (*ret_fd < 0)
		return scry_fail(-errno, "cannot make the recording: %s", strerror(errno));
	return 0;
}
