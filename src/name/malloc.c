/* See malloc.h. Looking up an address is a line from memory: it is fetched some records before it
 * is needed. */
#include "name/malloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
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
#define PACK_BYTES_LEAST 2048u

struct thread {
	uint32_t number; /* 0: no call yet */
	bool is_emitted;
	char name[16];
	struct scry_malloc_reallocating realloc;
};

struct scry_malloc {
	struct scry_malloc_opts opts;
	struct scry_malloc_calls calls;
	struct scry_malloc_memory memory;
	struct scry_stream *stream;
	uint32_t numbers;
	uint64_t newest; /* stamp that was emitted last */
	bool is_last;	 /* nothing will come that could be waited for */
	bool is_waiting; /* for a fork to be done: nothing after it is emitted */
	bool has_failed;
	uint64_t written; /* calls that are in the recording */
	size_t due;	  /* so much pending is written */
};

/* The writer counts what it has no room for, and so the calls are emitted all the same. */
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

static const struct scry_stream_kind kind;

static struct scry_malloc *new_one(const struct scry_malloc_opts *opts)
{
	struct scry_malloc *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->opts = *opts;
	m->due = due_now(m);
	m->stream = scry_stream_new(&kind, m);
	if (!m->stream) {
		free(m);
		return NULL;
	}
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
	return scry_no_memory("the calls of malloc");
}

