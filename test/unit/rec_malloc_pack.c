/* Calls of the malloc family: what is packed is what is read, through the writer and the reader. */
#include "rec/malloc_pack.h"

#include "base/buf.h"
#include "base/err.h"
#include "rec/check.h"
#include "rec/malloc_effect.h"
#include "rec/malloc_chunks.h"
#include "rec/malloc_format.h"
#include "rec/reader.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define CALLS_MAX 400000u
#define LIVE_MAX 5000u

struct told { /* a call as it was given to the packer */
	uint64_t time_ns;
	struct scry_ev_malloc call;
};

struct model { /* of one process */
	struct scry_malloc_pack *pack;
	struct scry_producer producer;
	uint32_t live[LIVE_MAX];
	uint32_t live_count;
	uint64_t sizes[LIVE_MAX + 1], usables[LIVE_MAX + 1]; /* by block */
	uint64_t time_ns;
};

#define SIZE_MAX48 ((1ull << 48) - 1) /* of an inherited block, at most */

static struct model
	*hooked_children[8]; /* by pid: fork children that have not made a call, as they began */
static struct told *told;
static size_t told_count;
static uint64_t rng;

static uint32_t next_random(uint32_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 32) % below;
}

static struct scry_writer *new_recording(int *ret_fd)
{
	struct scry_writer *w;

	*ret_fd = memfd_create("malloc", MFD_CLOEXEC);
	assert_true(*ret_fd >= 0);
	assert_int_equal(scry_writer_open(*ret_fd, 0, &w), 0);
	told_count = 0;
	return w;
}

static bool is_live(const struct model *m, uint32_t block)
{
	for (uint32_t i = 0; i < m->live_count; i++)
		if (m->live[i] == block)
			return true;
	return false;
}

/* Adds a call and checks the number that a block is given. */
static void add(struct model *m, struct scry_ev_malloc call)
{
	enum scry_malloc_effect effect = scry_malloc_effect_of(call.function, call.flags);
	uint32_t block, at = 0;

	assert_int_equal(scry_malloc_pack_add(m->pack, m->time_ns, &call, &block), 0);
	if (effect == SCRY_MALLOC_EFFECT_BEGIN) {
		assert_false(is_live(m, block));
		assert_true(block <= LIVE_MAX); /* dense */
		m->live[m->live_count++] = block;
	} else {
		assert_int_equal(block, effect ? call.block : SCRY_MALLOC_NO_BLOCK);
	}
	if (effect == SCRY_MALLOC_EFFECT_END) {
		while (at < m->live_count && m->live[at] != call.block)
			at++;
		m->live[at] = m->live[--m->live_count];
	}
	if (effect == SCRY_MALLOC_EFFECT_BEGIN || effect == SCRY_MALLOC_EFFECT_AGAIN) {
		m->sizes[block] = call.size;
		m->usables[block] = call.usable;
	}
	call.block = block;
	call.pid = m->producer.pid;
	assert_true(told_count < CALLS_MAX);
	told[told_count++] = (struct told){m->time_ns, call};
}

/* Any function with any flags, of a few callers and many sizes, on any block that lives. */
static void add_random(struct model *m)
{
	static const uint64_t sizes[] = {0, 1, 24, 25, 100, 4096, 1 << 20, UINT64_MAX};
	struct scry_ev_malloc call = {
		.function = 1 + next_random(SCRY_MALLOC_FUNCTIONS - 1),
		.flags = next_random(3) ? 0 : next_random(32),
		.thread = 1 + next_random(next_random(50) ? 3 : 10000),
		.caller = next_random(next_random(9) ? 4 : UINT32_MAX),
		.size = next_random(2) ? sizes[next_random(8)] : next_random(5000),
		.align = next_random(9) ? 0 : 1u << next_random(20),
		.block = SCRY_MALLOC_NO_BLOCK,
	};
	enum scry_malloc_effect effect;

	call.usable = next_random(3) ? call.size + next_random(30) : 0;
	if (m->live_count == LIVE_MAX)
		call.function = SCRY_MALLOC_FREE;
	effect = scry_malloc_effect_of(call.function, call.flags);
	if (effect >= SCRY_MALLOC_EFFECT_AGAIN) {
		if (!m->live_count)
			return;
		call.block = m->live[next_random(m->live_count)];
	}
	m->time_ns += next_random(100) ? next_random(300) : next_random(3000000);
	add(m, call);
}

