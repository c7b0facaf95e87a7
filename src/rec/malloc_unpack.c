/*
 * The unpacker of malloc calls: malloc_pack.c read backwards. See malloc_pack.h.
 *
 * The payload is hostile. Columns are read within their bounds, each kind and block is checked
 * before it is used as an index, and sizes are refused before memory is asked for.
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

#define SLACK_UNKNOWN 0xffffull
#define SIZE_MAX48 ((1ull << 48) - 1)

struct column {
	const uint8_t *at, *end;
};

struct scry_malloc_unpack {
	struct scry_malloc_blocks blocks;
	uint64_t
		*sizes; /* by block, of blocks that live: bytes asked for << 16 | what more there is
			 */
	uint32_t sizes_cap;
	uint32_t inherited; /* blocks of the parent that are to be given lie from here ... */
	uint32_t inherited_end;
	struct scry_malloc_kinds kinds;
	struct column columns[SCRY_MALLOC_COLUMNS];
	uint8_t *raw;
	size_t raw_cap;
	uint64_t left;	/* calls of the chunk that were not yielded */
	uint64_t total; /* yielded */
	uint64_t run;	/* right guesses before the next miss; UINT64_MAX: no miss follows */
	uint64_t time_ns;
	uint64_t to_stamp, to_thread; /* calls before the next; UINT64_MAX: none */
	uint32_t thread;
	struct scry_malloc_thread *state; /* of it */
	struct scry_malloc_kind kind;	  /* of the last miss */
	bool is_ref;			  /* the next miss is the ref's only */
	bool is_broken;			  /* damaged: what follows cannot be read */
};

int scry_malloc_unpack_new(struct scry_malloc_unpack **ret_unpack)
{
	struct scry_malloc_unpack *u = calloc(1, sizeof(*u));

	if (!u || scry_malloc_blocks_init(&u->blocks, false)) {
		scry_malloc_unpack_free(u);
		return scry_no_memory("unpacking the calls of malloc");
	}
	*ret_unpack = u;
	return 0;
}

void scry_malloc_unpack_free(struct scry_malloc_unpack *u)
{
	if (!u)
		return;
	scry_malloc_blocks_done(&u->blocks);
	scry_malloc_kinds_done(&u->kinds);
	free(u->sizes);
	free(u->raw);
	free(u);
}

size_t scry_malloc_unpack_bytes(const struct scry_malloc_unpack *u)
{
	return sizeof(*u) + scry_malloc_blocks_bytes(&u->blocks) +
	       scry_malloc_kinds_bytes(&u->kinds) - sizeof(u->kinds) +
	       u->sizes_cap * sizeof(*u->sizes) + u->raw_cap;
}

uint64_t scry_malloc_unpack_total(const struct scry_malloc_unpack *u)
{
	return u->total;
}

static bool get_long(struct column *c, uint64_t *ret_value)
{
	uint64_t value = 0;
	unsigned int shift;

	for (shift = 0; shift < 64 && c->at < c->end; shift += 7) {
		uint8_t byte = *c->at++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret_value = value;
			return true;
		}
	}
	return false;
}

static inline bool get(struct column *c, uint64_t *ret_value)
{
	if (c->at < c->end && *c->at < 0x80) {
		*ret_value = *c->at++;
		return true;
	}
	return get_long(c, ret_value);
}

/* For columns that end when nothing more changes. */
static bool get_or_never(struct column *c, uint64_t *ret_value)
{
	*ret_value = UINT64_MAX;
	return c->at == c->end || get(c, ret_value);
}

static bool get_run(struct scry_malloc_unpack *u)
{
	bool is_got = get_or_never(&u->columns[SCRY_MALLOC_COLUMN_RUNS], &u->run);

	u->is_ref = u->run & 1;
	if (u->run != UINT64_MAX)
		u->run >>= 1;
	return is_got;
}

