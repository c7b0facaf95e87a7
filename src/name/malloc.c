/*
 * See malloc.h. The threads that have a record to tell stand in a heap by its stamp; the first goes
 * on until its stamp is above that of the second. One thread alone is a plain loop.
 *
 * Looking up an address is a line from memory: it is fetched some records before it is needed.
 */
#include "name/malloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "name/malloc_calls.h"
#include "name/malloc_memory.h"
#include "wire/event.h"

/* bits of ops whose second word has a stamp */
#define STAMPED                                                          \
	(((1u << SCRY_MALLOC_OP_TIME) - 2) | 1u << SCRY_MALLOC_OP_FORK | \
	 1u << SCRY_MALLOC_OP_FORKED)
#define FORK_NS 1e9 /* a fork that is not done by then is not waited for */
#define STAMP ((1ull << SCRY_MALLOC_TSC_BITS) - 1)
#define AHEAD 24	    /* words */
#define RECORDS_AT_ONCE 128 /* then it is looked whether a chunk is full */
#define THREADS_MAX (1u << 20)
#define PACK_BYTES_LEAST 2048u

struct thread {
	uint64_t id;
	uint32_t tid, number; /* number 0: no call yet */
	bool is_told, has_stamp, has_ended, is_heaped;
	char name[16];
	uint64_t *words; /* [at, count) wait; up to `scanned` callers were looked for */
	size_t at, count, room, scanned;
	uint64_t stamp; /* of the newest record read */
	uint64_t seen;	/* no stamp of these words is later */
	struct scry_malloc_reallocating realloc;
};

struct turn { /* of the heap */
	uint64_t stamp;
	struct thread *thread;
};

struct scry_malloc {
	struct scry_malloc_opts opts;
	struct scry_malloc_calls calls;
	struct scry_malloc_memory memory;
	struct scry_map by_id; /* -> pointer */
	struct thread **threads;
	struct turn *heap;
	size_t thread_count, thread_room, heap_count;
	uint32_t numbers;
	size_t waiting, kept; /* words; room for them */
	struct scry_ticks clock;
	uint64_t newest; /* stamp that was told last */
	uint64_t now_tsc;
	bool is_last;	 /* nothing will come that could be waited for */
	bool is_waiting; /* for a fork to be done: nothing after it is told */
	bool has_failed;
	uint64_t written; /* calls that are in the recording */
	size_t due;	  /* so much pending is written */
};

/* The writer counts what it has no room for, and so the calls are told on. */
static int unless_full(int r)
{
	if (r == 0 || r == -ENOMEM)
		return r;
	scry_error_clear();
	return 0;
}

static bool is_full(const struct scry_malloc *m)
{
	struct scry_writer_stats stats;

	scry_writer_stats(m->opts.writer, &stats);
	return stats.is_full;
}

/* A chunk that does not fit is lost whole, and all after it: they become smaller as room does. */
static size_t due_now(const struct scry_malloc *m)
{
	const uint64_t half = scry_writer_packed_room(m->opts.writer) / 2;

	return half > SCRY_MALLOC_PACK_BYTES ? SCRY_MALLOC_PACK_BYTES
	       : half > PACK_BYTES_LEAST     ? half
					     : PACK_BYTES_LEAST;
}

static struct scry_malloc *new_one(const struct scry_malloc_opts *opts)
{
	struct scry_malloc *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->opts = *opts;
	m->due = due_now(m);
	scry_map_init(&m->by_id, THREADS_MAX);
	scry_malloc_memory_init(&m->memory, (pid_t)opts->producer.pid, opts->own_start,
				opts->own_end, opts->is_glibc);
	return m;
}

static int flush_due(struct scry_malloc *m)
{
	return scry_malloc_pack_pending(m->calls.pack) >= m->due ? scry_malloc_flush(m) : 0;
}

static int no_memory(void)
{
	return scry_fail(-ENOMEM, "not enough memory for the calls of malloc");
}

int scry_malloc_new(const struct scry_malloc_opts *opts, struct scry_malloc **ret)
{
	struct scry_malloc *m = new_one(opts);
	int r;

	if (!m)
		return no_memory();
	m->calls.callers = opts->origin ? scry_malloc_callers_fork(opts->origin->calls.callers,
								   (pid_t)opts->producer.pid)
					: scry_malloc_callers_new((pid_t)opts->producer.pid);
	r = m->calls.callers ? scry_malloc_addresses_init(&m->calls.addresses, opts->memory)
			     : -ENOMEM;
	if (r == 0)
		r = scry_malloc_pack_new(&opts->producer, &m->calls.pack);
	if (r < 0) {
		scry_malloc_free(m);
		return no_memory();
	}
	*ret = m;
	return 0;
}

