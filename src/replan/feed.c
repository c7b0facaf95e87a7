/* See feed.h, and wire/replay.h for the words and why no thread waits for ever. */
#include "replan/feed_own.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "rec/malloc_effect.h"

#define SPARE_BLOCKS 4u /* of words: what one call can take */
#define TAG_HALF 0x8000u

static void slot_push(struct scry_malloc_feed *f, struct list *list, uint32_t slot)
{
	f->slots[slot].next = list->first;
	list->first = slot + 1;
	if (!list->last)
		list->last = slot + 1;
}

static bool slot_pop(struct scry_malloc_feed *f, struct list *list, uint32_t *ret_slot)
{
	if (!list->first)
		return false;
	*ret_slot = list->first - 1;
	list->first = f->slots[*ret_slot].next;
	if (!list->first)
		list->last = 0;
	return true;
}

static int slot_new(struct scry_malloc_feed *f, uint32_t stream, uint32_t *ret_slot)
{
	int err;

	if (slot_pop(f, &f->streams[stream].free, ret_slot) || slot_pop(f, &f->free, ret_slot))
		return 0;
	if (f->stats.slots == SCRY_REPLAY_SLOTS)
		return scry_fail(-E2BIG, "more than %u blocks live at once", SCRY_REPLAY_SLOTS);
	err = scry_malloc_feed_grow(&f->slots, &f->slot_cap, f->stats.slots, sizeof(*f->slots));
	if (!err)
		*ret_slot = f->stats.slots++;
	return err;
}

/* Keeps at most SCRY_MALLOC_CURVE points: every other goes when there is no room. */
static void curve(struct scry_malloc_feed *f)
{
	struct scry_malloc_feed_stats *s = &f->stats;

	if (s->live_bytes > s->peak_bytes) {
		s->peak_bytes = s->live_bytes;
		s->peak_position = s->position;
	}
	if (s->point_count && s->position - s->points[s->point_count - 1].position < f->curve_step)
		return;
	if (s->point_count == SCRY_MALLOC_CURVE) {
		for (uint32_t i = 0; i < SCRY_MALLOC_CURVE / 2; i++)
			s->points[i] = s->points[i * 2];
		s->point_count /= 2;
		f->curve_step *= 2;
	}
	s->points[s->point_count++] = (struct scry_malloc_point){s->position, s->live_bytes};
}

/*
 * A stream takes the block over: the tag to wait for, 0 none. BATCH_FULL when a tag of the slot
 * could be mistaken: one batch uses tags of one half of the numbers only.
 */
static int take(struct scry_malloc_feed *f, uint32_t stream, struct block *b, uint32_t *ret_tag)
{
	struct slot *s = &f->slots[b->slot - 1];
	uint32_t tag = s->tag + 1u;

	*ret_tag = 0;
	if (b->stream == stream)
		return 0;
	scry_malloc_feed_crossed(f, b->stream, stream);
	if (b->batch != f->batch) {
		f->stats.crossed++;
		return 0;
	}
	if (tag % TAG_HALF == 0) {
		s->tag = (uint16_t)tag;
		return BATCH_FULL;
	}
	f->stats.crossed++;
	f->stats.tags++;
	s->tag = (uint16_t)tag;
	*scry_malloc_feed_word(f, b->word) |= (uint64_t)tag << 48;
	*ret_tag = tag;
	return 0;
}

static void has(struct scry_malloc_feed *f, uint32_t stream, struct block *b, uint32_t word)
{
	if (b->batch != f->batch)
		b->begun = 0; /* that word is not there any more */
	b->stream = (uint16_t)stream;
	b->batch = f->batch;
	b->word = word;
}

static int resize(struct scry_malloc_feed *f, struct block *b, uint64_t size)
{
	f->stats.live_bytes += size - b->size;
	f->epoch_bytes += size > b->size ? size - b->size : 0;
	b->size = size;
	if (size > f->stats.size_max)
		f->stats.size_max = size;
	if (f->stats.live_bytes > f->opts.live_max)
		return scry_fail(-E2BIG,
				 "more than %llu MiB live at once, which is the limit here; "
				 "fix: a machine with more memory, or --memory",
				 (unsigned long long)(f->opts.live_max >> 20));
	return 0;
}