static int unpack_raw(struct scry_malloc_unpack *u, const struct scry_malloc_head *head,
		      const char *frame)
{
	uint32_t raw = scry_malloc_raw_bytes(head);
	uint8_t *at, *from;
	int i;

	if (raw > SCRY_MALLOC_RAW_MAX)
		return -EINVAL;
	if (raw * 2 > u->raw_cap || !u->raw) { /* columns, and planes behind them */
		free(u->raw);
		u->raw_cap = raw * 2 + 1;
		u->raw = malloc(u->raw_cap);
		if (!u->raw) {
			u->raw_cap = 0;
			return -ENOMEM;
		}
	}
	at = u->raw;
	from = at + raw;
	if (ZSTD_decompress(from, raw, frame, head->packed) != raw)
		return -EINVAL;
	for (i = 0; i < SCRY_MALLOC_COLUMNS; i++) {
		if (!scry_malloc_planes_join(from, head->columns[i], at))
			return -EINVAL;
		u->columns[i] = (struct column){at, at + head->columns[i]};
		at += head->columns[i];
		from += head->columns[i];
	}
	return 0;
}

static int unpack_open(struct scry_malloc_unpack *u, const struct scry_chunk *chunk,
		       const char *payload)
{
	struct scry_malloc_head head;
	int err;

	if (chunk->bytes < sizeof(head) || chunk->count > SCRY_MALLOC_CALLS_MAX)
		return -EINVAL;
	memcpy(&head, payload, sizeof(head));
	if (head.before != u->total || head.packed > chunk->bytes - sizeof(head))
		return -EINVAL;
	err = unpack_raw(u, &head, payload + sizeof(head));
	if (err)
		return err;
	if (head.flags & SCRY_MALLOC_CHUNK_FRESH)
		scry_malloc_kinds_forget(&u->kinds, &u->blocks);
	u->time_ns = chunk->first_ns;
	u->thread = 0;
	u->state = NULL;
	u->left = chunk->count;
	return get_run(u) && get_or_never(&u->columns[SCRY_MALLOC_COLUMN_TIMES], &u->to_stamp) &&
			       get_or_never(&u->columns[SCRY_MALLOC_COLUMN_THREADS], &u->to_thread)
		       ? 0
		       : -EINVAL;
}

int scry_malloc_unpack_chunk(struct scry_malloc_unpack *u, const struct scry_chunk *chunk,
			     const void *payload)
{
	int err;

	/* The chunk before was not read to its end: what it did to the blocks is not known. */
	if (u->left)
		u->is_broken = true;
	if (u->is_broken)
		return -EINVAL;
	err = unpack_open(u, chunk, payload);
	if (err) {
		u->left = 0;
		u->is_broken = true;
	}
	return err;
}

static bool unpack_kind(struct scry_malloc_unpack *u, struct scry_malloc_kind *kind, bool is_new)
{
	struct column *c = &u->columns[SCRY_MALLOC_COLUMN_KINDS];
	uint64_t function, flags, caller, usable;

	if (is_new) {
		if (!get(c, &function) || !function || function >= SCRY_MALLOC_FUNCTIONS ||
		    !get(c, &flags) || flags > UINT8_MAX || !get(c, &caller) ||
		    caller > UINT32_MAX || !get(c, &kind->align))
			return false;
		kind->function = (uint8_t)function;
		kind->flags = (uint8_t)flags;
		kind->caller = (uint32_t)caller;
		kind->effect = scry_malloc_effect_of(kind->function, kind->flags);
	}
	if (!get(c, &kind->size) || !get(c, &usable))
		return false;
	kind->usable = scry_malloc_usable_guess(kind->size) + (usable >> 1 ^ -(usable & 1));
	return true;
}

