/* See perf_rings.h. */
#include "sample/perf_rings.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE 4096u
#define RING_MOST (512u << 10) /* with its head what an ordinary user may lock for a processor */
#define RING_LEAST (32u << 10)
#define PENDING_MAX (64u << 20) /* bytes */

struct ring {
	struct perf_event_mmap_page *head; /* NULL: none */
	size_t bytes;			   /* behind it: a power of two */
	int fd;				   /* whose it is */
};

struct pending { /* a record that was read */
	uint64_t time;
	size_t at, size; /* in `bytes`; size 0: it was given */
};

union record {
	struct perf_event_header header;
	uint64_t words[SCRY_PERF_RECORD_MAX / 8];
};

struct scry_perf_rings {
	int cpus;
	size_t sample_time;
	struct ring *rings; /* by processor */
	struct pending *pending;
	size_t count, room;
	uint8_t *bytes;
	size_t byte_count, byte_room;
	uint64_t lost;
	union record read, given; /* that are looked at */
	struct pollfd *polled;
};

struct scry_perf_rings *scry_perf_rings_new(int cpus, size_t sample_time)
{
	struct scry_perf_rings *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->cpus = cpus;
	p->sample_time = sample_time;
	p->rings = calloc((size_t)cpus, sizeof(*p->rings));
	p->polled = calloc((size_t)cpus, sizeof(*p->polled));
	if (p->rings && p->polled)
		return p;
	scry_perf_rings_free(p);
	return NULL;
}

void scry_perf_rings_free(struct scry_perf_rings *p)
{
	if (!p)
		return;
	for (int i = 0; p->rings && i < p->cpus; i++)
		if (p->rings[i].head)
			munmap(p->rings[i].head, PAGE + p->rings[i].bytes);
	free(p->rings);
	free(p->polled);
	free(p->pending);
	free(p->bytes);
	free(p);
}

uint32_t scry_perf_rings_watermark(void)
{
	return RING_MOST / 4;
}

/* A user may lock so much memory for each processor as the kernel says: others may have used it. */
int scry_perf_rings_join(struct scry_perf_rings *p, int fd, int cpu)
{
	struct ring *ring = &p->rings[cpu];
	size_t bytes = RING_MOST;
	void *head;

	if (ring->head)
		return ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, ring->fd) < 0 ? -errno : 0;
	while ((head = mmap(NULL, PAGE + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) ==
		       MAP_FAILED &&
	       errno == EPERM && bytes > RING_LEAST)
		bytes /= 2;
	if (head == MAP_FAILED)
		return -errno;
	*ring = (struct ring){head, bytes, fd};
	return 0;
}

void scry_perf_rings_wait(const struct scry_perf_rings *p, uint64_t limit_ns)
{
	const struct timespec limit = {(time_t)(limit_ns / 1000000000u),
				       (long)(limit_ns % 1000000000u)};
	nfds_t count = 0;

	for (int i = 0; i < p->cpus; i++)
		if (p->rings[i].head)
			p->polled[count++] = (struct pollfd){p->rings[i].fd, POLLIN, 0};
	ppoll(p->polled, count, &limit, NULL);
}

static uint64_t time_of(const struct scry_perf_rings *p, const union record *r)
{
	return r->words[(r->header.type == PERF_RECORD_SAMPLE ? p->sample_time
							      : r->header.size - 8u) /
			8];
}

