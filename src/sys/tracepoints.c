/*
 * See tracepoints.h. tracefs need not be mounted: it is opened by itself (fsmount(2)), where we
 * may.
 */
#include "sys/tracepoints.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define PAGE 4096u
#define READINGS 5

int scry_tracefs_open(void)
{
	static const char *const places[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};
	int fd = -1, fs;

	for (size_t i = 0; i < 2 && fd < 0; i++) {
		fd = open(places[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0 && faccessat(fd, "events/raw_syscalls", R_OK, 0) < 0) {
			close(fd);
			fd = -1;
		}
	}
	if (fd >= 0)
		return fd;
	fs = fsopen("tracefs", FSOPEN_CLOEXEC);
	if (fs < 0)
		return -1;
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	close(fs);
	return fd;
}

const char *scry_tracefs_text(int tracefs, const char *path, char *ret, size_t room)
{
	int fd = openat(tracefs, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, room - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return NULL;
	ret[n] = '\0';
	return ret;
}

uint64_t scry_tracefs_id(int tracefs, const char *event)
{
	char path[128], text[32];

	snprintf(path, sizeof(path), "events/%s/id", event);
	return scry_tracefs_text(tracefs, path, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

static uint64_t ns_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t scry_stamp_ns(void)
{
	return ns_of(CLOCK_MONOTONIC_RAW);
}

/* Of several, the one with the least time in between. */
struct scry_stamp scry_stamp_read(clockid_t clock)
{
	struct scry_stamp best = {0};
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < READINGS; i++) {
		uint64_t first = __rdtsc(), ns = ns_of(clock), last = __rdtsc();

		if (last - first < least) {
			least = last - first;
			best = (struct scry_stamp){first + (last - first) / 2, ns};
		}
	}
	return best;
}

uint64_t scry_stamp_tsc(const struct scry_stamp *a, const struct scry_stamp *b, uint64_t ns)
{
	double rate = b->ns > a->ns ? (double)(b->tsc - a->tsc) / (double)(b->ns - a->ns) : 1;

	return a->tsc + (uint64_t)(int64_t)((double)(int64_t)(ns - a->ns) * rate);
}

int scry_event_ring_join(struct scry_event_ring *ring, int fd, size_t bytes)
{
	void *head;

	if (ring->head)
		return ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, ring->fd) < 0 ? -errno : 0;
	head = mmap(NULL, PAGE + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (head == MAP_FAILED)
		return -errno;
	*ring = (struct scry_event_ring){head, bytes, fd};
	return 0;
}

void scry_event_ring_done(struct scry_event_ring *ring)
{
	if (ring->head)
		munmap(ring->head, PAGE + ring->bytes);
	*ring = (struct scry_event_ring){0};
}

/* The record at `tail`, wrapped or not. */
static void copy_record(const struct scry_event_ring *ring, uint64_t tail, void *ret, size_t size)
{
	const char *data = (const char *)ring->head + PAGE;
	size_t at = tail % ring->bytes, first = ring->bytes - at < size ? ring->bytes - at : size;

	memcpy(ret, data + at, first);
	memcpy((char *)ret + first, data, size - first);
}

int scry_event_ring_read(struct scry_event_ring *ring, struct perf_event_header *record,
			 size_t room, int (*each)(void *arg), void *arg)
{
	uint64_t head, tail;
	int r = 0;

	if (!ring->head)
		return 0;
	head = __atomic_load_n(&ring->head->data_head, __ATOMIC_ACQUIRE);
	tail = ring->head->data_tail;
	while (tail < head && r == 0) {
		memset(record, 0, room);
		copy_record(ring, tail, record, sizeof(*record));
		if (record->size < sizeof(*record))
			break;
		copy_record(ring, tail, record, record->size < room ? record->size : room);
		r = each(arg);
		tail += record->size;
	}
	__atomic_store_n(&ring->head->data_tail, tail, __ATOMIC_RELEASE);
	return r;
}