static const uint8_t op_of[SCRY_MALLOC_FUNCTIONS] = {
	[SCRY_MALLOC_MALLOC] = SCRY_REPLAY_MALLOC,
	[SCRY_MALLOC_CALLOC] = SCRY_REPLAY_CALLOC,
	[SCRY_MALLOC_POSIX_MEMALIGN] = SCRY_REPLAY_POSIX_MEMALIGN,
	[SCRY_MALLOC_ALIGNED_ALLOC] = SCRY_REPLAY_ALIGNED_ALLOC,
	[SCRY_MALLOC_MEMALIGN] = SCRY_REPLAY_MEMALIGN,
	[SCRY_MALLOC_VALLOC] = SCRY_REPLAY_VALLOC,
	[SCRY_MALLOC_PVALLOC] = SCRY_REPLAY_PVALLOC,
	[SCRY_MALLOC_NEW] = SCRY_REPLAY_NEW,
	[SCRY_MALLOC_NEW_ARRAY] = SCRY_REPLAY_NEW_ARRAY,
	[SCRY_MALLOC_REALLOC] = SCRY_REPLAY_REALLOC,
	[SCRY_MALLOC_REALLOCARRAY] = SCRY_REPLAY_REALLOCARRAY,
	[SCRY_MALLOC_FREE] = SCRY_REPLAY_FREE,
	[SCRY_MALLOC_DELETE] = SCRY_REPLAY_DELETE,
	[SCRY_MALLOC_DELETE_ARRAY] = SCRY_REPLAY_DELETE_ARRAY,
	[SCRY_MALLOC_USABLE_SIZE] = SCRY_REPLAY_USABLE,
	[SCRY_MALLOC_OLDER] = SCRY_REPLAY_MALLOC,
};

static enum scry_replay_kind kind_of(uint32_t op)
{
	if (op == SCRY_REPLAY_CALLOC)
		return SCRY_REPLAY_KIND_CALLOC;
	if (op >= SCRY_REPLAY_POSIX_MEMALIGN && op <= SCRY_REPLAY_PVALLOC)
		return SCRY_REPLAY_KIND_ALIGNED;
	if (op == SCRY_REPLAY_REALLOC_NULL || op == SCRY_REPLAY_REALLOC ||
	    op == SCRY_REPLAY_REALLOCARRAY)
		return SCRY_REPLAY_KIND_REALLOC;
	if (op == SCRY_REPLAY_USABLE)
		return SCRY_REPLAY_KIND_USABLE;
	return op < SCRY_REPLAY_FREE ? SCRY_REPLAY_KIND_MALLOC : SCRY_REPLAY_KIND_FREE;
}

static void called(struct scry_malloc_feed *f, uint32_t op)
{
	if (f->held.function != SCRY_MALLOC_OLDER) {
		f->stats.calls++;
		f->stats.by_kind[kind_of(op)]++;
	}
	curve(f);
}

static uint64_t align_bits(uint64_t align)
{
	uint64_t bits = align ? 63u - (uint64_t)__builtin_clzll(align) : 0;

	return bits < SCRY_REPLAY_ALIGN_MAX ? bits : SCRY_REPLAY_ALIGN_MAX;
}

static void begun(struct scry_malloc_feed *f, uint32_t stream, uint64_t bytes)
{
	uint32_t thread = f->streams[stream].thread;

	if (f->is_first && thread != NO_INDEX)
		f->threads.rows[thread].begun += bytes;
}

static int begin(struct scry_malloc_feed *f, uint32_t stream, const struct scry_ev_malloc *e,
		 uint32_t op)
{
	bool is_aligned = op >= SCRY_REPLAY_POSIX_MEMALIGN && op <= SCRY_REPLAY_PVALLOC;
	struct block *b = &f->blocks[e->block];
	uint32_t slot = 0, at;
	uint64_t w;
	int err = slot_new(f, stream, &slot);

	if (err)
		return err;
	w = op | (uint64_t)slot << 6;
	b->slot = slot + 1;
	b->size = 0;
	b->number = f->number;
	if (is_aligned || e->size > UINT16_MAX)
		at = scry_malloc_feed_put_long(
			f, stream, w | scry_malloc_feed_share(f, e->size) << 32,
			e->size | (is_aligned ? align_bits(e->align) : 0) << 42);
	else
		at = scry_malloc_feed_put(f, stream, w | e->size << 32);
	has(f, stream, b, at);
	b->begun = is_aligned || e->size > UINT16_MAX ? at + 1 : 0;
	f->stats.live_blocks++;
	err = resize(f, b, e->size);
	begun(f, stream, e->size);
	called(f, op);
	return err;
}

