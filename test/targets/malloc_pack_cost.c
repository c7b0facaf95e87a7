/*
 * What packing and unpacking the calls of a malloc recording costs, for bench/malloc.md:
 *
 *   malloc_pack_cost FILE...
 *
 * For each recording one line: calls, bytes a call on disk, ns a call (CPU time, the best of three)
 * to pack and write, and to read. The calls of its first process lie in memory meanwhile: 72 bytes
 * each.
 */
#include "base/err.h"
#include "rec/malloc_pack.h"
#include "rec/reader.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 3

struct calls {
	struct scry_ev_malloc *calls;
	uint64_t *times;
	size_t count, cap;
};

static void die(const char *what)
{
	fprintf(stderr, "malloc_pack_cost: %s: %s\n", what, scry_error());
	exit(1);
}

static double cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void keep(struct calls *c, uint64_t time_ns, const struct scry_ev_malloc *call)
{
	if (c->count == c->cap) {
		c->cap = c->cap ? c->cap * 2 : 1u << 20;
		c->calls = realloc(c->calls, c->cap * sizeof(*c->calls));
		c->times = realloc(c->times, c->cap * sizeof(*c->times));
		if (!c->calls || !c->times)
			die("no memory");
	}
	c->calls[c->count] = *call;
	c->times[c->count++] = time_ns;
}

static struct calls load(int fd)
{
	const struct scry_event *event;
	struct calls c = {0};
	struct scry_reader *r;

	if (scry_reader_open(fd, &r))
		die("open");
	while (scry_reader_next(r, &event) > 0) {
		const struct scry_ev_malloc *call = (const void *)(event + 1);

		if (event->type == SCRY_EVENT_MALLOC && (!c.count || c.calls[0].pid == call->pid))
			keep(&c, event->time_ns, call);
	}
	scry_reader_close(r);
	return c;
}

/* To a file in memory, chunks as the keeper makes them: each half second, or when one is full. */
static double pack(const struct calls *c, int fd)
{
	const struct scry_producer producer = {1, 0, 1};
	uint64_t written_ns = c->times[0];
	struct scry_malloc_pack *p;
	struct scry_writer *w;
	double begin = cpu_ns();
	size_t i;

	if (scry_writer_open(fd, 0, &w) || scry_malloc_pack_new(&producer, &p))
		die("pack");
	for (i = 0; i < c->count; i++) {
		if (scry_malloc_pack_add(p, c->times[i], &c->calls[i], NULL))
			die("a call");
		if (scry_malloc_pack_pending(p) < SCRY_MALLOC_PACK_BYTES &&
		    c->times[i] - written_ns < 500000000)
			continue;
		written_ns = c->times[i];
		if (scry_malloc_pack_write(p, w))
			die("write");
	}
	if (scry_malloc_pack_write(p, w) || scry_writer_close(w))
		die("write");
	scry_malloc_pack_free(p);
	return cpu_ns() - begin;
}

static double unpack(const struct calls *c, int fd)
{
	const struct scry_event *event;
	double begin = cpu_ns();
	struct scry_reader *r;
	size_t count = 0;

	if (scry_reader_open(fd, &r))
		die("open");
	while (scry_reader_next(r, &event) > 0)
		count++;
	scry_reader_close(r);
	if (count != c->count)
		die("calls are missing");
	return cpu_ns() - begin;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		int from = open(argv[i], O_RDONLY | O_CLOEXEC), round;
		double best_pack = 1e300, best_unpack = 1e300, ns;
		struct calls c = load(from);
		struct stat st;

		if (!c.count)
			die(argv[i]);
		for (round = 0; round < ROUNDS; round++) {
			int fd = memfd_create("packed", MFD_CLOEXEC);

			ns = pack(&c, fd);
			best_pack = ns < best_pack ? ns : best_pack;
			ns = unpack(&c, fd);
			best_unpack = ns < best_unpack ? ns : best_unpack;
			fstat(fd, &st);
			close(fd);
		}
		printf("%-28s %9zu calls  %6.3f bytes/call  pack %5.1f ns  unpack %5.1f ns\n",
		       argv[i], c.count, (double)st.st_size / (double)c.count,
		       best_pack / (double)c.count, best_unpack / (double)c.count);
		free(c.calls);
		free(c.times);
		close(from);
	}
	return 0;
}
