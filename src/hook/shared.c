/* See shared.h. The order: make, take, check, size, seal; then map and close. */
#include "hook/shared.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/err.h"
#include "hook/hold.h"
#include "sys/edit.h"
#include "sys/proc.h"

#define PREFIX "scry-shared-" /* followed by 16 digits, so that no other file is taken for it */
#define NAME_BYTES (sizeof(PREFIX) + 16)
#define NAME_AT (SCRY_PAGE / 2) /* in the header page, behind the header */
#define OPEN_AT offsetof(struct scry_agent_header, has_open)
#define PIDFD_THREAD_FLAG O_EXCL /* linux/pidfd.h since 6.9 */
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x20
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define LEFT_MAX 64 /* descriptors closed: each is that of one kill */
_Static_assert(sizeof(struct scry_agent_header) <= NAME_AT, "room for the name");

/* One remote syscall; its result or -errno. */
static int64_t remote(struct scry_tracee *t, const struct scry_call *how, const uint64_t call[7])
{
	int64_t value;
	int r = scry_tracee_syscall(t, how, call, &value);

	return r < 0 ? r : value;
}

static int failed(int64_t r)
{
	return r < 0 && r > -4096 ? (int)r : 0;
}

bool scry_shared_is_possible(void)
{
	return syscall(SYS_pidfd_getfd, -1, 0, 0) < 0 && errno == EBADF;
}

int scry_shared_mmap(const uint64_t call[7], struct scry_tracee *t, const struct scry_call *how)
{
	const uint64_t unlock[7] = {SYS_munlock, call[1], call[2]};
	const uint64_t open_[7] = {SYS_mprotect, call[1], call[2], call[3]};
	uint64_t closed[7];
	int r;

	if (!scry_proc_locked(t->pid))
		return failed(remote(t, how, call));
	memcpy(closed, call, sizeof(closed));
	closed[3] = PROT_NONE;
	r = failed(remote(t, how, closed));
	if (r == 0)
		r = failed(remote(t, how, unlock));
	if (r == 0)
		r = failed(remote(t, how, open_));
	return r == -EAGAIN ? scry_fail(r,
					"process %d locks its memory (mlockall) and may lock no "
					"more; fix: prlimit -p %d --memlock=unlimited:",
					t->pid, t->pid)
			    : r;
}

/* Is the file behind our descriptor what `name` says? No process can change that of an open memfd.
 */
static bool has_name(int fd, const char *name)
{
	char path[32], is[64], want[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	snprintf(want, sizeof(want), "/memfd:%s (deleted)", name);
	n = readlink(path, is, sizeof(is) - 1);
	return n == (ssize_t)strlen(want) && !memcmp(is, want, (size_t)n);
}

/*
 * The thread's descriptor `number`. It is held, so that neither its number nor its process's can be
 * another's by now. Before Linux 6.9 only the first thread's table can be asked, which all share
 * except one that has made its own: there another file is found, or none.
 */
static int take(const struct scry_tracee *t, int64_t number, const char *name)
{
	int pidfd = (int)syscall(SYS_pidfd_open, t->tid, PIDFD_THREAD_FLAG), fd, err;

	if (pidfd < 0)
		pidfd = (int)syscall(SYS_pidfd_open, t->pid, 0);
	fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, (int)number, 0);
	err = errno;
	if (pidfd >= 0)
		close(pidfd);
	if (fd < 0 && err == ENOSYS)
		return scry_fail(-ENOTSUP,
				 "this kernel cannot hand over the memory that process %d would "
				 "share with scry (pidfd_getfd, Linux 5.6)",
				 t->pid);
	if (fd >= 0 && has_name(fd, name))
		return fd;
	if (fd >= 0) {
		close(fd);
		err = EBADF;
	}
	return scry_fail(-err, "cannot take the memory that process %d is to share with scry: %s",
			 t->pid, strerror(err));
}

/* A recording's limit is none of this memory's: it is lifted meanwhile. -EFBIG: we may not. */
static int set_size(int fd, uint64_t size)
{
	struct rlimit was, room;
	int r;

	if (getrlimit(RLIMIT_FSIZE, &was) < 0)
		return -errno;
	if (was.rlim_cur >= size)
		return ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
	room = was;
	room.rlim_cur = size;
	if (room.rlim_max < size)
		room.rlim_max = size;
	if (setrlimit(RLIMIT_FSIZE, &room) < 0)
		return -EFBIG;
	r = ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
	setrlimit(RLIMIT_FSIZE, &was);
	return r;
}

/* Where we may not, the target does, if it may: beyond its limit SIGXFSZ would end it. */
static int set_size_there(int64_t number, uint64_t size, struct scry_tracee *t,
			  const struct scry_call *how)
{
	const uint64_t call[7] = {SYS_ftruncate, (uint64_t)number, size};
	struct rlimit limit;

	if (prlimit(t->pid, RLIMIT_FSIZE, NULL, &limit) < 0 || limit.rlim_cur < size)
		return scry_fail(-EFBIG,
				 "neither scry nor process %d may make files of %" PRIu64
				 " KiB (ulimit -f), and so share memory; fix: ulimit -f unlimited",
				 t->pid, size >> 10);
	return failed(remote(t, how, call));
}