int scry_malloc_fork(struct scry_malloc *parent, const struct scry_malloc_opts *opts,
		     struct scry_malloc **ret)
{
	struct scry_malloc *m;
	int r = scry_malloc_flush(parent);

	if (r < 0)
		return r;
	m = new_one(opts);
	if (!m)
		return no_memory();
	m->calls.callers =
		scry_malloc_callers_fork(parent->calls.callers, (pid_t)opts->producer.pid);
	m->calls.ns = parent->calls.ns;
	m->clock = parent->clock;
	r = m->calls.callers
		    ? scry_malloc_addresses_copy(&parent->calls.addresses, &m->calls.addresses)
		    : -ENOMEM;
	if (r == 0)
		r = scry_malloc_pack_fork(parent->calls.pack, &opts->producer, &m->calls.pack);
	if (r < 0) {
		scry_malloc_free(m);
		return no_memory();
	}
	r = unless_full(scry_malloc_pack_write(m->calls.pack, opts->writer)); /* where it begins */
	if (r < 0) {
		scry_malloc_free(m);
		return r;
	}
	*ret = m;
	return 0;
}

static void free_thread(struct scry_malloc *m, struct thread *h)
{
	m->waiting -= h->count - h->at;
	m->kept -= h->room;
	free(h->words);
	free(h);
}

void scry_malloc_free(struct scry_malloc *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->thread_count; i++)
		free_thread(m, m->threads[i]);
	free(m->threads);
	free(m->heap);
	scry_map_done(&m->by_id);
	scry_malloc_addresses_done(&m->calls.addresses);
	scry_malloc_callers_free(m->calls.callers);
	scry_malloc_pack_free(m->calls.pack);
	scry_malloc_memory_done(&m->memory);
	free(m);
}

int scry_malloc_older(struct scry_malloc *m, uint64_t address, uint64_t usable)
{
	int r;

	if (m->has_failed)
		return 0;
	r = scry_malloc_calls_older(&m->calls, address, usable);
	m->has_failed = r < 0;
	return r == 0 ? flush_due(m) : r;
}

void scry_malloc_clock(struct scry_malloc *m, const struct scry_ticks_pair *now)
{
	scry_ticks_mark(&m->clock, now);
	m->calls.ns = m->calls.ns ? m->calls.ns : now->ns;
}

uint64_t scry_malloc_look(struct scry_malloc *m)
{
	const struct scry_ticks_pair now = scry_ticks_look();

	scry_malloc_clock(m, &now);
	return now.tsc;
}

/* words */

static void read_name(struct scry_malloc *m, struct thread *h)
{
	char path[64], name[sizeof(h->name)] = {0};
	FILE *f;

	if (!m->opts.producer.pid)
		return;
	snprintf(path, sizeof(path), "/proc/%u/task/%u/comm", m->opts.producer.pid, h->tid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(name, sizeof(name), f)) {
		name[strcspn(name, "\n")] = 0;
		memcpy(h->name, name, sizeof(name));
	}
	fclose(f);
}

static struct thread *thread_of(struct scry_malloc *m, uint64_t id, uint32_t tid)
{
	struct thread *h;
	uint64_t at;

	if (scry_map_get(&m->by_id, id, &at))
		return (struct thread *)at;
	if (m->thread_count == m->thread_room) {
		size_t room = m->thread_room ? m->thread_room * 2 : 16;
		struct thread **more = realloc(m->threads, room * sizeof(struct thread *));
		struct turn *heap;

		if (!more)
			return NULL;
		m->threads = more;
		heap = realloc(m->heap, room * sizeof(*heap));
		if (!heap)
			return NULL;
		m->heap = heap;
		m->thread_room = room;
	}
	h = calloc(1, sizeof(*h));
	if (!h || scry_map_put(&m->by_id, id, (uint64_t)h) < 0) {
		free(h);
		return NULL;
	}
	h->id = id;
	h->tid = tid;
	read_name(m, h);
	m->threads[m->thread_count++] = h;
	return h;
}