static int again(struct scry_malloc_feed *f, uint32_t stream, const struct scry_ev_malloc *e,
		 uint32_t op)
{
	struct block *b = &f->blocks[e->block];
	uint64_t share = scry_malloc_feed_share(f, e->size), x = 0;
	uint32_t tag, at;
	int err;

	scry_malloc_feed_ends(f, b); /* as it was till now */
	err = take(f, stream, b, &tag);
	if (err)
		return err;
	if (e->size <= b->size)
		share = 0; /* nothing of it is new */
	else if (b->size)
		x = (uint64_t)(64.0 * (double)b->size / (double)e->size) & 63;
	at = scry_malloc_feed_put_long(
		f, stream, op | (uint64_t)(b->slot - 1) << 6 | share << 32 | (uint64_t)tag << 48,
		e->size | x << 42);
	has(f, stream, b, at + 1);
	b->begun = share ? at + 1 : 0;
	b->number = f->number;
	err = resize(f, b, e->size);
	called(f, op);
	return err;
}

static int ask(struct scry_malloc_feed *f, uint32_t stream, const struct scry_ev_malloc *e)
{
	struct block *b = &f->blocks[e->block];
	uint32_t tag;
	int err = take(f, stream, b, &tag);

	if (err)
		return err;
	has(f, stream, b,
	    scry_malloc_feed_put_long(
		    f, stream,
		    SCRY_REPLAY_USABLE | (uint64_t)(b->slot - 1) << 6 | (uint64_t)tag << 48, 0) +
		    1);
	called(f, SCRY_REPLAY_USABLE);
	return 0;
}

static int end(struct scry_malloc_feed *f, uint32_t stream, const struct scry_ev_malloc *e,
	       uint32_t op)
{
	struct block *b = &f->blocks[e->block];
	uint32_t tag;
	int err;

	scry_malloc_feed_ends(f, b);
	err = take(f, stream, b, &tag);
	if (err)
		return err;
	scry_malloc_feed_put(f, stream, op | (uint64_t)(b->slot - 1) << 6 | (uint64_t)tag << 48);
	slot_push(f, &f->streams[stream].free, b->slot - 1);
	f->stats.live_bytes -= b->size;
	f->stats.live_blocks--;
	b->slot = 0;
	called(f, op);
	return 0;
}

static bool is_begin(uint32_t op)
{
	return op <= SCRY_REPLAY_PVALLOC;
}

/* The operation that a call is, 0: none. */
static uint32_t operation(struct scry_malloc_feed *f, const struct scry_ev_malloc *e)
{
	uint32_t op = e->function < SCRY_MALLOC_FUNCTIONS ? op_of[e->function] : 0;
	bool is_realloc = op == SCRY_REPLAY_REALLOC || op == SCRY_REPLAY_REALLOCARRAY;

	switch (scry_malloc_effect_of(e->function, e->flags)) {
	case SCRY_MALLOC_EFFECT_BEGIN:
		if (is_realloc)
			return e->flags & SCRY_MALLOC_NULL ? SCRY_REPLAY_REALLOC_NULL
							   : SCRY_REPLAY_MALLOC;
		if ((op == SCRY_REPLAY_NEW || op == SCRY_REPLAY_NEW_ARRAY) && e->align > 16)
			return SCRY_REPLAY_MEMALIGN; /* what such a new comes to */
		return op;
	case SCRY_MALLOC_EFFECT_END:
		return is_realloc ? SCRY_REPLAY_FREE : op;
	case SCRY_MALLOC_EFFECT_ASK:
		f->stats.failed += is_realloc;
		return is_realloc ? 0 : op;
	case SCRY_MALLOC_EFFECT_AGAIN:
		return op;
	default:
		f->stats.failed += (e->flags & SCRY_MALLOC_FAILED) != 0;
		f->stats.unknown += (e->flags & SCRY_MALLOC_UNKNOWN) != 0;
		f->stats.nulls += (e->flags & SCRY_MALLOC_NULL) != 0;
		return 0;
	}
}

static int act(struct scry_malloc_feed *f, uint32_t stream, const struct scry_ev_malloc *e,
	       uint32_t op)
{
	struct block *b = &f->blocks[e->block];
	int err;

	/* a block of the parent's, by fork: what it becomes is the child's */
	if (!b->slot && !is_begin(op) && op < SCRY_REPLAY_USABLE)
		op = SCRY_REPLAY_MALLOC;
	if (is_begin(op) && b->slot) { /* two at one address: the first one's end was not seen */
		err = end(f, stream, e, SCRY_REPLAY_FREE);
		if (err)
			return err;
		f->stats.strange++;
	}
	if (is_begin(op))
		return begin(f, stream, e, op);
	if (!b->slot) {
		f->stats.strange++;
		return 0;
	}
	if (op == SCRY_REPLAY_USABLE)
		return ask(f, stream, e);
	return op < SCRY_REPLAY_USABLE ? again(f, stream, e, op) : end(f, stream, e, op);
}

