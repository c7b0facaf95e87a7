/* See served.h. The child of a raw clone makes system calls only: other threads' locks are held in
 * it for ever. */
#include "sys/served.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sys/mounts.h"
#include "sys/regular.h"

#define PAGE 4096u
#define PATIENCE_MS 1000
#define BELIEVED_NS 1000000000ull
#define DEAD_NS 30000000000ull
#define ANSWERS 64u
#define DEAD_MAX 8u /* at a time: a program may have mounted any number of servers */
#define RANGES_MAX 4096u
#define END_TURNS 20
#define PATH_BYTES 4200u
#define IN_MEMORY (1ull << 63) /* pagemap, Documentation/admin-guide/mm/pagemap.rst */
#define SWAPPED (1ull << 62)

struct answer { /* of a device, or of a path: yes of a file, no of its directory */
	uint64_t key, until_ns;
	bool is_one;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct answer answers[ANSWERS];
static size_t next;
static pid_t waiting[DEAD_MAX]; /* children whose server has not answered; 0: none */

static uint64_t now_ns(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t key_of(const struct scry_map_entry *m)
{
	return 1ull << 63 | (uint64_t)m->dev_major << 32 | m->dev_minor;
}

/* False: nothing is known of it any more. */
static bool is_known(uint64_t key, bool *ret)
{
	const uint64_t now = now_ns();
	bool found = false;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < ANSWERS && !found; i++) {
		found = answers[i].key == key && answers[i].until_ns > now;
		if (found)
			*ret = answers[i].is_one;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

/* That a server is dead is not forgotten for the answers of others. */
static bool keep(uint64_t key, bool is_one)
{
	const uint64_t now = now_ns();
	size_t i = 0;

	pthread_mutex_lock(&lock);
	while (i < ANSWERS && answers[i].until_ns > now && answers[i].key != key)
		i++;
	for (size_t n = 0; i == ANSWERS && n < ANSWERS; n++) {
		next = (next + 1) % ANSWERS;
		i = answers[next].is_one ? next : ANSWERS;
	}
	answers[i % ANSWERS] = (struct answer){key, now + (is_one ? BELIEVED_NS : DEAD_NS), is_one};
	pthread_mutex_unlock(&lock);
	return is_one;
}

/* Does one more waiting thread cost too much? They are collected here, when their server has let
 * them go. */
static bool are_too_many(void)
{
	const uint64_t now = now_ns();
	size_t dead = 0, left = 0;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < ANSWERS; i++)
		dead += answers[i].until_ns > now && !answers[i].is_one;
	for (size_t i = 0; i < DEAD_MAX; i++) {
		if (waiting[i] && waitpid(waiting[i], NULL, __WALL | WNOHANG) != 0)
			waiting[i] = 0;
		left += waiting[i] != 0;
	}
	pthread_mutex_unlock(&lock);
	return dead >= DEAD_MAX || left >= DEAD_MAX;
}

static void leave(pid_t child)
{
	size_t i = 0;

	pthread_mutex_lock(&lock);
	while (i < DEAD_MAX && waiting[i])
		i++;
	if (i < DEAD_MAX)
		waiting[i] = child;
	pthread_mutex_unlock(&lock);
}

/* --- asking ----------------------------------------------------------------------------------- */

/* Any answer is one: that it is not there, too. */
static void ask(const char *const *paths, int answer_fd)
{
	char byte = 0;

	/* what reads what we write waits for its end */
	if (dup2(answer_fd, 0) < 0)
		_exit(1);
	syscall(SYS_close_range, 1, ~0u, 0);
	for (size_t i = 0; paths[i]; i++) {
		int fd = scry_regular_open(paths[i]);

		if (fd < 0)
			continue;
		if (pread(fd, &byte, 1, 0) < 0)
			byte = 0;
		close(fd); /* which asks, too */
		break;
	}
	if (write(0, &byte, 1) < 0)
		_exit(1);
	_exit(0);
}

/* No signal reports its end, and no wait for any child gets it. */
static bool do_answer(const char *const *paths)
{
	struct pollfd p = {.events = POLLIN};
	uint64_t now = now_ns();
	const uint64_t end = now + PATIENCE_MS * 1000000ull;
	int fds[2], n = -1;
	bool is_over = false;
	pid_t child;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return true;
	child = (pid_t)syscall(SYS_clone, 0, 0, 0, 0, 0);
	if (child == 0)
		ask(paths, fds[1]);
	close(fds[1]);
	p.fd = fds[0];
	for (; child > 0 && n < 0 && now < end; now = now_ns())
		n = poll(&p, 1, (int)((end - now) / 1000000) + 1);
	close(fds[0]);
	if (child < 0)
		return true;
	if (n <= 0)
		kill(child, SIGKILL);
	/* the kernel may keep it for as long as it keeps what waits for a server */
	for (int i = 0; i < END_TURNS && !is_over; i++) {
		const pid_t ended = waitpid(child, NULL, __WALL | (n > 0 ? 0 : WNOHANG));

		is_over = ended > 0 || (ended < 0 && errno != EINTR);
		if (!is_over)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	if (!is_over)
		leave(child);
	return n > 0;
}

/* The mounts of a process, and ours: of a container the files lie on a disk that only we have. */
struct lists {
	struct scry_mounts its, ours;
};

static void read_lists(pid_t pid, struct lists *ret)
{
	scry_mounts_read(pid, &ret->its);
	scry_mounts_read(getpid(), &ret->ours);
}

static void lists_done(struct lists *l)
{
	scry_mounts_done(&l->its);
	scry_mounts_done(&l->ours);
}

static bool is_kernels(const struct lists *l, const struct scry_map_entry *m)
{
	return scry_mounts_kind(&l->its, m->dev_major, m->dev_minor) != SCRY_MOUNT_UNKNOWN ||
	       scry_mounts_kind(&l->ours, m->dev_major, m->dev_minor) != SCRY_MOUNT_UNKNOWN;
}

/* What is not asked for lack of patience is not kept. */
static bool answers_at(pid_t pid, const struct scry_map_entry *m, const struct lists *lists)
{
	const uint64_t key = key_of(m);
	char link[64], path[PATH_BYTES];
	const char *const paths[] = {link, m->deleted ? NULL : path, NULL};

	if (is_kernels(lists, m))
		return keep(key, true);
	if (are_too_many())
		return false;
	snprintf(link, sizeof(link), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)pid, m->start,
		 m->end);
	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, m->path);
	return keep(key, do_answer(paths));
}

bool scry_served_answers(pid_t pid, const struct scry_map_entry *m)
{
	struct lists lists;
	bool is_one;

	if (!m->inode || is_known(key_of(m), &is_one))
		return !m->inode || is_one;
	read_lists(pid, &lists);
	is_one = answers_at(pid, m, &lists);
	lists_done(&lists);
	return is_one;
}

/* FNV-1a */
static uint64_t hash_of(const char *path, const char *end)
{
	uint64_t hash = 14695981039346656037ull;

	for (const char *at = path; at < end; at++)
		hash = (hash ^ (unsigned char)*at) * 1099511628211ull;
	return hash & ~(1ull << 63);
}

static bool is_root_kernels(void)
{
	struct scry_mounts mounts;
	struct statx st;
	bool is;

	/* the kernel knows the device; no server is asked */
	if (statx(AT_FDCWD, "/", AT_STATX_DONT_SYNC, 0, &st) < 0)
		return false;
	scry_mounts_read(getpid(), &mounts);
	is = scry_mounts_kind(&mounts, st.stx_dev_major, st.stx_dev_minor) != SCRY_MOUNT_UNKNOWN;
	scry_mounts_done(&mounts);
	return is;
}

/* Is all that the path leads through, or would, our root's file system, and that a kernel's own?
 * Without links and other mounts on the way no other server is asked: such a file needs no child.
 */
static bool is_roots(const char *path)
{
	static _Atomic int kind; /* 1: a kernel's own, -1: not; 0: not looked at yet */
	const struct open_how how = {.flags = O_PATH | O_CLOEXEC,
				     .resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS};
	int fd;

	if (!kind)
		kind = is_root_kernels() ? 1 : -1;
	if (kind < 0 || path[0] != '/')
		return false;
	fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
	if (fd >= 0)
		close(fd);
	return fd >= 0 || errno == ENOENT || errno == ENOTDIR;
}

/* A file may be a link to another server's, or a mount by itself: that it answers says nothing of
 * others beside it, but where it does not they are not asked either. */
bool scry_served_path_answers(const char *path)
{
	const char *const paths[] = {path, NULL}, *slash = strrchr(path, '/');
	const uint64_t folder = hash_of(path, slash ? slash : path);
	const uint64_t file = hash_of(path, path + strlen(path));
	bool is_one;

	if (is_known(folder, &is_one) || is_known(file, &is_one))
		return is_one;
	if (is_roots(path))
		return true;
	if (are_too_many())
		return false;
	is_one = do_answer(paths);
	return keep(is_one ? file : folder, is_one);
}

/* --- memory ----------------------------------------------------------------------------------- */

void scry_served_look(pid_t pid, const struct scry_maps *maps, struct scry_served *ret)
{
	struct lists lists = {0};
	bool has_lists = false, is_one;
	char path[32];

	*ret = (struct scry_served){.pagemap = -1};
	for (size_t i = 0; i < maps->count; i++) {
		const struct scry_map_entry *m = &maps->entries[i];

		if (!m->inode)
			continue;
		if (!is_known(key_of(m), &is_one)) {
			if (!has_lists)
				read_lists(pid, &lists);
			has_lists = true;
			is_one = answers_at(pid, m, &lists);
		}
		if (is_one)
			continue;
		if (!ret->ranges)
			ret->ranges = calloc(RANGES_MAX, sizeof(*ret->ranges));
		if (!ret->ranges)
			break;
		if (!ret->count)
			snprintf(ret->first, sizeof(ret->first), "%s", m->path);
		if (ret->count == RANGES_MAX)
			ret->ranges[RANGES_MAX - 1].end = m->end;
		else
			ret->ranges[ret->count++] = (struct scry_served_range){m->start, m->end};
	}
	lists_done(&lists);
	if (!ret->count)
		return;
	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
	ret->pagemap = open(path, O_RDONLY | O_CLOEXEC);
}

void scry_served_done(struct scry_served *s)
{
	if (s->count && s->pagemap >= 0)
		close(s->pagemap);
	free(s->ranges);
	*s = (struct scry_served){.pagemap = -1};
}

static bool is_there(const struct scry_served *s, uint64_t addr)
{
	uint64_t entry;

	return pread(s->pagemap, &entry, sizeof(entry), (off_t)(addr / PAGE * 8)) == 8 &&
	       entry & (IN_MEMORY | SWAPPED);
}

size_t scry_served_readable(const struct scry_served *s, uint64_t addr, size_t size)
{
	const uint64_t end = addr + size;

	for (size_t i = 0; i < s->count && s->ranges[i].start < end; i++) {
		const struct scry_served_range *r = &s->ranges[i];
		uint64_t at = addr > r->start ? addr : r->start;

		for (; at < end && at < r->end; at = (at / PAGE + 1) * PAGE)
			if (!is_there(s, at))
				return at - addr;
	}
	return size;
}
