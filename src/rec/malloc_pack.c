/*
 * The packer of malloc calls. See malloc_pack.h; the columns are doc/FORMAT.md's.
 *
 * What the unpacker would guess from the calls before is guessed here too; only where the guess is
 * wrong is something written.
 */
#include "rec/malloc_pack.h"

#include "base/err.h"
#include "rec/malloc_format.h"
#include "rec/malloc_kinds.h"
#include "rec/malloc_planes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define LEVEL 1
#define ROOM 64	       /* bytes one call adds to a column at most */
#define STAMP_CALLS 64 /* a stamp after so many calls, or after so long */
#define STAMP_TICKS 97 /* 100 us; in what is kept, so that what is packed again is the same */

struct column {
	uint8_t *bytes;
	size_t len, cap;
};

struct scry_malloc_pack {
	struct scry_producer producer;
	struct scry_malloc_blocks blocks;
	struct scry_malloc_kinds kinds;
	struct column columns[SCRY_MALLOC_COLUMNS];
	struct column out;
	ZSTD_CCtx *zstd;
	struct scry_malloc_head head; /* of the chunk that is gathered */
	uint64_t calls;		      /* in it */
	size_t raw;		      /* bytes of all columns */
	bool is_raw_old;
	uint64_t total; /* in chunks before it */
	uint64_t first_ns, last_ns, stamp_ns;
	enum scry_malloc_effect effect; /* of the call that is packed */
	uint64_t run;			/* right guesses since the last miss */
	uint32_t thread, since_thread;	/* that of the last call, and for how many */
	uint32_t since_stamp;
	bool is_written; /* a chunk of it, ever */
	int failed;	 /* for good: state and columns do not agree any more */
};

static int column_room(struct column *c, size_t room)
{
	size_t cap = c->cap ? c->cap * 2 : 4096;
	void *bytes;

	if (c->cap - c->len >= room)
		return 0;
	while (cap - c->len < room)
		cap *= 2;
	bytes = realloc(c->bytes, cap);
	if (!bytes)
		return -ENOMEM;
	c->bytes = bytes;
	c->cap = cap;
	return 0;
}

static void put(struct column *c, uint64_t value)
{
	while (value > 0x7f) {
		c->bytes[c->len++] = (uint8_t)value | 0x80;
		value >>= 7;
	}
	c->bytes[c->len++] = (uint8_t)value;
}

static void put_usable(struct column *c, const struct scry_malloc_kind *kind)
{
	uint64_t delta = kind->usable - scry_malloc_usable_guess(kind->size);

	put(c, delta << 1 ^ -(delta >> 63));
}

int scry_malloc_pack_new(const struct scry_producer *producer, struct scry_malloc_pack **ret_pack)
{
	struct scry_malloc_pack *p = calloc(1, sizeof(*p));

	if (p)
		p->zstd = ZSTD_createCCtx();
	if (!p || !p->zstd || scry_malloc_blocks_init(&p->blocks, true)) {
		scry_malloc_pack_free(p);
		return scry_no_memory("packing the calls of malloc");
	}
	p->producer = *producer;
	*ret_pack = p;
	return 0;
}

void scry_malloc_pack_free(struct scry_malloc_pack *p)
{
	int i;

	if (!p)
		return;
	for (i = 0; i < SCRY_MALLOC_COLUMNS; i++)
		free(p->columns[i].bytes);
	free(p->out.bytes);
	scry_malloc_blocks_done(&p->blocks);
	scry_malloc_kinds_done(&p->kinds);
	ZSTD_freeCCtx(p->zstd);
	free(p);
}

static int pack_thread(struct scry_malloc_pack *p, uint32_t thread)
{
	struct column *c = &p->columns[SCRY_MALLOC_COLUMN_THREADS];

	if (thread == p->thread) {
		p->since_thread++;
		return 0;
	}
	if (column_room(c, ROOM))
		return -ENOMEM;
	put(c, p->since_thread);
	put(c, thread);
	p->is_raw_old = true;
	p->thread = thread;
	p->since_thread = 1;
	return 0;
}