/* A call. 0, BATCH_FULL or -errno. */
static int add(struct scry_malloc_feed *f, const struct scry_ev_malloc *e)
{
	bool is_older = e->function == SCRY_MALLOC_OLDER;
	uint32_t op, stream;
	int err;

	if (f->block_count + f->alive + SPARE_BLOCKS > SCRY_REPLAY_BLOCKS ||
	    f->epoch_count + PACES > SCRY_REPLAY_EPOCHS)
		return BATCH_FULL;
	scry_malloc_feed_epoch(f);
	if (e->function == SCRY_MALLOC_THREAD_END) {
		scry_malloc_feed_thread_end(f, e->thread);
		return 0;
	}
	if (e->function == SCRY_MALLOC_TOUCHED) {
		scry_malloc_feed_touched(f, e);
		return 0;
	}
	op = operation(f, e);
	if (!op)
		return 0;
	if (e->block >= SCRY_REPLAY_SLOTS || e->size > SCRY_REPLAY_SIZE_MAX) {
		f->stats.strange++;
		return 0;
	}
	if (f->is_building && !is_older)
		return BATCH_FULL;
	f->is_building = is_older && !f->stats.calls;
	err = scry_malloc_feed_grow(&f->blocks, &f->block_cap, e->block, sizeof(*f->blocks));
	if (!err) /* it is not known which thread made it */
		err = scry_malloc_feed_stream(f, is_older ? NO_THREAD : e->thread, &stream);
	if (err)
		return err;
	if (!stream)
		scry_malloc_feed_join(f);
	if (!is_older)
		scry_malloc_feed_think(f, stream);
	scry_malloc_feed_pace(f, stream);
	f->streams[stream].spawns = f->spawn_count;
	err = act(f, stream, e, op);
	if (err)
		return err;
	f->epoch_calls++;
	f->stats.older += is_older;
	if (!is_older)
		scry_malloc_feed_called(f, stream);
	return 0;
}

static void batch_begin(struct scry_malloc_feed *f)
{
	f->batch++;
	f->is_building = false;
	f->spawn_count = 0;
	scry_malloc_feed_epochs_begin(f);
	f->stats.batches = f->batch;
	f->block_count = 0;
	for (uint32_t i = 0; i < f->stream_count; i++) {
		struct list *l = &f->streams[i].free;

		f->m->streams[i] = f->streams[i].block = SCRY_REPLAY_NONE;
		memset(f->streams[i].epoch, 0, sizeof(f->streams[i].epoch));
		f->streams[i].spawns = 0;
		if (!l->first)
			continue;
		f->slots[l->last - 1].next = f->free.first;
		f->free.first = l->first;
		if (!f->free.last)
			f->free.last = l->last;
		l->first = l->last = 0;
	}
	scry_malloc_feed_room(f, 0, 0); /* a batch has at least the main thread's end */
}

static void batch_end(struct scry_malloc_feed *f)
{
	for (uint32_t i = 0; i < f->spawn_count; i++)
		if (f->spawns[i].alive > f->stats.threads_peak)
			f->stats.threads_peak = f->spawns[i].alive;
	for (uint32_t i = 0; i < f->stream_count; i++)
		if (f->streams[i].is_alive && f->streams[i].block != SCRY_REPLAY_NONE)
			*scry_malloc_feed_word(f, scry_malloc_feed_room(f, i, 0)) = SCRY_REPLAY_END;
}

static void report_head(struct scry_malloc_feed *f)
{
	struct scry_replay_head *head = &f->m->head;

	head->batch = f->batch;
	head->streams = f->stream_count;
	head->blocks = f->block_count;
	head->slots = f->stats.slots;
	head->is_building = f->is_building;
}

/* Times of a source never go back, those of a damaged one do. */
static void read_time(struct scry_malloc_feed *f)
{
	uint64_t now = f->source->time_ns, us;

	f->number++;
	scry_malloc_feed_sample(f);
	if (!f->begin_ns)
		f->begin_ns = now;
	us = now > f->begin_ns ? (now - f->begin_ns) / 1000 : 0;
	if (us > f->now_us && us <= SCRY_REPLAY_US_MAX)
		f->now_us = us;
	f->stats.span_ns = f->now_us * 1000;
}