/* Room for `n` words behind those that wait, which move to the front. */
static int make_room(struct scry_malloc *m, struct thread *h, size_t n)
{
	size_t room = h->room ? h->room : 4096;
	uint64_t *more;

	if (h->at) {
		memmove(h->words, h->words + h->at, 8 * (h->count - h->at));
		h->count -= h->at;
		h->scanned -= h->at;
		h->at = 0;
	}
	while (room < h->count + n)
		room *= 2;
	if (room == h->room)
		return 0;
	more = realloc(h->words, 8 * room);
	if (!more)
		return no_memory();
	m->kept += room - h->room;
	h->words = more;
	h->room = room;
	return 0;
}

/* A code may be used by another thread before this one's next record is told: so callers are
 * defined as soon as they are here. */
static void define_callers(struct scry_malloc *m, struct thread *h)
{
	while (h->scanned + 2 <= h->count) {
		uint64_t word = h->words[h->scanned];
		size_t size = scry_malloc_record_words(word, m->opts.has_stacks);

		if ((word & 15) == SCRY_MALLOC_OP_CALLER)
			m->calls.stats.bad +=
				scry_malloc_callers_define(m->calls.callers, word >> 48,
							   h->words[h->scanned + 1]) < 0;
		else if ((word & 15) == SCRY_MALLOC_OP_LINE && h->scanned + size <= h->count)
			m->calls.stats.bad += scry_malloc_callers_line(
						      m->calls.callers, word >> SCRY_MALLOC_CODE_AT,
						      h->words + h->scanned + 1, size - 1) < 0;
		else if ((word & 15) == SCRY_MALLOC_OP_STACK && h->scanned + size <= h->count)
			m->calls.stats.bad += scry_malloc_callers_stack(m->calls.callers,
									h->words[h->scanned + 1],
									h->words + h->scanned + 2,
									size - 2) == -EINVAL;
		h->scanned += size;
	}
}

int scry_malloc_words(struct scry_malloc *m, const struct scry_malloc_run *run)
{
	struct thread *h;
	int r;

	if (m->has_failed)
		return 0;
	h = thread_of(m, run->thread, run->tid);
	if (!h)
		return no_memory();
	r = make_room(m, h, run->count + 2);
	if (r < 0)
		return r;
	if (run->begin_tsc) {
		h->words[h->count++] = SCRY_MALLOC_OP_TIME;
		h->words[h->count++] = run->begin_tsc;
	}
	if (run->count)
		memcpy(h->words + h->count, run->words, 8 * run->count);
	h->count += run->count;
	m->waiting += run->count + (run->begin_tsc ? 2 : 0);
	h->has_ended |= run->has_ended;
	define_callers(m, h);
	return 0;
}

void scry_malloc_ruby(struct scry_malloc *m, const struct scry_ruby *ruby, bool is_proven)
{
	scry_malloc_callers_ruby(m->calls.callers, ruby, is_proven);
}

size_t scry_malloc_waiting(const struct scry_malloc *m)
{
	return m->is_waiting ? 0 : m->waiting;
}

/* Writes the THREAD event of one that has made calls. */
static int tell_thread(struct scry_malloc *m, struct thread *h)
{
	struct scry_ev_thread ev = {
		.thread = h->number, .pid = m->opts.producer.pid, .tid = h->tid};
	int r = 0;

	if (h->is_told || !h->number)
		return 0;
	h->is_told = true;
	read_name(m, h); /* it may have got one since */
	if (h->name[0])
		r = scry_writer_string(m->opts.writer, h->name, strlen(h->name), &ev.name_str);
	return r ? r
		 : scry_writer_payload(m->opts.writer,
				       &(struct scry_event){.type = SCRY_EVENT_THREAD}, &ev,
				       sizeof(ev));
}

/* merging */

/* The stamp of the next record, words without one being passed; false: there is no whole record. */
static bool next_stamp(struct scry_malloc *m, struct thread *h)
{
	while (h->at + 2 <= h->count) {
		uint64_t word = h->words[h->at], stamp = h->words[h->at + 1];
		uint64_t op = word & 15;
		size_t size = scry_malloc_record_words(word, m->opts.has_stacks);

		if (h->at + size > h->count)
			return false;
		if (op == SCRY_MALLOC_OP_TIME) {
			if (!h->has_stamp || stamp > h->stamp)
				h->stamp = stamp < h->seen ? stamp : h->seen;
			h->has_stamp = true;
		} else if (STAMPED >> op & 1) {
			uint64_t after = (stamp - h->stamp) & STAMP;

			if (!h->has_stamp)
				h->stamp = h->seen - ((h->seen - stamp) & STAMP);
			else if (after <= STAMP / 2)
				h->stamp += after;
			if (h->stamp > h->seen)
				h->stamp = h->seen;
			h->has_stamp = true;
			return true;
		} else {
			m->calls.stats.bad += op != SCRY_MALLOC_OP_CALLER &&
					      op != SCRY_MALLOC_OP_LINE &&
					      op != SCRY_MALLOC_OP_STACK;
		}
		h->at += size;
		m->waiting -= size;
	}
	return false;
}