static int pack_time(struct scry_malloc_pack *p, uint64_t time_ns)
{
	struct column *c = &p->columns[SCRY_MALLOC_COLUMN_TIMES];
	uint64_t passed, ticks;

	if (!p->calls)
		p->first_ns = p->last_ns = p->stamp_ns = time_ns;
	if (time_ns > p->last_ns)
		p->last_ns = time_ns;
	passed = p->last_ns - p->stamp_ns;
	ticks = passed / SCRY_MALLOC_TICK_NS;
	if (ticks && (ticks >= STAMP_TICKS || p->since_stamp >= STAMP_CALLS)) {
		if (column_room(c, ROOM))
			return -ENOMEM;
		put(c, p->since_stamp);
		put(c, ticks);
		p->is_raw_old = true;
		p->stamp_ns += ticks * SCRY_MALLOC_TICK_NS;
		p->since_stamp = 0;
	}
	p->since_stamp++;
	return 0;
}

static bool kind_is(const struct scry_malloc_kind *kind, const struct scry_ev_malloc *call)
{
	return kind->size == call->size && kind->caller == call->caller &&
	       kind->function == call->function && kind->flags == call->flags &&
	       kind->usable == call->usable && kind->align == call->align;
}

static void put_kind(struct scry_malloc_pack *p, const struct scry_malloc_kind *kind,
		     uint32_t guess)
{
	const struct scry_malloc_kind *like = guess ? &p->kinds.rows[guess - 1] : NULL;
	struct column *c = &p->columns[SCRY_MALLOC_COLUMN_KINDS];
	bool is_size = like && like->function == kind->function && like->flags == kind->flags &&
		       like->caller == kind->caller && like->align == kind->align;

	put(&p->columns[SCRY_MALLOC_COLUMN_CODES],
	    is_size ? SCRY_MALLOC_CODE_SIZE : SCRY_MALLOC_CODE_NEW);
	if (!is_size) {
		put(c, kind->function);
		put(c, kind->flags);
		put(c, kind->caller);
		put(c, kind->align);
	}
	put(c, kind->size);
	put_usable(c, kind);
}

/* Writes what was not guessed of the kind; its code is then the guess. */
static int pack_kind(struct scry_malloc_pack *p, const struct scry_ev_malloc *call, uint32_t *guess,
		     uint32_t *ret_code)
{
	struct scry_malloc_kind kind = {
		.size = call->size,
		.usable = call->usable,
		.align = call->align,
		.caller = call->caller,
		.function = (uint8_t)call->function,
		.flags = (uint8_t)call->flags,
		.effect = p->effect,
	};
	uint32_t code = scry_malloc_kinds_find(&p->kinds, &kind);

	if (code) {
		put(&p->columns[SCRY_MALLOC_COLUMN_CODES], SCRY_MALLOC_CODE_KINDS + code - 1);
	} else {
		put_kind(p, &kind, *guess);
		if (scry_malloc_kinds_put(&p->kinds, &kind, true, &code))
			return -ENOMEM;
	}
	if (code)
		*guess = code;
	*ret_code = code;
	return 0;
}

/* `is_ref`: the kind was right. */
static int pack_miss(struct scry_malloc_pack *p, bool is_ref)
{
	if (column_room(&p->columns[SCRY_MALLOC_COLUMN_RUNS], ROOM) ||
	    column_room(&p->columns[SCRY_MALLOC_COLUMN_CODES], ROOM) ||
	    column_room(&p->columns[SCRY_MALLOC_COLUMN_REFS], ROOM) ||
	    column_room(&p->columns[SCRY_MALLOC_COLUMN_KINDS], ROOM))
		return -ENOMEM;
	put(&p->columns[SCRY_MALLOC_COLUMN_RUNS], p->run << 1 | is_ref);
	p->run = 0;
	p->is_raw_old = true;
	return 0;
}