/* A program that repeats itself: what the guesses are made for. */
static void add_regular(struct model *m, uint32_t round)
{
	struct scry_ev_malloc make = {SCRY_MALLOC_NONE}, end = {0};

	make.function = SCRY_MALLOC_MALLOC;
	make.thread = end.thread = 1;
	end.function = SCRY_MALLOC_FREE;
	for (uint32_t i = 0; i < 3; i++) {
		make.size = 24 + 40 * i;
		make.usable = make.size;
		make.caller = i + 1;
		add(m, make);
	}
	make.function = SCRY_MALLOC_REALLOC;
	make.block = told[told_count - 1].call.block;
	make.size = 200 + round % 3;
	add(m, make);
	for (uint32_t i = 0; i < 3; i++) {
		end.block = m->live[m->live_count - 1];
		add(m, end);
	}
	m->time_ns += 500;
}

static void model_init(struct model *m, uint32_t pid)
{
	*m = (struct model){.producer = {pid, 0, 77}, .time_ns = 1000000};
	assert_int_equal(scry_malloc_pack_new(&m->producer, &m->pack), 0);
}

static void write_out(struct model *m, struct scry_writer *w)
{
	assert_int_equal(scry_malloc_pack_write(m->pack, w), 0);
}

static void fork_of(const struct model *parent, struct model *child, uint32_t pid, uint64_t ticks)
{
	*child = *parent;
	child->producer = (struct scry_producer){pid, 0, ticks};
	assert_int_equal(scry_malloc_pack_fork(parent->pack, &child->producer, &child->pack), 0);
	hooked_children[pid] = malloc(sizeof(*child));
	assert_non_null(hooked_children[pid]);
	*hooked_children[pid] = *child;
}

/* A block that a fork child has of its parent, each once, before its first call. */
static bool is_inherited(const struct scry_ev_malloc *call)
{
	struct model *heir = hooked_children[call->pid];
	uint64_t size;
	uint32_t at = 0;

	if (!heir)
		return false;
	if (!heir->live_count) {
		free(heir);
		hooked_children[call->pid] = NULL;
		return false;
	}
	assert_int_equal(call->function, SCRY_MALLOC_OLDER);
	assert_true(is_live(heir, call->block));
	size = heir->sizes[call->block];
	assert_int_equal(call->size, size < SIZE_MAX48 ? size : SIZE_MAX48);
	if (size < SIZE_MAX48)
		assert_int_equal(call->usable, heir->usables[call->block]);
	while (heir->live[at] != call->block)
		at++;
	heir->live[at] = heir->live[--heir->live_count];
	return true;
}

/* Reads back all that was told, in its order for each process; chunks may be interleaved. */
static void must_read_back(int fd)
{
	size_t next[8] = {0}, count = 0;
	const struct scry_event *event;
	struct scry_reader_stats stats;
	struct scry_reader *r;
	int got;

	assert_int_equal(scry_reader_open(fd, &r), 0);
	while ((got = scry_reader_next(r, &event)) > 0) {
		const struct scry_ev_malloc *call = (const void *)(event + 1);
		size_t *at;

		assert_int_equal(event->type, SCRY_EVENT_MALLOC);
		assert_int_equal(event->size, sizeof(*event) + sizeof(*call));
		assert_int_equal(event->tid, 0);
		assert_true(call->pid < 8);
		assert_int_equal(scry_reader_chunk(r)->producer_pid, call->pid);
		if (is_inherited(call))
			continue;
		for (at = &next[call->pid]; told[*at].call.pid != call->pid; ++*at)
			assert_true(*at < told_count);
		assert_true(event->time_ns <= told[*at].time_ns);
		assert_true(told[*at].time_ns - event->time_ns < 110000);
		assert_memory_equal(call, &told[*at].call, sizeof(*call));
		++*at;
		count++;
	}
	assert_int_equal(got, 0);
	assert_int_equal(count, told_count);
	scry_reader_stats(r, &stats);
	assert_int_equal(stats.errors, 0);
	assert_int_equal(stats.left_out, 0);
	assert_int_equal(stats.kinds[SCRY_CHUNK_MALLOC].events, told_count);
	scry_reader_close(r);
}

