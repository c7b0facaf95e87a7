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

/* What is there already; 0: nothing is. */
static int check_old(const char *path, bool force)
{
	struct stat st;

	if (lstat(path, &st))
		return 0;
	if (!force)
		return scry_fail(-EEXIST, "'%s' exists; fix: another name, or --force", path);
	if (!S_ISREG(st.st_mode))
		return scry_fail(-EEXIST, "'%s' is no regular file and is not replaced", path);
	return 1;
}

/* The old file stays till the new one is whole: that is written beside it. */
static int open_beside(struct scry_output *o)
{
	const char *name = strrchr(o->path, '/');
	int fd;

	if (asprintf(&o->beside, "%.*s.scry-XXXXXX", name ? (int)(name + 1 - o->path) : 0,
		     o->path) < 0) {
		o->beside = NULL;
		return scry_fail(-ENOMEM, "no memory to write '%s'", o->path);
	}
	fd = mkostemp(o->beside, O_CLOEXEC);
	if (fd >= 0)
		return fd;
	fd = scry_fail(-errno, "cannot replace '%s': %s", o->path, strerror(errno));
	free(o->beside);
	o->beside = NULL;
	return fd;
}

int scry_output_open(struct scry_output *o, const char *path, bool force)
{
	int fd, old = check_old(path, force);

	*o = (struct scry_output){.fd = -1};
	if (old < 0)
		return old;
	o->path = path;
	fd = old ? open_beside(o)
		 : open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		o->path = NULL;
		return old ? fd
			   : scry_fail(-errno, "cannot create '%s': %s", path, strerror(errno));
	}
	give_to_caller(fd);
	o->fd = fd;
	return 0;
}

int scry_output_stream(struct scry_output *o, const char *path, bool force)
{
	int err;

	*o = (struct scry_output){.fd = -1, .out = stdout};
	if (!path)
		return 0;
	err = scry_output_open(o, path, force);
	if (err)
		return err;
	o->out = fdopen(o->fd, "w");
	return o->out ? 0
		      : scry_output_close(o, scry_fail(-ENOMEM, "no memory to write '%s'", path));
}

int scry_output_try(const char *path, bool force)
{
	struct scry_output o;
	int err = scry_output_stream(&o, path, force);

	if (!err)
		scry_output_close(&o, -ECANCELED);
	return err;
}

int scry_output_keep(struct scry_output *o)
{
	if (o->beside && rename(o->beside, o->path))
		return scry_fail(-errno, "cannot replace '%s': %s", o->path, strerror(errno));
	free(o->beside);
	o->beside = NULL;
	o->path = NULL;
	return 0;
}

int scry_output_close(struct scry_output *o, int err)
{
	if (o->fd < 0)
		return err;
	if ((o->out ? fclose(o->out) : close(o->fd)) && !err)
		err = scry_fail(-errno, "cannot write '%s': %s", o->path ? o->path : "the output",
				strerror(errno));
	if (!err)
		err = scry_output_keep(o);
	if (err && o->path)
		unlink(o->beside ? o->beside : o->path);
	free(o->beside);
	*o = (struct scry_output){.fd = -1};
	return err;
}

int scry_output_check(const char *path, int input_fd)
{
	struct stat in, out;

	if (!path || fstat(input_fd, &in) || stat(path, &out) || in.st_dev != out.st_dev ||
	    in.st_ino != out.st_ino || !S_ISREG(in.st_mode))
		return 0;
	return scry_fail(-EEXIST, "'%s' is what is read, and is not replaced; fix: another name",
			 path);
}

bool scry_output_is(const char *path, const char *suffix)
{
	size_t n = path ? strlen(path) : 0, m = strlen(suffix);

	return n >= m && !strcmp(path + n - m, suffix);
}

bool scry_output_renders(const char *path)
{
	return scry_output_is(path, ".json") || scry_output_is(path, ".txt") ||
	       scry_output_is(path, ".folded") || scry_output_is(path, ".html");
}

int scry_output_recording(struct scry_output *o, const char *path, bool force, int *ret_fd)
{
	int err = path && !scry_output_renders(path) ? scry_output_open(o, path, force)
						     : scry_output_stream(o, path, force);

	if (err)
		return err;
	*ret_fd = o->out ? memfd_create("scry", MFD_CLOEXEC) : o->fd;
	if (*ret_fd < 0)
		return scry_output_close(
			o, scry_fail(-errno, "cannot make the recording: %s", strerror(errno)));
	return 0;
}