/* Kind and block of a call whose effect is known; *ret_code for the thread. */
static int pack_call(struct scry_malloc_pack *p, struct scry_malloc_thread *t,
		     const struct scry_ev_malloc *call, uint32_t *ret_code)
{
	bool needs_ref = p->effect >= SCRY_MALLOC_EFFECT_AGAIN;
	uint32_t *guess = scry_malloc_guess_code(&p->kinds, t), *ref = NULL, code = *guess;
	bool is_kind = code && kind_is(&p->kinds.rows[code - 1], call), is_ref = true;

	if (!is_kind) {
		if (pack_miss(p, false) || pack_kind(p, call, guess, &code))
			return -ENOMEM;
	}
	if (needs_ref) {
		ref = scry_malloc_guess_ref(&p->kinds, t, code);
		is_ref = scry_malloc_ref_find(&p->blocks, t, *ref) == call->block;
		if (is_kind && !is_ref && pack_miss(p, true))
			return -ENOMEM;
		if (!is_ref)
			*ref = scry_malloc_ref_of(&p->blocks, t, call->block);
		if (!is_kind || !is_ref)
			put(&p->columns[SCRY_MALLOC_COLUMN_REFS], *ref);
	}
	p->run += is_kind && is_ref;
	*ret_code = code;
	return 0;
}

static int pack_blocks(struct scry_malloc_pack *p, struct scry_malloc_thread *t,
		       const struct scry_ev_malloc *call, uint32_t *ret_block)
{
	switch (p->effect) {
	case SCRY_MALLOC_EFFECT_NONE:
		*ret_block = SCRY_MALLOC_NO_BLOCK;
		return 0;
	case SCRY_MALLOC_EFFECT_BEGIN:
		return scry_malloc_blocks_begin(&p->blocks, t, ret_block);
	case SCRY_MALLOC_EFFECT_AGAIN:
		scry_malloc_blocks_again(&p->blocks, t, call->block);
		break;
	case SCRY_MALLOC_EFFECT_END:
		scry_malloc_blocks_end(&p->blocks, t, call->block);
		break;
	case SCRY_MALLOC_EFFECT_ASK:
		break;
	}
	*ret_block = call->block;
	return 0;
}

static size_t raw_bytes(const struct scry_malloc_pack *p)
{
	size_t sum = 0;
	int i;

	for (i = 0; i < SCRY_MALLOC_COLUMNS; i++)
		sum += p->columns[i].len;
	return sum;
}

size_t scry_malloc_pack_pending(const struct scry_malloc_pack *p)
{
	return p->raw > p->calls ? p->raw : p->calls;
}

size_t scry_malloc_pack_bytes(const struct scry_malloc_pack *p)
{
	return sizeof(*p) + scry_malloc_blocks_bytes(&p->blocks) +
	       scry_malloc_kinds_bytes(&p->kinds) - sizeof(p->kinds) + ZSTD_sizeof_CCtx(p->zstd);
}

int scry_malloc_pack_add(struct scry_malloc_pack *p, uint64_t time_ns,
			 const struct scry_ev_malloc *call, uint32_t *ret_block)
{
	enum scry_malloc_effect effect = scry_malloc_effect_of(call->function, call->flags);
	struct scry_malloc_thread *t;
	uint32_t code, block;
	int err;

	if (p->failed)
		return p->failed;
	if (!call->function || call->function >= SCRY_MALLOC_FUNCTIONS || call->flags > UINT8_MAX ||
	    (effect >= SCRY_MALLOC_EFFECT_AGAIN &&
	     !scry_malloc_block_lives(&p->blocks, call->block)))
		return -EINVAL;
	if (effect == SCRY_MALLOC_EFFECT_BEGIN && p->blocks.living == SCRY_MALLOC_BLOCKS_MAX)
		return -ENOSPC;
	if (p->calls >= SCRY_MALLOC_CALLS_MAX || p->raw > SCRY_MALLOC_RAW_MAX - 6 * ROOM)
		return -ENOBUFS;
	p->effect = effect;
	t = scry_malloc_thread_of(&p->blocks, call->thread);
	err = t ? pack_time(p, time_ns) : -ENOMEM;
	if (!err)
		err = pack_thread(p, call->thread);
	if (!err)
		err = pack_call(p, t, call, &code);
	if (!err)
		err = pack_blocks(p, t, call, &block);
	if (err)
		return p->failed = err;
	scry_malloc_thread_saw(t, code);
	p->calls++;
	if (p->is_raw_old)
		p->raw = raw_bytes(p);
	p->is_raw_old = false;
	if (ret_block)
		*ret_block = block;
	return 0;
}