static void random_calls(void **state)
{
	struct scry_writer *w;
	struct model m;
	int fd;

	for (uint64_t seed = 1; seed < 6; seed++) {
		rng = seed;
		w = new_recording(&fd);
		model_init(&m, 1);
		for (uint32_t i = 0; i < 60000; i++) {
			add_random(&m);
			if (!next_random(seed * seed * 900) ||
			    scry_malloc_pack_pending(m.pack) > SCRY_MALLOC_PACK_BYTES)
				write_out(&m, w);
		}
		write_out(&m, w);
		write_out(&m, w); /* nothing is pending: nothing is written */
		assert_int_equal(scry_writer_close(w), 0);
		must_read_back(fd);
		scry_malloc_pack_free(m.pack);
		close(fd);
	}
}

/* More kinds than a table holds: it is begun anew, and nothing is lost. */
static void many_kinds(void **state)
{
	struct scry_ev_malloc call = {.function = SCRY_MALLOC_CALLOC, .thread = 1}, end = call;
	struct scry_writer *w;
	struct model m;
	int fd;

	w = new_recording(&fd);
	model_init(&m, 2);
	end.function = SCRY_MALLOC_DELETE;
	for (uint32_t i = 0; i < 2 * SCRY_MALLOC_KINDS_MAX; i++) {
		call.size = call.usable = i % (SCRY_MALLOC_KINDS_MAX + 5000);
		add(&m, call);
		end.block = m.live[0];
		add(&m, end);
		if (i % 10000 == 0)
			write_out(&m, w);
	}
	write_out(&m, w);
	assert_int_equal(scry_writer_close(w), 0);
	must_read_back(fd);
	scry_malloc_pack_free(m.pack);
	close(fd);
}

/* A regular program costs next to nothing. */
static void regular_calls(void **state)
{
	struct scry_writer *w;
	struct stat st;
	struct model m;
	int fd;

	w = new_recording(&fd);
	model_init(&m, 3);
	for (uint32_t i = 0; i < 50000; i++)
		add_regular(&m, i);
	write_out(&m, w);
	assert_int_equal(scry_writer_close(w), 0);
	must_read_back(fd);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true((size_t)st.st_size < told_count / 20);
	scry_malloc_pack_free(m.pack);
	close(fd);
}

/* Both go on after a fork, and the child's blocks are those of its parent. */
static void forked(void **state)
{
	struct model parent, child, grandchild;
	struct scry_writer *w;
	int fd;

	rng = 99;
	w = new_recording(&fd);
	model_init(&parent, 1);
	for (int i = 0; i < 20000; i++)
		add_random(&parent);
	write_out(&parent, w);
	fork_of(&parent, &child, 5, 99);
	write_out(&child, w);
	for (int i = 0; i < 20000; i++) {
		add_random(&parent);
		if (i % 3000 == 0)
			write_out(&parent, w);
		add_random(&child);
		if (i % 7000 == 0)
			write_out(&child, w);
	}
	write_out(&child, w);
	fork_of(&child, &grandchild, 6, 100);
	write_out(&grandchild, w);
	while (grandchild.live_count) {
		struct scry_ev_malloc end = {.function = SCRY_MALLOC_FREE, .thread = 4};

		end.block = grandchild.live[next_random(grandchild.live_count)];
		add(&grandchild, end);
	}
	write_out(&grandchild, w);
	write_out(&parent, w);
	assert_int_equal(scry_writer_close(w), 0);
	must_read_back(fd);
	assert_null(hooked_children[5]);
	assert_null(hooked_children[6]);
	scry_malloc_pack_free(parent.pack);
	scry_malloc_pack_free(child.pack);
	scry_malloc_pack_free(grandchild.pack);
	close(fd);
}