int scry_malloc_feed_batch(struct scry_malloc_feed *f)
{
	const struct scry_ev_malloc *call;
	int got = 1, r = 0;

	if (!f->is_open)
		return 0;
	f->is_open = false;
	if (!f->is_whole) {
		batch_begin(f);
		while (r == 0) {
			if (!f->is_held) {
				got = f->source->next(f->source, &call);
				if (got <= 0)
					break;
				f->held = *call;
				read_time(f);
			}
			r = add(f, &f->held);
			f->is_held = r == BATCH_FULL;
		}
		if (got < 0 || r < 0)
			return got < 0 ? got : r;
		if (r == 0 && f->is_first)
			scry_malloc_feed_threads_left(f);
		batch_end(f);
		f->is_open = r == BATCH_FULL;
		/* With threads the first pass only learns: how they keep pace is not known in it.
		 */
		f->is_whole = !f->is_open && f->batch == 1 && !(f->is_first && f->spawn_count);
		if (!f->is_open && f->is_first)
			scry_malloc_feed_never_ended(f);
		if (f->is_first) {
			f->alive_max = f->stats.threads_peak;
			f->live_peak = f->stats.peak_bytes;
			scry_malloc_feed_think_learn(f);
		}
		if (r < 0)
			return r;
	}
	report_head(f);
	return 1;
}

int scry_malloc_feed_rewind(struct scry_malloc_feed *f)
{
	const uint64_t looked_bytes = f->stats.looked_bytes;

	f->is_open = true;
	if (f->is_whole)
		return 0;
	f->is_first = !f->passes++;
	f->number = f->begin_ns = f->now_us = 0;
	f->stats = (struct scry_malloc_feed_stats){.looked_bytes = looked_bytes};
	if (f->block_cap)
		memset(f->blocks, 0, f->block_cap * sizeof(*f->blocks));
	if (f->slot_cap)
		memset(f->slots, 0, f->slot_cap * sizeof(*f->slots));
	for (uint32_t i = 1; i <= f->threads.count; i++)
		f->threads.rows[i].stream = 0;
	memset(f->streams, 0, sizeof(f->streams));
	f->streams[0].is_alive = true;
	f->stream_count = f->alive = f->stats.threads_peak = 1;
	f->free.first = f->free.last = 0;
	f->batch = f->ended = f->joined = 0;
	f->has_main = f->is_held = false;
	f->curve_step = 1;
	return f->source->rewind(f->source);
}

static int memory_new(struct scry_malloc_feed *f)
{
	f->fd = memfd_create("scry-replay", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (f->fd < 0 || ftruncate(f->fd, sizeof(*f->m)) ||
	    fcntl(f->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return scry_fail(-errno, "cannot make the memory of a replay: %s", strerror(errno));
	f->m = mmap(NULL, sizeof(*f->m), PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	if (f->m == MAP_FAILED) {
		f->m = NULL;
		return scry_fail(-errno, "cannot map a replay's memory: %s", strerror(errno));
	}
	return 0;
}

int scry_malloc_feed_new(struct scry_malloc_source *source,
			 const struct scry_malloc_feed_opts *opts,
			 struct scry_malloc_feed **ret_feed)
{
	struct scry_malloc_feed *f = calloc(1, sizeof(*f));
	int err;

	if (!f)
		return scry_no_memory("a replay");
	f->source = source;
	f->opts = *opts;
	scry_map_init(&f->shares, SCRY_MALLOC_FEED_SHARES);
	scry_map_init(&f->threads.index, THREADS_MAX);
	err = memory_new(f);
	if (err)
		scry_malloc_feed_free(f);
	else
		*ret_feed = f;
	return err;
}

void scry_malloc_feed_free(struct scry_malloc_feed *f)
{
	if (!f)
		return;
	if (f->m)
		munmap(f->m, sizeof(*f->m));
	if (f->fd >= 0)
		close(f->fd);
	free(f->blocks);
	free(f->slots);
	free(f->threads.rows);
	scry_map_done(&f->threads.index);
	scry_map_done(&f->shares);
	free(f);
}

struct scry_replay_memory *scry_malloc_feed_memory(struct scry_malloc_feed *f)
{
	return f->m;
}

int scry_malloc_feed_fd(const struct scry_malloc_feed *f)
{
	return f->fd;
}

const struct scry_malloc_feed_stats *scry_malloc_feed_stats(const struct scry_malloc_feed *f)
{
	return &f->stats;
}