int scry_malloc_new(const struct scry_malloc_opts *opts, struct scry_malloc **ret)
{
	struct scry_malloc *m = new_one(opts);
	int r;

	if (!m)
		return no_memory();
	m->calls.callers =
		opts->origin ? scry_malloc_callers_fork(opts->origin->calls.callers,
							(pid_t)opts->producer.pid, opts->is_closed)
			     : scry_malloc_callers_new((pid_t)opts->producer.pid, opts->is_closed);
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
	m->calls.callers = scry_malloc_callers_fork(parent->calls.callers,
						    (pid_t)opts->producer.pid, opts->is_closed);
	m->calls.ns = parent->calls.ns;
	scry_stream_goes_on(m->stream, parent->stream);
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

void scry_malloc_free(struct scry_malloc *m)
{
	if (!m)
		return;
	scry_stream_free(m->stream);
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
	if (!m->calls.ns)
		m->calls.ns = scry_stream_time(m->stream, scry_stream_now(m->stream));
	r = scry_malloc_calls_older(&m->calls, address, usable);
	m->has_failed = r < 0;
	return r == 0 ? flush_due(m) : r;
}

struct scry_modules *scry_malloc_modules(const struct scry_malloc *m)
{
	return scry_malloc_callers_modules(m->calls.callers);
}

struct scry_stream *scry_malloc_stream(struct scry_malloc *m)
{
	return m->stream;
}

/* words */

static void read_name(const struct scry_malloc *m, const struct scry_stream_thread *thread)
{
	struct thread *h = thread->own;
	char path[64], name[sizeof(h->name)] = {0};
	FILE *f;

	if (!m->opts.producer.pid)
		return;
	snprintf(path, sizeof(path), "/proc/%u/task/%u/comm", m->opts.producer.pid, thread->tid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(name, sizeof(name), f)) {
		name[strcspn(name, "\n")] = 0;
		memcpy(h->name, name, sizeof(name));
	}
	fclose(f);
}

static void born(void *arg, struct scry_stream_thread *thread)
{
	read_name(arg, thread);
}

/* A code may be used by another thread before this one's next record is emitted: so callers are
 * defined as soon as they are here. */
static int define(struct scry_malloc *m, const uint64_t *record, size_t size)
{
	struct scry_malloc_callers *callers = m->calls.callers;

	switch (record[0] & 15) {
	case SCRY_MALLOC_OP_CALLER:
		return scry_malloc_callers_define(callers, record[0] >> 48, record[1]);
	case SCRY_MALLOC_OP_LINE:
		return scry_malloc_callers_line(callers, record[0] >> SCRY_MALLOC_CODE_AT,
						record + 1, size - 1);
	case SCRY_MALLOC_OP_STACK:
		return scry_malloc_callers_stack(callers, record[1], record + 2, size - 2) ==
				       -EINVAL
			       ? -EINVAL
			       : 0;
	default:
		return -EINVAL;
	}
}

/* Stamps are the low bits of ticks that never fall. */
static void scan(void *arg, struct scry_stream_scan *scan)
{
	struct scry_malloc *m = arg;
	struct scry_stream_record *to = scan->records;
	const bool has_stacks = m->opts.has_stacks;
	uint64_t tick = scan->tick;

	for (size_t i = 0, size; i + 2 <= scan->count; i += size) {
		const uint64_t *words = scan->words + i;
		uint64_t op = words[0] & 15, after;

		size = scry_malloc_record_words(words[0], has_stacks);
		if (i + size > scan->count) {
			m->calls.stats.bad++;
			break;
		}
		if (op == SCRY_MALLOC_OP_TIME) {
			tick = words[1] > tick ? words[1] : tick;
		} else if (STAMPED >> op & 1) {
			after = (words[1] - tick) & STAMP;
			tick += after <= STAMP / 2 ? after : 0;
			*to++ = (struct scry_stream_record){tick, (uint32_t)i, (uint32_t)size};
		} else {
			m->calls.stats.bad += define(m, words, size) < 0;
		}
	}
	scan->tick = tick;
	scan->found = (size_t)(to - scan->records);
}

void scry_malloc_ruby(struct scry_malloc *m, const struct scry_ruby *ruby, bool is_proven)
{
	scry_malloc_callers_ruby(m->calls.callers, ruby, is_proven);
}

size_t scry_malloc_waiting(const struct scry_malloc *m)
{
	return m->is_waiting ? 0 : scry_stream_waiting(m->stream);
}

/* Writes the THREAD event of one that has made calls. */
static int emit_thread(void *arg, struct scry_stream_thread *thread)
{
	const struct scry_malloc *m = arg;
	struct thread *h = thread->own;
	struct scry_ev_thread ev = {
		.thread = h->number, .pid = m->opts.producer.pid, .tid = thread->tid};
	int r = 0;

	if (h->is_emitted || !h->number)
		return 0;
	h->is_emitted = true;
	read_name(m, thread); /* it may have got one since */
	if (h->name[0])
		r = scry_writer_string(m->opts.writer, h->name, strlen(h->name), &ev.name_str);
	return r ? r
		 : scry_writer_payload(m->opts.writer,
				       &(struct scry_event){.type = SCRY_EVENT_THREAD}, &ev,
				       sizeof(ev));
}

/* merging */

/* The child of the fork that begins at `words`, 0: it failed. False: it is not known yet. */
static bool find_forked(const struct scry_malloc *m, const uint64_t *words, const uint64_t *end,
			uint32_t *ret_pid)
{
	while (words + 2 <= end) {
		if ((*words & 15) == SCRY_MALLOC_OP_FORKED) {
			*ret_pid = (uint32_t)(*words >> 4 & UINT32_MAX);
			return true;
		}
		words += scry_malloc_record_words(*words, m->opts.has_stacks);
	}
	return false;
}

/* What is emitted now, the child has too: so it is known which that is before one goes on. */
static int emit_fork(struct scry_malloc *m, const struct scry_stream_thread *thread,
		     const struct scry_stream_record *rec)
{
	const uint64_t *words = scry_stream_words_of(thread, rec);
	uint32_t pid = 0;

	if ((*words & 15) == SCRY_MALLOC_OP_FORK && m->opts.on_fork &&
	    !find_forked(m, words, thread->end, &pid) && !m->is_last &&
	    scry_stream_length(m->stream, scry_stream_now(m->stream) - rec->tick) < FORK_NS) {
		m->is_waiting = true;
		return 0;
	}
	return pid ? m->opts.on_fork(m->opts.on_fork_arg, m, pid) : 0;
}

static int emit(struct scry_malloc *m, const struct scry_stream_thread *thread,
		const struct scry_stream_record *rec)
{
	struct thread *h = thread->own;
	const uint64_t *words = scry_stream_words_of(thread, rec);
	size_t plain = scry_malloc_record_words(words[0], false);
	struct scry_malloc_record record = {
		.ns = scry_stream_time(m->stream, rec->tick),
		.words = {words[0], words[1], plain == 3 ? words[2] : 0},
		.stack = rec->count > plain ? words[plain] : 0,
		.realloc = &h->realloc};

	if (words + AHEAD < thread->end)
		scry_malloc_addresses_prefetch(&m->calls.addresses, words[AHEAD] >> 4 << 20 >> 17);
	if (!h->number)
		h->number = ++m->numbers;
	record.thread = h->number;
	m->calls.stats.late += rec->tick < m->newest;
	m->newest = rec->tick > m->newest ? rec->tick : m->newest;
	return scry_malloc_calls_add(&m->calls, &record);
}

static ssize_t give(void *arg, struct scry_stream_thread *thread,
		    const struct scry_stream_record *records, size_t count)
{
	struct scry_malloc *m = arg;
	size_t i;
	int r = 0;

	for (i = 0; i < count && r == 0; i++) {
		uint64_t op = *scry_stream_words_of(thread, &records[i]) & 15;

		r = op >= SCRY_MALLOC_OP_FORK ? emit_fork(m, thread, &records[i])
					      : emit(m, thread, &records[i]);
		if (m->is_waiting)
			break;
		if (r == 0 && (i + 1) % RECORDS_AT_ONCE == 0)
			r = flush_due(m);
	}
	if (r == 0)
		r = flush_due(m);
	return r < 0 ? r : (ssize_t)i;
}

static int ended(void *arg, struct scry_stream_thread *thread)
{
	struct scry_malloc *m = arg;
	const struct thread *h = thread->own;
	int r = h->number ? scry_malloc_calls_thread_end(&m->calls, h->number) : 0;

	m->calls.stats.unreturned += h->realloc.is_on;
	return r ? r : unless_full(emit_thread(m, thread));
}

static const struct scry_stream_kind kind = {
	.scan = scan,
	.give = give,
	.born = born,
	.ended = ended,
	.own_bytes = sizeof(struct thread),
};

void scry_malloc_end(struct scry_malloc *m)
{
	m->is_last = true;
}

int scry_malloc_merge(struct scry_malloc *m, uint64_t watermark)
{
	int r;

	if (m->has_failed)
		return 0;
	m->is_waiting = false;
	r = scry_stream_merge(m->stream, watermark, SIZE_MAX);
	m->has_failed = r < 0;
	if (r == 0)
		scry_malloc_callers_look(m->calls.callers);
	return r;
}

/* the recording */

static int emit_names(struct scry_malloc *m)
{
	int r = scry_stream_each(m->stream, emit_thread, m);

	return r ? r : scry_malloc_callers_report(m->calls.callers, m->opts.writer);
}

int scry_malloc_flush(struct scry_malloc *m)
{
	int r = is_full(m) ? 0 : unless_full(emit_names(m));

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

static int end_realloc(void *arg, struct scry_stream_thread *thread)
{
	struct scry_malloc *m = arg;
	struct thread *h = thread->own;

	m->calls.stats.unreturned += h->realloc.is_on;
	h->realloc.is_on = false;
	return 0;
}

int scry_malloc_finish(struct scry_malloc *m)
{
	struct scry_ev_memory last;

	if (m->has_failed)
		scry_malloc_callers_look(m->calls.callers);
	scry_malloc_memory_times(&m->memory, &last); /* did it have children? */
	scry_stream_each(m->stream, end_realloc, m);
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
	ret->memory = ret->block_bytes + scry_stream_bytes(m->stream) +
		      scry_malloc_pack_bytes(m->calls.pack);
}