static void refusals(void **state)
{
	struct scry_ev_malloc call = {.function = SCRY_MALLOC_FREE, .thread = 1};
	const struct scry_producer producer = {1, 0, 1};
	struct scry_malloc_pack *p;
	uint32_t block = 55;
	int err = 0;

	assert_int_equal(scry_malloc_pack_new(&producer, &p), 0);
	assert_int_equal(scry_malloc_pack_add(p, 1, &call, &block), -EINVAL); /* no such block */
	call.block = SCRY_MALLOC_NO_BLOCK;
	assert_int_equal(scry_malloc_pack_add(p, 1, &call, &block), -EINVAL);
	call.function = SCRY_MALLOC_NONE;
	assert_int_equal(scry_malloc_pack_add(p, 1, &call, &block), -EINVAL);
	call.function = SCRY_MALLOC_FUNCTIONS;
	assert_int_equal(scry_malloc_pack_add(p, 1, &call, &block), -EINVAL);
	call.function = SCRY_MALLOC_MALLOC;
	call.flags = 256;
	assert_int_equal(scry_malloc_pack_add(p, 1, &call, &block), -EINVAL);
	assert_int_equal(block, 55);
	assert_int_equal(scry_malloc_pack_pending(p), 0);
	call = (struct scry_ev_malloc){.function = SCRY_MALLOC_FREE, .flags = SCRY_MALLOC_NULL};
	for (uint32_t i = 0; !err && i <= SCRY_MALLOC_CALLS_MAX; i++)
		err = scry_malloc_pack_add(p, 1, &call, NULL);
	assert_int_equal(err, -ENOBUFS); /* nobody wrote */
	scry_malloc_pack_free(p);
	scry_malloc_pack_free(NULL);
	scry_malloc_unpack_free(NULL);
}

struct content {
	size_t calls, of_other;
	struct scry_reader_stats stats;
};

static struct content content_of(int fd)
{
	const struct scry_event *event;
	struct content c = {0};
	struct scry_reader *r;
	int got;

	assert_int_equal(scry_reader_open(fd, &r), 0);
	while ((got = scry_reader_next(r, &event)) > 0) {
		const struct scry_ev_malloc *call = (const void *)(event + 1);

		c.calls++;
		c.of_other += call->pid == 2;
	}
	assert_int_equal(got, 0);
	scry_reader_stats(r, &c.stats);
	scry_reader_close(r);
	return c;
}

/* The chunk of that number, sealed anew after a byte of its payload was changed. */
static void damage(int fd, unsigned int number, size_t at, uint8_t flip)
{
	off_t offset = sizeof(struct scry_file_head);
	struct scry_chunk chunk;
	uint8_t *payload;

	for (;; offset += (off_t)(sizeof(chunk) + chunk.bytes)) {
		assert_int_equal(pread(fd, &chunk, sizeof(chunk), offset), sizeof(chunk));
		if (!number--)
			break;
	}
	payload = malloc(chunk.bytes);
	assert_non_null(payload);
	assert_int_equal(pread(fd, payload, chunk.bytes, offset + (off_t)sizeof(chunk)),
			 chunk.bytes);
	payload[at % chunk.bytes] ^= flip;
	chunk.check = scry_chunk_check(&chunk, payload);
	assert_int_equal(pwrite(fd, &chunk, sizeof(chunk), offset), sizeof(chunk));
	assert_int_equal(pwrite(fd, payload, chunk.bytes, offset + (off_t)sizeof(chunk)),
			 chunk.bytes);
	free(payload);
}

/* Three chunks of a process and one of another: 0 and 2 and 3, and 1. */
static int four_chunks(size_t *ret_first)
{
	struct scry_writer *w;
	struct model m, other;
	int fd;

	rng = 4;
	w = new_recording(&fd);
	model_init(&m, 1);
	model_init(&other, 2);
	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < 500; j++)
			add_random(&m);
		write_out(&m, w);
		if (i)
			continue;
		*ret_first = told_count;
		for (int j = 0; j < 500; j++)
			add_random(&other);
		write_out(&other, w);
	}
	assert_int_equal(scry_writer_close(w), 0);
	scry_malloc_pack_free(m.pack);
	scry_malloc_pack_free(other.pack);
	return fd;
}