static int keep(struct scry_perf_rings *p, const union record *r)
{
	const size_t size = r->header.size;

	if (p->byte_count + size > PENDING_MAX) {
		p->lost++;
		return 0;
	}
	if (p->byte_count + size > p->byte_room) {
		size_t room = 2 * p->byte_room + SCRY_PERF_RECORD_MAX;
		uint8_t *more = realloc(p->bytes, room);

		if (!more)
			return -ENOMEM;
		p->bytes = more;
		p->byte_room = room;
	}
	if (p->count == p->room) {
		size_t room = 2 * p->room + 256;
		struct pending *more = reallocarray(p->pending, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		p->pending = more;
		p->room = room;
	}
	memcpy(p->bytes + p->byte_count, r, size);
	p->pending[p->count++] = (struct pending){time_of(p, r), p->byte_count, size};
	p->byte_count += size; /* records are of whole words */
	return 0;
}

/* The record at `tail`, wrapped or not. */
static void copy(const struct ring *ring, uint64_t tail, void *ret, size_t size)
{
	const char *data = (const char *)ring->head + PAGE;
	size_t at = tail % ring->bytes, first = ring->bytes - at;

	first = first < size ? first : size;
	memcpy(ret, data + at, first);
	memcpy((char *)ret + first, data, size - first);
}

static int read_ring(struct scry_perf_rings *p, const struct ring *ring)
{
	const uint64_t head = __atomic_load_n(&ring->head->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = ring->head->data_tail;
	union record *r = &p->read;
	int err = 0;

	while (tail < head && !err) {
		copy(ring, tail, &r->header, sizeof(r->header));
		if (r->header.size < 2 * sizeof(r->header)) /* the kernel writes none */
			break;
		if (r->header.size <= sizeof(*r)) {
			copy(ring, tail, r, r->header.size);
			p->lost += r->header.type == PERF_RECORD_LOST ? r->words[2] : 0;
			err = keep(p, r);
		} else {
			p->lost++;
		}
		tail += r->header.size;
	}
	__atomic_store_n(&ring->head->data_tail, tail, __ATOMIC_RELEASE);
	return err;
}

int scry_perf_rings_read(struct scry_perf_rings *p)
{
	int err = 0;

	for (int i = 0; i < p->cpus && !err; i++)
		if (p->rings[i].head)
			err = read_ring(p, &p->rings[i]);
	return err;
}

static int by_time(const void *left, const void *right)
{
	const struct pending *a = left, *b = right;

	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	return a->at < b->at ? -1 : a->at > b->at;
}

/* Those that are left move to the front. */
static void drop(struct scry_perf_rings *p, size_t given)
{
	const size_t left = p->count - given;
	uint8_t *bytes = left ? malloc(p->byte_count) : NULL;
	size_t to = 0;

	if (left && !bytes) /* the next time */
		return;
	memmove(p->pending, p->pending + given, left * sizeof(*p->pending));
	p->count = left;
	for (size_t i = 0; i < left; i++) {
		memcpy(bytes + to, p->bytes + p->pending[i].at, p->pending[i].size);
		p->pending[i].at = to;
		to += p->pending[i].size;
	}
	if (left) {
		free(p->bytes);
		p->bytes = bytes;
		p->byte_room = p->byte_count;
	}
	p->byte_count = to;
}

void scry_perf_rings_give(struct scry_perf_rings *p, uint64_t until_ns,
			  scry_perf_rings_give_one *give, void *arg)
{
	const size_t count = p->count; /* others come behind these */
	size_t n;

	if (count)
		qsort(p->pending, count, sizeof(*p->pending), by_time);
	for (n = 0; n < count && p->pending[n].time <= until_ns; n++) {
		memcpy(&p->given, p->bytes + p->pending[n].at, p->pending[n].size);
		if (!p->pending[n].size)
			continue;
		p->pending[n].size = 0;
		give(arg, &p->given.header);
	}
	if (n)
		drop(p, n);
}

bool scry_perf_rings_has(const struct scry_perf_rings *p,
			 bool (*is)(const struct perf_event_header *record, uint64_t arg),
			 uint64_t arg)
{
	for (size_t i = 0; i < p->count; i++)
		if (p->pending[i].size && is((const void *)(p->bytes + p->pending[i].at), arg))
			return true;
	return false;
}

uint64_t scry_perf_rings_lost(const struct scry_perf_rings *p)
{
	return p->lost;
}