/* After a wrong guess: the kind into u->kind, and its code, 0 when it is not kept. */
static int unpack_miss(struct scry_malloc_unpack *u, uint32_t *guess, uint32_t *ret_code)
{
	struct scry_malloc_kind *kind = &u->kind;
	uint64_t code;

	if (u->is_ref) {
		if (!*guess)
			return -EINVAL;
		*kind = u->kinds.rows[*guess - 1];
		*ret_code = *guess;
		return kind->effect >= SCRY_MALLOC_EFFECT_AGAIN ? 0 : -EINVAL;
	}
	if (!get(&u->columns[SCRY_MALLOC_COLUMN_CODES], &code))
		return -EINVAL;
	if (code >= SCRY_MALLOC_CODE_KINDS) {
		code -= SCRY_MALLOC_CODE_KINDS;
		if (code >= u->kinds.count)
			return -EINVAL;
		*kind = u->kinds.rows[code];
		*guess = *ret_code = (uint32_t)code + 1;
		return 0;
	}
	if (code == SCRY_MALLOC_CODE_SIZE) {
		if (!*guess)
			return -EINVAL;
		*kind = u->kinds.rows[*guess - 1];
		*ret_code = *guess;
	}
	if (!unpack_kind(u, kind, code == SCRY_MALLOC_CODE_NEW))
		return -EINVAL;
	if (scry_malloc_kinds_put(&u->kinds, kind, false, ret_code))
		return -ENOMEM;
	if (*ret_code)
		*guess = *ret_code;
	return 0;
}

static bool size_room(struct scry_malloc_unpack *u, uint32_t block)
{
	uint64_t cap = u->sizes_cap ? u->sizes_cap : 1024;
	uint64_t *more;

	while (cap <= block)
		cap *= 2;
	if (cap > UINT32_MAX)
		return false;
	more = reallocarray(u->sizes, cap, sizeof(*more));
	if (!more)
		return false;
	u->sizes = more;
	u->sizes_cap = (uint32_t)cap;
	return true;
}

/* What a fork child will have. */
static int keep_size(struct scry_malloc_unpack *u, const struct scry_malloc_kind *kind,
		     uint32_t block)
{
	uint64_t slack = kind->usable - kind->size;

	if (block >= u->sizes_cap && !size_room(u, block))
		return -ENOMEM;
	u->sizes[block] = (kind->size < SIZE_MAX48 ? kind->size : SIZE_MAX48) << 16 |
			  (slack < SLACK_UNKNOWN ? slack : SLACK_UNKNOWN);
	return 0;
}

/* `has_ref`: the ref is in its column. */
static int unpack_block(struct scry_malloc_unpack *u, uint32_t *ref,
			const struct scry_malloc_kind *kind, bool has_ref, uint32_t *ret_block)
{
	uint64_t number;
	uint32_t block;
	int err = 0;

	switch ((enum scry_malloc_effect)kind->effect) {
	case SCRY_MALLOC_EFFECT_NONE:
		*ret_block = SCRY_MALLOC_NO_BLOCK;
		return 0;
	case SCRY_MALLOC_EFFECT_BEGIN:
		err = scry_malloc_blocks_begin(&u->blocks, u->state, ret_block);
		return err ? err : keep_size(u, kind, *ret_block);
	default:
		break;
	}
	if (has_ref) {
		if (!get(&u->columns[SCRY_MALLOC_COLUMN_REFS], &number) || number > UINT32_MAX)
			return -EINVAL;
		*ref = (uint32_t)number;
	}
	block = scry_malloc_ref_find(&u->blocks, u->state, *ref);
	if (block == SCRY_MALLOC_NO_BLOCK)
		return -EINVAL;
	if (kind->effect == SCRY_MALLOC_EFFECT_AGAIN) {
		scry_malloc_blocks_again(&u->blocks, u->state, block);
		err = keep_size(u, kind, block);
	}
	if (kind->effect == SCRY_MALLOC_EFFECT_END)
		scry_malloc_blocks_end(&u->blocks, u->state, block);
	*ret_block = block;
	return err;
}

static int unpack_stamps(struct scry_malloc_unpack *u)
{
	struct column *times = &u->columns[SCRY_MALLOC_COLUMN_TIMES];
	struct column *threads = &u->columns[SCRY_MALLOC_COLUMN_THREADS];
	uint64_t value;

	if (!u->to_stamp) {
		if (!get(times, &value) || !get_or_never(times, &u->to_stamp))
			return -EINVAL;
		u->time_ns += value * SCRY_MALLOC_TICK_NS;
	}
	if (!u->to_thread) {
		if (!get(threads, &value) || value > UINT32_MAX ||
		    !get_or_never(threads, &u->to_thread))
			return -EINVAL;
		u->thread = (uint32_t)value;
		u->state = NULL;
	}
	if (!u->state)
		u->state = scry_malloc_thread_of(&u->blocks, u->thread);
	u->to_stamp--;
	u->to_thread--;
	return u->state ? 0 : -ENOMEM;
}