/* What a damaged chunk held is left out, and what rests on it; other processes are not. */
static void damaged(void **state)
{
	struct content whole, c;
	size_t first;
	int fd = four_chunks(&first);

	must_read_back(fd);
	whole = content_of(fd);
	damage(fd, 2, 0, 1); /* calls before: a chunk is missing */
	c = content_of(fd);
	assert_int_equal(c.stats.errors, 2); /* this chunk and the one that rests on it */
	assert_int_equal(c.of_other, whole.of_other);
	assert_int_equal(c.calls, first + whole.of_other);
	damage(fd, 2, 0, 1);
	assert_int_equal(content_of(fd).stats.errors, 0);
	for (size_t at = 0; at < 3000; at++) {
		damage(fd, 2, at, 0x11);
		c = content_of(fd);
		assert_true(c.calls >= first + whole.of_other && c.calls <= whole.calls);
		assert_int_equal(c.of_other, whole.of_other);
		assert_true(c.stats.errors <= 2);
		damage(fd, 2, at, 0x11);
	}
	close(fd);
}

/* Whole chunks passed over are read all the same. */
static void passed_over(void **state)
{
	const struct scry_event *event;
	const struct scry_chunk *chunk;
	struct scry_reader_stats stats;
	struct scry_reader *r;
	size_t first, calls = 0;
	int fd = four_chunks(&first);

	assert_int_equal(scry_reader_open(fd, &r), 0);
	assert_int_equal(scry_reader_next_chunk(r, &chunk), 1);
	assert_int_equal(chunk->count, first);
	assert_int_equal(scry_reader_next_chunk(r, &chunk), 1);
	assert_int_equal(scry_reader_next(r, &event), 1);
	assert_int_equal(scry_reader_next_chunk(r, &chunk), 1);
	while (scry_reader_next(r, &event) > 0)
		calls++;
	scry_reader_stats(r, &stats);
	assert_int_equal(stats.errors, 0);
	assert_int_equal(calls, told_count - first - content_of(fd).of_other);
	scry_reader_close(r);
	close(fd);
}

/* A child whose parent is not there as it was at the fork is left out. */
static void orphan(void **state)
{
	struct scry_writer *w;
	struct model m, child;
	struct content c;
	size_t before;
	int fd;

	rng = 7;
	w = new_recording(&fd);
	model_init(&m, 1);
	for (int i = 0; i < 500; i++)
		add_random(&m);
	write_out(&m, w);
	child = m;
	child.producer.pid = 2;
	assert_int_equal(scry_malloc_pack_fork(m.pack, &child.producer, &child.pack), 0);
	add_random(&m);
	write_out(&m, w); /* too early: the child's first chunk is not written yet */
	before = told_count;
	for (int i = 0; i < 500; i++)
		add_random(&child);
	write_out(&child, w);
	assert_int_equal(scry_writer_close(w), 0);
	c = content_of(fd);
	assert_int_equal(c.calls, before);
	assert_int_equal(c.stats.errors, 1);
	scry_malloc_pack_free(m.pack);
	scry_malloc_pack_free(child.pack);
	close(fd);
}

/* A child whose parent has made no call: nothing is told of that, and nothing is left out. */
static void of_a_silent_parent(void **state)
{
	struct scry_writer *w;
	struct model m, child;
	struct content c;
	int fd;

	rng = 7;
	w = new_recording(&fd);
	model_init(&m, 1);
	write_out(&m, w);
	child = m;
	child.producer.pid = 2;
	assert_int_equal(scry_malloc_pack_fork(m.pack, &child.producer, &child.pack), 0);
	for (int i = 0; i < 500; i++)
		add_random(&child);
	write_out(&child, w);
	assert_int_equal(scry_writer_close(w), 0);
	c = content_of(fd);
	assert_int_equal(c.calls, told_count);
	assert_int_equal(c.stats.errors, 0);
	scry_malloc_pack_free(m.pack);
	scry_malloc_pack_free(child.pack);
	close(fd);
}

static void put_detach(struct scry_writer *w, uint32_t pid, uint32_t part)
{
	struct scry_event head = {.type = SCRY_EVENT_DETACH, .time_ns = 5};
	struct scry_ev_detach detach = {.pid = pid, .verified = 1, .part = part};

	assert_int_equal(scry_writer_payload(w, &head, &detach, sizeof(detach)), 0);
}

/* Of a part that has ended nothing is kept, neither by who reads calls nor by who passes them over:
 * there may be any number of processes, one after the other. */
