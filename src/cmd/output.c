/*
 * Files that scry writes for a person. See output.h.
 */
#include "cmd/output.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/opt.h"
#include "sys/container.h"

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

/* A file that stays root's is still a good recording: failing here is not an error. */
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
		return scry_fail(-EEXIST, "'%s' is not a regular file and is not replaced", path);
	return 1;
}

static int no_replacing(const char *path)
{
	return scry_fail(-errno, "cannot replace '%s': %s", path, strerror(errno));
}

/*
 * The old file stays till the new one is whole. That has no name until then, and whoever is killed
 * leaves nothing of it; where the file system has no such files, it is written beside the old one.
 */
static int open_new(struct scry_output *o)
{
	const char *slash = strrchr(o->path, '/');
	int length = slash ? (int)(slash + 1 - o->path) : 0, fd;

	if (asprintf(&o->beside, "%.*s.scry-XXXXXX", length, o->path) < 0) {
		o->beside = NULL;
		return scry_no_memory("writing '%s'", o->path);
	}
	strcpy(o->beside + length, ".");
	fd = open(o->beside, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	o->is_nameless = fd >= 0;
	strcpy(o->beside + length, ".scry-XXXXXX");
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT))
		fd = mkostemp(o->beside, O_CLOEXEC);
	if (fd >= 0)
		return fd;
	fd = no_replacing(o->path);
	free(o->beside);
	o->beside = NULL;
	return fd;
}

/* No link replaces a file, but a rename does: the new one is called `beside` in between. */
static int give_name(struct scry_output *o)
{
	char fd_path[32], *end;
	int err = -1;

	if (!o->is_nameless)
		return 0;
	end = o->beside + strlen(o->beside) - strlen("XXXXXX");
	snprintf(fd_path, sizeof(fd_path), "/proc/self/fd/%d", o->fd);
	for (unsigned i = 0; i < 1000 && err; i++) {
		snprintf(end, sizeof("XXXXXX"), "%06u", ((unsigned)getpid() + i) % 1000000);
		err = linkat(AT_FDCWD, fd_path, AT_FDCWD, o->beside, AT_SYMLINK_FOLLOW);
		if (err && errno != EEXIST)
			break;
	}
	if (err)
		return no_replacing(o->path);
	o->is_nameless = false;
	return 0;
}

int scry_output_open(struct scry_output *o, const char *path, bool force)
{
	int fd, old = check_old(path, force);

	*o = (struct scry_output){.fd = -1};
	if (old < 0)
		return old;
	o->path = path;
	fd = old ? open_new(o)
		 : open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		const int err = errno == ENOENT ? EIO : errno; /* it is not what is watched */

		o->path = NULL;
		return old ? fd
			   : scry_fail(-err, "cannot create '%s': %s%s", path, strerror(errno),
				       errno == EROFS ? scry_container_fix(SCRY_CONTAINER_FILES)
						      : "");
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
	return o->out ? 0 : scry_output_close(o, scry_no_memory("writing '%s'", path));
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
	int err = give_name(o);

	if (err)
		return err;
	if (o->beside && rename(o->beside, o->path))
		return no_replacing(o->path);
	free(o->beside);
	o->beside = NULL;
	o->path = NULL;
	return 0;
}

static int no_writing(const struct scry_output *o)
{
	return scry_fail(-errno, "cannot write '%s': %s", o->path ? o->path : "the output",
			 strerror(errno));
}

int scry_output_close(struct scry_output *o, int err)
{
	if (o->fd < 0)
		return err;
	if (!err && o->out && fflush(o->out))
		err = no_writing(o);
	if (!err)
		err = give_name(o); /* while it is open */
	if ((o->out ? fclose(o->out) : close(o->fd)) && !err)
		err = no_writing(o);
	if (!err)
		err = scry_output_keep(o);
	if (err && o->path && !o->is_nameless)
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
	return scry_fail(-EEXIST,
			 "'%s' is the file that is being read, and cannot be the output too; fix: "
			 "another name",
			 path);
}

/* Is `ending` (without its dot) a word of `known`? */
static bool is_known(const char *ending, const char *known)
{
	size_t n = strlen(ending);

	for (const char *at = known; (at = strstr(at, ending)); at += n)
		if ((at == known || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
			return true;
	return false;
}

int scry_output_check_ending(const char *path, const char *known)
{
	const char *name = path ? strrchr(path, '/') : NULL, *dot;
	struct scry_buf list = {0};
	int err;

	name = name ? name + 1 : path;
	dot = name ? strrchr(name, '.') : NULL;
	if (!dot || dot == name || !dot[1] || is_known(dot + 1, known))
		return 0;
	for (const char *at = known; *at; at += *at == ' ') {
		size_t n = strcspn(at, " ");

		scry_buf_printf(&list, "%sx.%.*s", list.len ? ", " : "", (int)n, at);
		at += n;
	}
	err = scry_fail(-EINVAL, "'%s': unknown kind of file, '%s'; fix: %s%s%s", path, dot,
			strchr(known, ' ') ? "one of " : "", scry_buf_str(&list),
			strstr(known, "scry") ? " (x.scry is a recording, scry report shows it)"
					      : "");
	scry_buf_done(&list);
	return err;
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