static bool has_seals(int fd, int wanted)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & ~F_SEAL_EXEC) == wanted;
}

static int check(int fd, pid_t pid)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC && has_seals(fd, 0))
		return 0;
	return scry_fail(-EPERM,
			 "process %d has put another file in the place of the memory that it is to "
			 "share with scry",
			 pid);
}

bool scry_shared_seal(int fd, uint64_t size)
{
	struct stat st;

	return fcntl(fd, F_ADD_SEALS, SEALS) == 0 && has_seals(fd, SEALS) && fstat(fd, &st) == 0 &&
	       (uint64_t)st.st_size == size;
}

/* A new memfd: its number in the target, or -errno. */
static int64_t make(const struct scry_shared *want, struct scry_tracee *t,
		    const struct scry_call *how, char name[NAME_BYTES])
{
	const uint64_t one = 1, at = want->header + NAME_AT;
	uint64_t call[7] = {SYS_memfd_create, at, MFD_CLOEXEC | MFD_NOEXEC_SEAL}, nonce;
	int64_t number;
	int r;

	/* From here on it is there until the descriptor is closed: it might close it itself. */
	r = scry_hold_rest(t, how);
	if (r == 0 && getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce))
		r = -EIO;
	if (r < 0)
		return r;
	snprintf(name, NAME_BYTES, PREFIX "%016" PRIx64, nonce);
	r = scry_edit_poke(how->mem_fd, at, name, NAME_BYTES);
	if (r == 0)
		r = scry_edit_poke(how->mem_fd, want->header + OPEN_AT, &one, sizeof(one));
	if (r < 0)
		return r;
	number = remote(t, how, call);
	if (number == -EINVAL) { /* Linux before 6.3 */
		call[2] = MFD_CLOEXEC | MFD_ALLOW_SEALING;
		number = remote(t, how, call);
	}
	if (number == -EMFILE || number == -ENFILE)
		return scry_fail(
			(int)number,
			"process %d has no descriptor left (ulimit -n) for the memory that "
			"it is to share with scry; fix: prlimit -p %d --nofile=...:",
			t->pid, t->pid);
	return number > INT32_MAX ? -EBADF : number;
}

int scry_shared_map(const struct scry_shared *want, struct scry_tracee *t,
		    const struct scry_call *how, int *ret_fd)
{
	const uint64_t zero = 0;
	char name[NAME_BYTES];
	int64_t number = make(want, t, how, name);
	const uint64_t map[7] = {SYS_mmap,
				 want->start,
				 want->size,
				 PROT_READ | PROT_WRITE,
				 MAP_SHARED | want->place,
				 (uint64_t)number};
	const uint64_t shut[7] = {SYS_close, (uint64_t)number};
	int fd, r, is_shut;

	*ret_fd = -1;
	if (number < 0)
		return (int)number;
	fd = r = take(t, number, name);
	if (r >= 0)
		r = check(fd, t->pid);
	if (r == 0)
		r = set_size(fd, want->size);
	if (r == -EFBIG)
		r = set_size_there(number, want->size, t, how);
	if (r == 0 && !scry_shared_seal(fd, want->size))
		r = scry_fail(-EPERM, "process %d changes the memory that it is to share with scry",
			      t->pid);
	if (r == 0)
		r = scry_shared_mmap(map, t, how);
	is_shut = failed(remote(t, how, shut));
	if (is_shut == 0)
		scry_edit_poke(how->mem_fd, want->header + OPEN_AT, &zero, sizeof(zero));
	r = r < 0 ? r : is_shut;
	if (r == 0)
		*ret_fd = fd;
	else if (fd >= 0)
		close(fd);
	return r;
}

/* Is descriptor `number` of the thread one of ours, by its name? */
static bool is_left(const struct scry_tracee *t, const char *number)
{
	static const char start[] = SCRY_SHARED_PATH;
	char path[64], is[sizeof(start) + 32];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/fd/%.10s", t->pid, t->tid, number);
	n = readlink(path, is, sizeof(is));
	return n >= (ssize_t)sizeof(start) - 1 && !memcmp(is, start, sizeof(start) - 1);
}

int scry_shared_close_left(uint64_t header, struct scry_tracee *t, const struct scry_call *how)
{
	uint64_t shut[7] = {SYS_close}, has_open = 0;
	const uint64_t zero = 0;
	struct dirent *d;
	char path[64];
	int r = 0, count = 0;
	DIR *dir;

	if (pread(how->mem_fd, &has_open, sizeof(has_open), (off_t)(header + OPEN_AT)) !=
		    sizeof(has_open) ||
	    !has_open)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/fd", t->pid, t->tid);
	dir = opendir(path);
	if (!dir)
		return -errno;
	while (r == 0 && count < LEFT_MAX && (d = readdir(dir))) {
		if (!is_left(t, d->d_name))
			continue;
		shut[1] = strtoull(d->d_name, NULL, 10);
		r = failed(remote(t, how, shut));
		count++;
	}
	closedir(dir);
	return r < 0 ? r : scry_edit_poke(how->mem_fd, header + OPEN_AT, &zero, sizeof(zero));
}
