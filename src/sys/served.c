/* See served.h. The child of a raw clone makes system calls only: other threads' locks are held in
 * it for ever. */
#include "sys/served.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
#define RANGES_MAX 4096u
#define END_TURNS 20
#define PATH_BYTES 4200u
#define IN_MEMORY (1ull << 63) /* pagemap, Documentation/admin-guide/mm/pagemap.rst */
#define SWAPPED (1ull << 62)

struct answer { /* of a device, or of the directory of a path */
	uint64_t key, until_ns;
	bool is_one;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct answer answers[ANSWERS];
static size_t next;

static uint64_t now_ns(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
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

static bool keep(uint64_t key, bool is_one)
{
	pthread_mutex_lock(&lock);
	answers[next++ % ANSWERS] =
		(struct answer){key, now_ns() + (is_one ? BELIEVED_NS : DEAD_NS), is_one};
	pthread_mutex_unlock(&lock);
	return is_one;
}

/* --- asking ----------------------------------------------------------------------------------- */

/* Any answer is one: that it is not there, too. */
static void ask(const char *const *paths, int told)
{
	char byte = 0;

	/* who reads what we write waits for its end */
	if (dup2(told, 0) < 0)
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

/* No signal tells of its end, and nobody who waits for any child gets it. */
static bool do_answer(const char *const *paths)
{
	struct pollfd p = {.events = POLLIN};
	const uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;
	int fds[2], n = -1;
	pid_t child;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return true;
	child = (pid_t)syscall(SYS_clone, 0, 0, 0, 0, 0);
	if (child == 0)
		ask(paths, fds[1]);
	close(fds[1]);
	p.fd = fds[0];
	while (child > 0 && n < 0 && now_ns() < end)
		n = poll(&p, 1, (int)((end - now_ns()) / 1000000) + 1);
	close(fds[0]);
	if (child < 0)
		return true;
	if (n <= 0)
		kill(child, SIGKILL);
	/* the kernel may keep it for as long as it keeps who waits for a server */
	for (int i = 0; i < END_TURNS && waitpid(child, NULL, __WALL | (n > 0 ? 0 : WNOHANG)) == 0;
	     i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return n > 0;
}

static bool is_ours(pid_t pid, const struct scry_map_entry *m)
{
	struct scry_mounts mounts;
	enum scry_mount_kind kind;

	scry_mounts_read(pid, &mounts);
	kind = scry_mounts_kind(&mounts, m->dev_major, m->dev_minor);
	scry_mounts_done(&mounts);
	return kind != SCRY_MOUNT_UNKNOWN;
}

bool scry_served_answers(pid_t pid, const struct scry_map_entry *m)
{
	const uint64_t key = 1ull << 63 | (uint64_t)m->dev_major << 32 | m->dev_minor;
	char link[64], path[PATH_BYTES];
	const char *const paths[] = {link, m->deleted ? NULL : path, NULL};
	bool is_one;

	if (!m->inode || is_known(key, &is_one))
		return !m->inode || is_one;
	snprintf(link, sizeof(link), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)pid, m->start,
		 m->end);
	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, m->path);
	return keep(key, is_ours(pid, m) || do_answer(paths));
}

bool scry_served_path_answers(const char *path)
{
	const char *const paths[] = {path, NULL}, *slash = strrchr(path, '/');
	const char *end = slash ? slash : path;
	uint64_t key = 14695981039346656037ull; /* FNV-1a */
	bool is_one;

	for (const char *at = path; at < end; at++)
		key = (key ^ (unsigned char)*at) * 1099511628211ull;
	key &= ~(1ull << 63);
	return is_known(key, &is_one) ? is_one : keep(key, do_answer(paths));
}

/* --- memory ----------------------------------------------------------------------------------- */

void scry_served_look(pid_t pid, const struct scry_maps *maps, struct scry_served *ret)
{
	char path[32];

	*ret = (struct scry_served){.pagemap = -1};
	for (size_t i = 0; i < maps->count && ret->count < RANGES_MAX; i++) {
		const struct scry_map_entry *m = &maps->entries[i];

		if (!m->inode || scry_served_answers(pid, m))
			continue;
		if (!ret->ranges)
			ret->ranges = calloc(RANGES_MAX, sizeof(*ret->ranges));
		if (!ret->ranges)
			return;
		if (!ret->count)
			snprintf(ret->first, sizeof(ret->first), "%s", m->path);
		ret->ranges[ret->count++] = (struct scry_served_range){m->start, m->end};
	}
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