static int unpack_call(struct scry_malloc_unpack *u, struct scry_ev_malloc *ret_call)
{
	const struct scry_malloc_kind *kind = &u->kind;
	struct scry_malloc_thread *t;
	bool is_miss = !u->run;
	uint32_t *guess, *ref, code, block;
	int err = unpack_stamps(u);

	if (err)
		return err;
	t = u->state;
	guess = scry_malloc_guess_code(&u->kinds, t);
	code = *guess;
	if (is_miss)
		err = unpack_miss(u, guess, &code);
	else if (code)
		kind = &u->kinds.rows[code - 1];
	else
		err = -EINVAL;
	if (err)
		return err;
	ref = scry_malloc_guess_ref(&u->kinds, t, code);
	err = unpack_block(u, ref, kind, is_miss, &block);
	if (err)
		return err;
	if (is_miss && !get_run(u))
		return -EINVAL;
	u->run -= !is_miss;
	scry_malloc_thread_saw(t, code);
	*ret_call = (struct scry_ev_malloc){
		.function = kind->function,
		.flags = kind->flags,
		.thread = u->thread,
		.caller = kind->caller,
		.block = block,
		.size = kind->size,
		.usable = kind->usable,
		.align = kind->align,
	};
	return 0;
}

/* The next block that a fork child has of its parent; false: those were all. */
static bool inherits(struct scry_malloc_unpack *u, struct scry_ev_malloc *ret_call)
{
	uint64_t size;

	while (u->inherited < u->inherited_end &&
	       !scry_malloc_block_lives(&u->blocks, u->inherited))
		u->inherited++;
	if (u->inherited == u->inherited_end)
		return false;
	size = u->sizes[u->inherited];
	*ret_call = (struct scry_ev_malloc){
		.function = SCRY_MALLOC_OLDER,
		.block = u->inherited++,
		.size = size >> 16,
		.usable = (size & SLACK_UNKNOWN) == SLACK_UNKNOWN
				  ? 0
				  : (size >> 16) + (size & SLACK_UNKNOWN),
	};
	return true;
}

int scry_malloc_unpack_next(struct scry_malloc_unpack *u, uint64_t *ret_time_ns,
			    struct scry_ev_malloc *ret_call)
{
	if (!u->left)
		return 0;
	*ret_time_ns = u->time_ns;
	if (u->inherited < u->inherited_end && inherits(u, ret_call))
		return 1;
	if (unpack_call(u, ret_call)) {
		u->left = 0;
		u->is_broken = true;
		return -EINVAL;
	}
	u->left--;
	u->total++;
	*ret_time_ns = u->time_ns;
	return 1;
}

int scry_malloc_unpack_parent(const struct scry_chunk *chunk, const void *payload,
			      struct scry_producer *ret_parent, uint64_t *ret_total)
{
	struct scry_malloc_head head;

	if (chunk->bytes < sizeof(head))
		return 0;
	memcpy(&head, payload, sizeof(head));
	if (!head.parent_pid)
		return 0;
	*ret_parent = (struct scry_producer){head.parent_pid, head.parent_ring, head.parent_start};
	*ret_total = head.parent_before;
	return 1;
}

int scry_malloc_unpack_fork(const struct scry_malloc_unpack *parent,
			    struct scry_malloc_unpack **ret_unpack)
{
	struct scry_malloc_unpack *u;
	int err = scry_malloc_unpack_new(&u);

	if (err)
		return err;
	scry_malloc_blocks_done(&u->blocks);
	if (scry_malloc_blocks_copy(&u->blocks, &parent->blocks) ||
	    (parent->blocks.count && !size_room(u, parent->blocks.count - 1))) {
		scry_malloc_unpack_free(u);
		return scry_no_memory("the blocks of a forked process");
	}
	u->inherited_end = u->blocks.count;
	if (u->inherited_end)
		memcpy(u->sizes, parent->sizes, u->inherited_end * sizeof(*u->sizes));
	*ret_unpack = u;
	return 0;
}