static void ended(void **state)
{
	const struct scry_chunk *chunk;
	struct scry_writer *w;
	struct model parent, child;
	struct content c;
	struct scry_reader_stats stats;
	struct scry_reader *r;
	size_t calls = 0, inherited;
	int fd, got;

	rng = 3;
	w = new_recording(&fd);
	model_init(&parent, 1);
	for (int i = 0; i < 100; i++)
		add_random(&parent);
	write_out(&parent, w);
	for (uint32_t i = 0; i < SCRY_MALLOC_PROCESSES + 100; i++) {
		child = parent;
		child.producer = (struct scry_producer){2 + i % 2, i / 2, 7};
		assert_int_equal(scry_malloc_pack_fork(parent.pack, &child.producer, &child.pack),
				 0);
		write_out(&child, w);
		add_random(&child);
		write_out(&child, w);
		put_detach(w, child.producer.pid, child.producer.ring + 1);
		scry_malloc_pack_free(child.pack);
	}
	inherited = (SCRY_MALLOC_PROCESSES + 100) * parent.live_count;
	put_detach(w, 1, 0); /* of which part is not told: it may go on */
	add_random(&parent);
	write_out(&parent, w);
	assert_int_equal(scry_writer_close(w), 0);
	c = content_of(fd);
	/* with the ends, and what each child has of its parent */
	assert_int_equal(c.calls, told_count + SCRY_MALLOC_PROCESSES + 101 + inherited);
	assert_int_equal(c.stats.errors, 0);
	assert_int_equal(scry_reader_open(fd, &r), 0);
	while ((got = scry_reader_next_chunk(r, &chunk)) > 0)
		calls += chunk->kind == SCRY_CHUNK_MALLOC ? chunk->count : 0;
	scry_reader_stats(r, &stats);
	scry_reader_close(r);
	assert_int_equal(got, 0);
	assert_int_equal(calls, told_count);
	assert_int_equal(stats.errors, 0);
	scry_malloc_pack_free(parent.pack);
	close(fd);
}

/* More processes at once than are kept: what is left out is counted, and no damage. */
static void crowded(void **state)
{
	struct scry_writer *w;
	struct content c;
	int fd;

	w = new_recording(&fd);
	for (uint32_t i = 0; i < SCRY_MALLOC_PROCESSES + 10; i++) {
		struct model m = {.producer = {.pid = 1 + i}};

		assert_int_equal(scry_malloc_pack_new(&m.producer, &m.pack), 0);
		add(&m, (struct scry_ev_malloc){.function = SCRY_MALLOC_FREE,
						.flags = SCRY_MALLOC_NULL,
						.block = SCRY_MALLOC_NO_BLOCK});
		write_out(&m, w);
		scry_malloc_pack_free(m.pack);
	}
	assert_int_equal(scry_writer_close(w), 0);
	c = content_of(fd);
	assert_int_equal(c.calls, SCRY_MALLOC_PROCESSES);
	assert_int_equal(c.stats.errors, 0);
	assert_int_equal(c.stats.beyond, 10);
	close(fd);
}

/* Outside of packed chunks nobody checks which blocks live: such events are left out. */
static void loose_event(void **state)
{
	struct scry_event head = {.type = SCRY_EVENT_MALLOC, .time_ns = 5};
	struct scry_ev_malloc call = {.function = SCRY_MALLOC_FREE, .block = 0xfffffff0};
	struct scry_writer *w;
	struct content c;
	int fd;

	w = new_recording(&fd);
	assert_int_equal(scry_writer_payload(w, &head, &call, sizeof(call)), 0);
	assert_int_equal(scry_writer_close(w), 0);
	c = content_of(fd);
	assert_int_equal(c.calls, 0);
	assert_int_equal(c.stats.errors, 1);
	close(fd);
}

static int set_up(void **state)
{
	told = calloc(CALLS_MAX, sizeof(*told));
	return told ? 0 : -1;
}

static int tear_down(void **state)
{
	free(told);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_calls),
		cmocka_unit_test(many_kinds),
		cmocka_unit_test(regular_calls),
		cmocka_unit_test(forked),
		cmocka_unit_test(refusals),
		cmocka_unit_test(damaged),
		cmocka_unit_test(passed_over),
		cmocka_unit_test(orphan),
		cmocka_unit_test(of_a_silent_parent),
		cmocka_unit_test(loose_event),
		cmocka_unit_test(ended),
		cmocka_unit_test(crowded),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