static void sift_down(struct scry_malloc *m, size_t i)
{
	struct turn turn = m->heap[i];

	for (size_t child; (child = 2 * i + 1) < m->heap_count; i = child) {
		if (child + 1 < m->heap_count && m->heap[child + 1].stamp < m->heap[child].stamp)
			child++;
		if (turn.stamp <= m->heap[child].stamp)
			break;
		m->heap[i] = m->heap[child];
	}
	m->heap[i] = turn;
}

static void fill_heap(struct scry_malloc *m, uint64_t now_tsc)
{
	m->heap_count = 0;
	for (size_t i = 0; i < m->thread_count; i++) {
		struct thread *h = m->threads[i];

		/* one that was read before keeps its stamp: its record still stands at `at` */
		if (!h->is_heaped) {
			h->seen = now_tsc;
			h->is_heaped = next_stamp(m, h);
		}
		h->seen = now_tsc;
		if (h->is_heaped)
			m->heap[m->heap_count++] = (struct turn){h->stamp, h};
	}
	for (size_t i = m->heap_count / 2; i-- > 0;)
		sift_down(m, i);
}

/* The child of the fork that begins at `at`, 0: it failed. False: it is not known yet. */
static bool find_forked(const struct thread *h, bool has_stacks, uint32_t *ret_pid)
{
	for (size_t i = h->at; i + 2 <= h->count;
	     i += scry_malloc_record_words(h->words[i], has_stacks)) {
		if ((h->words[i] & 15) != SCRY_MALLOC_OP_FORKED)
			continue;
		*ret_pid = (uint32_t)(h->words[i] >> 4 & UINT32_MAX);
		return true;
	}
	return false;
}

/* What is told now, the child has too: so it is known who that is before one goes on. */
static int tell_fork(struct scry_malloc *m, struct thread *h)
{
	uint32_t pid = 0;

	if ((h->words[h->at] & 15) == SCRY_MALLOC_OP_FORK && m->opts.on_fork &&
	    !find_forked(h, m->opts.has_stacks, &pid) && !m->is_last &&
	    scry_ticks_length(&m->clock, m->now_tsc - h->stamp) < FORK_NS) {
		m->is_waiting = true;
		return 0;
	}
	m->waiting -= scry_malloc_record_words(h->words[h->at], m->opts.has_stacks);
	h->at += scry_malloc_record_words(h->words[h->at], m->opts.has_stacks);
	return pid ? m->opts.on_fork(m->opts.on_fork_arg, m, pid) : 0;
}

/* Tells the record at `at`. */
static int tell(struct scry_malloc *m, struct thread *h)
{
	const uint64_t *words = h->words + h->at;
	size_t size = scry_malloc_record_words(words[0], m->opts.has_stacks);
	size_t plain = scry_malloc_record_words(words[0], false);
	struct scry_malloc_record record = {
		.ns = scry_ticks_time(&m->clock, h->stamp),
		.words = {words[0], words[1], plain == 3 ? words[2] : 0},
		.stack = size > plain ? words[plain] : 0,
		.thread = h->number,
		.realloc = &h->realloc};

	if ((words[0] & 15) >= SCRY_MALLOC_OP_FORK)
		return tell_fork(m, h);
	if (h->at + AHEAD < h->count)
		scry_malloc_addresses_prefetch(&m->calls.addresses, words[AHEAD] >> 4 << 20 >> 17);
	if (!h->number)
		record.thread = h->number = ++m->numbers;
	m->calls.stats.late += h->stamp < m->newest;
	m->newest = h->stamp > m->newest ? h->stamp : m->newest;
	h->at += size;
	m->waiting -= size;
	return scry_malloc_calls_add(&m->calls, &record);
}

/* Tells what `h` has, up to `limit`. */
static int go_on(struct scry_malloc *m, struct thread *h, uint64_t limit)
{
	int r = 0, left = RECORDS_AT_ONCE;

	do {
		r = tell(m, h);
		if (m->is_waiting)
			return r;
		h->is_heaped = next_stamp(m, h);
	} while (r == 0 && h->is_heaped && h->stamp <= limit && --left);
	return r == 0 ? flush_due(m) : r;
}