/* The chunk is out, or lost: the next begins. */
static void pack_begin(struct scry_malloc_pack *p)
{
	int i;

	for (i = 0; i < SCRY_MALLOC_COLUMNS; i++)
		p->columns[i].len = 0;
	p->total += p->calls;
	p->calls = p->run = p->raw = 0;
	p->thread = p->since_thread = p->since_stamp = 0;
	p->head = (struct scry_malloc_head){0};
	if (p->kinds.count == SCRY_MALLOC_KINDS_MAX) {
		scry_malloc_kinds_forget(&p->kinds, &p->blocks);
		p->head.flags = SCRY_MALLOC_CHUNK_FRESH;
	}
}

/* Head, frame and padding into p->out. */
static int pack_compress(struct scry_malloc_pack *p)
{
	size_t raw = raw_bytes(p), at = 0, packed;
	size_t bound = sizeof(p->head) + ZSTD_compressBound(raw) + 8;
	struct column all = {0};
	int i;

	p->out.len = 0;
	if (column_room(&p->out, bound) || column_room(&all, raw + 1)) {
		free(all.bytes);
		return -ENOMEM;
	}
	for (i = 0; i < SCRY_MALLOC_COLUMNS; i++) {
		p->head.columns[i] = (uint32_t)p->columns[i].len;
		scry_malloc_planes_split(p->columns[i].bytes, p->columns[i].len, all.bytes + at);
		at += p->columns[i].len;
	}
	packed = ZSTD_compressCCtx(p->zstd, p->out.bytes + sizeof(p->head), bound - sizeof(p->head),
				   all.bytes, raw, LEVEL);
	free(all.bytes);
	if (ZSTD_isError(packed))
		return -ENOMEM;
	p->head.before = p->total;
	p->head.packed = (uint32_t)packed;
	memcpy(p->out.bytes, &p->head, sizeof(p->head));
	p->out.len = sizeof(p->head) + packed;
	while (p->out.len % 8)
		p->out.bytes[p->out.len++] = 0;
	return 0;
}

int scry_malloc_pack_write(struct scry_malloc_pack *p, struct scry_writer *w)
{
	struct scry_packed_run run;
	int err;

	if (p->failed)
		return p->failed;
	if (!p->calls && !p->head.parent_pid)
		return 0;
	err = pack_compress(p);
	if (err) {
		p->failed = err;
		return scry_no_memory("packing the calls of malloc");
	}
	run = (struct scry_packed_run){
		.kind = SCRY_CHUNK_MALLOC,
		.producer = p->producer,
		.payload = p->out.bytes,
		.bytes = p->out.len,
		.count = p->calls,
		.first_ns = p->first_ns,
		.last_ns = p->last_ns,
	};
	pack_begin(p);
	p->is_written = true;
	return scry_writer_packed(w, &run);
}

int scry_malloc_pack_fork(const struct scry_malloc_pack *parent,
			  const struct scry_producer *producer, struct scry_malloc_pack **ret_pack)
{
	struct scry_malloc_pack *p;
	int err = scry_malloc_pack_new(producer, &p);

	if (err)
		return err;
	scry_malloc_blocks_done(&p->blocks);
	if (scry_malloc_blocks_copy(&p->blocks, &parent->blocks)) {
		scry_malloc_pack_free(p);
		return scry_no_memory("the blocks of a forked process");
	}
	scry_malloc_kinds_forget(&p->kinds, &p->blocks);
	if (!parent->is_written && !parent->calls) { /* no reader knows it: it has nothing */
		*ret_pack = p;
		return 0;
	}
	p->head = (struct scry_malloc_head){
		.flags = SCRY_MALLOC_CHUNK_FRESH,
		.parent_pid = parent->producer.pid,
		.parent_ring = parent->producer.ring,
		.parent_start = parent->producer.start_ticks,
		.parent_before = parent->total + parent->calls,
	};
	*ret_pack = p;
	return 0;
}