/* The stamp at which another thread than the first comes. */
static uint64_t second_stamp(const struct scry_malloc *m)
{
	uint64_t stamp = UINT64_MAX;

	for (size_t i = 1; i <= 2 && i < m->heap_count; i++)
		stamp = m->heap[i].stamp < stamp ? m->heap[i].stamp : stamp;
	return stamp;
}

/* Threads that have ended and have told all. */
static int end_threads(struct scry_malloc *m)
{
	int r = 0;

	for (size_t i = 0; i < m->thread_count && r == 0;) {
		struct thread *h = m->threads[i];

		if (!h->has_ended || h->is_heaped) {
			i++;
			continue;
		}
		m->calls.stats.unreturned += h->realloc.is_on;
		if (h->number)
			r = scry_malloc_calls_thread_end(&m->calls, h->number);
		if (r == 0)
			r = unless_full(tell_thread(m, h));
		scry_map_remove(&m->by_id, h->id, NULL);
		free_thread(m, h);
		m->threads[i] = m->threads[--m->thread_count];
	}
	return r;
}

void scry_malloc_end(struct scry_malloc *m)
{
	m->is_last = true;
}

int scry_malloc_merge(struct scry_malloc *m, uint64_t watermark, uint64_t now_tsc)
{
	int r = 0;

	if (m->has_failed)
		return 0;
	m->now_tsc = now_tsc;
	m->is_waiting = false;
	fill_heap(m, now_tsc);
	while (m->heap_count && m->heap[0].stamp <= watermark && r == 0 && !m->is_waiting) {
		struct thread *h = m->heap[0].thread;
		uint64_t second = second_stamp(m);

		r = go_on(m, h, second < watermark ? second : watermark);
		m->heap[0].stamp = h->stamp;
		if (!h->is_heaped)
			m->heap[0] = m->heap[--m->heap_count];
		if (m->heap_count)
			sift_down(m, 0);
	}
	if (r == 0 && !m->is_waiting)
		r = end_threads(m);
	m->has_failed = r < 0;
	if (r == 0)
		scry_malloc_callers_look(m->calls.callers);
	return r;
}

/* the recording */

static int tell_names(struct scry_malloc *m)
{
	int r = 0;

	for (size_t i = 0; i < m->thread_count && r == 0; i++)
		r = tell_thread(m, m->threads[i]);
	return r ? r : scry_malloc_callers_tell(m->calls.callers, m->opts.writer);
}

int scry_malloc_flush(struct scry_malloc *m)
{
	int r = is_full(m) ? 0 : unless_full(tell_names(m));

	if (r == 0)
		r = unless_full(scry_malloc_pack_write(m->calls.pack, m->opts.writer));
	if (!is_full(m))
		m->written = m->calls.stats.calls;
	m->due = due_now(m);
	return r;
}

int scry_malloc_memory(struct scry_malloc *m, uint64_t now_ns, bool now)
{
	if (is_full(m)) /* memory of a time whose calls are not there says nothing */
		return 0;
	return unless_full(scry_malloc_memory_write(&m->memory, m->opts.writer, now_ns, now));
}

int scry_malloc_finish(struct scry_malloc *m)
{
	struct scry_ev_memory last;

	if (m->has_failed)
		scry_malloc_callers_look(m->calls.callers);
	scry_malloc_memory_times(&m->memory, &last); /* did it have children? */
	for (size_t i = 0; i < m->thread_count; i++) {
		m->calls.stats.unreturned += m->threads[i]->realloc.is_on;
		m->threads[i]->realloc.is_on = false;
	}
	return scry_malloc_flush(m);
}

void scry_malloc_stats(const struct scry_malloc *m, struct scry_malloc_stats *ret)
{
	*ret = m->calls.stats;
	ret->unwritten = ret->calls - m->written;
	ret->blocks = m->calls.addresses.count;
	ret->callers = scry_malloc_callers_count(m->calls.callers);
	ret->callers_unnamed = scry_malloc_callers_unnamed(m->calls.callers);
	ret->lines = scry_malloc_callers_lines(m->calls.callers, &ret->lines_gone);
	ret->threads = m->numbers;
	ret->had_children = m->memory.had_children;
	ret->own_memory = m->memory.own_peak;
	ret->block_bytes = scry_malloc_addresses_bytes(&m->calls.addresses);
	ret->memory = ret->block_bytes + 8 * m->kept + scry_malloc_pack_bytes(m->calls.pack);
}
