/* See malloc_feed.h, and wire/replay.h for the words and why nobody waits for ever. */
#include "cmd/malloc_feed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "rec/malloc_effect.h"

#define WINDOW_FULL 1	       /* the call belongs to the next window */
#define SPARE_BLOCKS 4u	       /* of words: what one call can take */
#define THREADS_MAX (1u << 24) /* recorded ones */
#define EPOCH_CALLS 16384u
#define EPOCH_BYTES 65536u
#define EPOCH_SHARE 32u /* of the most that lived at once until then */
#define TAG_HALF 0x8000u
#define SHARE_ALL 65535u
#define NO_THREAD UINT32_MAX /* whose the call was does not matter: the main thread's */

struct block {		 /* of the recording */
	uint32_t slot;	 /* + 1; 0: it does not live */
	uint32_t window; /* in which somebody had it last */
	uint32_t word;	 /* there: where a tag goes that publishes it */
	uint32_t begun;	 /* + 1: the long word by which it got its size; 0: not in this window */
	uint64_t size;
	uint16_t lane; /* who had it last */
};

struct slot {
	uint32_t next; /* + 1: free ones */
	uint16_t tag;  /* the last one */
};

struct list { /* of free slots, + 1; the one freed last first */
	uint32_t first, last;
};

struct lane {
	uint32_t block, word; /* where the next word goes; block NONE: not in this window yet */
	struct list free;     /* those it freed in this window */
	uint32_t epoch;	      /* + 1: the last one it has words in; 0: none in this window */
	uint32_t spawns;      /* words that begin threads, in this window, up to its last word */
	bool is_alive;
};

struct spawn { /* a word that begins a thread */
	uint32_t word;
	uint32_t alive; /* threads then, that one included */
};

struct scry_malloc_feed {
	struct scry_malloc_source *source;
	struct scry_malloc_feed_opts opts;
	int fd;
	struct scry_replay_memory *m;
	struct scry_malloc_feed_stats stats;
	struct block *blocks;
	size_t block_cap;
	struct slot *slots;
	size_t slot_cap;
	struct list free;  /* those of earlier windows: anybody's */
	uint16_t *lane_of; /* by recorded thread: lane + 1 */
	size_t thread_cap;
	struct lane lanes[SCRY_REPLAY_LANES];
	uint32_t lane_count;  /* ever used */
	uint32_t block_count; /* of words, in this window */
	uint32_t window, ended, alive;
	struct spawn spawns[SCRY_REPLAY_LANES]; /* of this window */
	uint32_t spawn_count;
	uint32_t epoch;	       /* in this window */
	uint32_t active_count; /* lanes with words in it: */
	uint32_t active[SCRY_REPLAY_LANES];
	uint32_t before[2]; /* how many the two epochs before had */
	uint64_t epoch_bytes, epoch_calls;
	bool has_main;		    /* lane 0 has its thread */
	struct scry_ev_malloc held; /* a call that belongs to the next window */
	bool is_held, is_open;	    /* between window's calls: more may come */
	bool is_whole;		    /* all is in the one window that stands in memory */
	uint64_t curve_step;
};

/* Makes room for `index` in a table that is zeroed where it is new. */
static int grow(void *table, size_t *cap, size_t index, size_t item)
{
	void **at = table, *more;
	size_t to = *cap ? *cap : 1024;

	if (index < *cap)
		return 0;
	while (to <= index)
		to *= 2;
	more = reallocarray(*at, to, item);
	if (!more)
		return scry_fail(-ENOMEM, "no memory for %zu blocks that live at once", to);
	memset((char *)more + *cap * item, 0, (to - *cap) * item);
	*at = more;
	*cap = to;
	return 0;
}

static uint64_t *word_at(struct scry_malloc_feed *f, uint32_t index)
{
	return &f->m->words[index / SCRY_REPLAY_BLOCK][index % SCRY_REPLAY_BLOCK];
}

/* Room for `count` words of a lane, and one more that leads on. The index of the first. */
static uint32_t room(struct scry_malloc_feed *f, uint32_t number, uint32_t count)
{
	struct lane *l = &f->lanes[number];
	uint32_t index;

	if (l->block == SCRY_REPLAY_NONE) {
		f->m->lanes[number] = l->block = f->block_count++;
		l->word = 0;
	} else if (l->word + count >= SCRY_REPLAY_BLOCK) {
		f->m->words[l->block][l->word] = SCRY_REPLAY_LINK | (uint64_t)f->block_count << 6;
		l->block = f->block_count++;
		l->word = 0;
	}
	index = l->block * SCRY_REPLAY_BLOCK + l->word;
	l->word += count;
	return index;
}

static uint32_t put(struct scry_malloc_feed *f, uint32_t lane, uint64_t w)
{
	uint32_t at = room(f, lane, 1);

	*word_at(f, at) = w;
	f->stats.position++;
	return at;
}

static uint32_t put_long(struct scry_malloc_feed *f, uint32_t lane, uint64_t w, uint64_t w1)
{
	uint32_t at = room(f, lane, 2);

	word_at(f, at)[0] = w | SCRY_REPLAY_LONG;
	word_at(f, at)[1] = w1;
	f->stats.position += 2;
	return at;
}

/* A lane has something to do in this epoch. */
static void pace(struct scry_malloc_feed *f, uint32_t lane)
{
	struct lane *l = &f->lanes[lane];

	if (f->alive < 2 || l->epoch == f->epoch + 1)
		return;
	l->epoch = f->epoch + 1;
	f->active[f->active_count++] = lane;
	if (f->before[1])
		put(f, lane,
		    SCRY_REPLAY_GATE | (uint64_t)(f->epoch - 2) << 6 |
			    (uint64_t)f->before[1] << 32);
}

static void epoch_end(struct scry_malloc_feed *f)
{
	for (uint32_t i = 0; i < f->active_count; i++)
		if (f->lanes[f->active[i]].is_alive) /* else it was put when it ended */
			put(f, f->active[i], SCRY_REPLAY_MARK | (uint64_t)f->epoch << 6);
	f->before[1] = f->before[0];
	f->before[0] = f->active_count;
	f->active_count = 0;
	f->epoch++;
	f->epoch_bytes = f->epoch_calls = 0;
}

/* So much may be begun in an epoch that a replay's live bytes stay near the recording's. */
static bool is_epoch_full(const struct scry_malloc_feed *f)
{
	uint64_t bytes = f->stats.peak_bytes / EPOCH_SHARE;

	return f->epoch_calls >= EPOCH_CALLS ||
	       f->epoch_bytes >= (bytes > EPOCH_BYTES ? bytes : EPOCH_BYTES);
}

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

static int slot_new(struct scry_malloc_feed *f, uint32_t lane, uint32_t *ret_slot)
{
	int err;

	if (slot_pop(f, &f->lanes[lane].free, ret_slot) || slot_pop(f, &f->free, ret_slot))
		return 0;
	if (f->stats.slots == SCRY_REPLAY_SLOTS)
		return scry_fail(-E2BIG, "more than %u blocks live at once", SCRY_REPLAY_SLOTS);
	err = grow(&f->slots, &f->slot_cap, f->stats.slots, sizeof(*f->slots));
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

static int lane_begin(struct scry_malloc_feed *f, uint32_t *ret_lane)
{
	uint32_t lane = 1;

	/* One whose thread has ended in this window still has its words there. */
	while (lane < f->lane_count &&
	       (f->lanes[lane].is_alive || f->lanes[lane].block != SCRY_REPLAY_NONE))
		lane++;
	if (lane == SCRY_REPLAY_LANES) {
		if (f->alive < SCRY_REPLAY_LANES)
			return WINDOW_FULL;
		return scry_fail(-E2BIG, "more than %u threads at once; fix: --threads 1",
				 SCRY_REPLAY_LANES);
	}
	if (lane == f->lane_count)
		f->lane_count++;
	f->lanes[lane] = (struct lane){.block = SCRY_REPLAY_NONE, .is_alive = true};
	f->m->lanes[lane] = SCRY_REPLAY_NONE;
	pace(f, 0);
	f->alive++;
	f->spawns[f->spawn_count++] = (struct spawn){
		.word = put(f, 0, SCRY_REPLAY_SPAWN | lane << 6 | (uint64_t)f->ended << 32),
		.alive = f->alive,
	};
	f->lanes[lane].spawns = f->spawn_count;
	*ret_lane = lane;
	return 0;
}

/* The lane of a recorded thread. 0, WINDOW_FULL or -errno. */
static int lane_of(struct scry_malloc_feed *f, uint32_t thread, uint32_t *ret_lane)
{
	int err;

	*ret_lane = 0;
	if (f->opts.one_thread || thread == NO_THREAD)
		return 0;
	if (thread >= THREADS_MAX)
		return scry_fail(-E2BIG, "more than %u threads", THREADS_MAX);
	err = grow(&f->lane_of, &f->thread_cap, thread, sizeof(*f->lane_of));
	if (err)
		return err;
	if (!f->lane_of[thread]) {
		bool is_main =
			f->source->main_thread ? thread == f->source->main_thread : !f->has_main;

		err = is_main && !f->has_main ? 0 : lane_begin(f, ret_lane);
		if (err)
			return err;
		f->has_main |= is_main;
		f->lane_of[thread] = (uint16_t)(*ret_lane + 1);
		f->stats.threads++;
	}
	*ret_lane = f->lane_of[thread] - 1u;
	return 0;
}

/*
 * The main thread stays: somebody must begin the threads that come later. That a thread has ended
 * is recorded late, but its stream ends behind its last call: threads that were begun since then
 * were begun after it had ended, or as good as.
 */
static void thread_end(struct scry_malloc_feed *f, uint32_t thread)
{
	uint32_t lane;

	if (f->opts.one_thread || thread >= f->thread_cap || f->lane_of[thread] < 2)
		return;
	lane = f->lane_of[thread] - 1u;
	if (f->lanes[lane].epoch == f->epoch + 1)
		put(f, lane, SCRY_REPLAY_MARK | (uint64_t)f->epoch << 6);
	*word_at(f, room(f, lane, 1)) = SCRY_REPLAY_STOP;
	for (uint32_t i = f->lanes[lane].spawns; i < f->spawn_count; i++) {
		*word_at(f, f->spawns[i].word) += UINT64_C(1) << 32;
		f->spawns[i].alive--;
	}
	f->lanes[lane].is_alive = false;
	f->lane_of[thread] = 0;
	f->ended++;
	f->alive--;
}

/*
 * A lane takes the block over: the tag to wait for, 0 none. WINDOW_FULL when a tag of the slot
 * could be mistaken: one window uses tags of one half of the numbers only.
 */
static int take(struct scry_malloc_feed *f, uint32_t lane, struct block *b, uint32_t *ret_tag)
{
	struct slot *s = &f->slots[b->slot - 1];
	uint32_t tag = s->tag + 1u;

	*ret_tag = 0;
	if (b->lane == lane)
		return 0;
	if (b->window != f->window) {
		f->stats.crossed++;
		return 0;
	}
	if (tag % TAG_HALF == 0) {
		s->tag = (uint16_t)tag;
		return WINDOW_FULL;
	}
	f->stats.crossed++;
	f->stats.tags++;
	s->tag = (uint16_t)tag;
	*word_at(f, b->word) |= (uint64_t)tag << 48;
	*ret_tag = tag;
	return 0;
}

static void has(struct scry_malloc_feed *f, uint32_t lane, struct block *b, uint32_t word)
{
	if (b->window != f->window)
		b->begun = 0; /* that word is not there any more */
	b->lane = (uint16_t)lane;
	b->window = f->window;
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
	f->stats.calls++;
	f->stats.by_kind[kind_of(op)]++;
	curve(f);
}

static uint64_t align_bits(uint64_t align)
{
	uint64_t bits = align ? 63u - (uint64_t)__builtin_clzll(align) : 0;

	return bits < SCRY_REPLAY_ALIGN_MAX ? bits : SCRY_REPLAY_ALIGN_MAX;
}

static int begin(struct scry_malloc_feed *f, uint32_t lane, const struct scry_ev_malloc *e,
		 uint32_t op)
{
	bool is_aligned = op >= SCRY_REPLAY_POSIX_MEMALIGN && op <= SCRY_REPLAY_PVALLOC;
	struct block *b = &f->blocks[e->block];
	uint32_t slot = 0, at;
	uint64_t w;
	int err = slot_new(f, lane, &slot);

	if (err)
		return err;
	w = op | (uint64_t)slot << 6;
	b->slot = slot + 1;
	b->size = 0;
	if (is_aligned || e->size > UINT16_MAX)
		at = put_long(f, lane, w | (uint64_t)SHARE_ALL << 32,
			      e->size | (is_aligned ? align_bits(e->align) : 0) << 42);
	else
		at = put(f, lane, w | e->size << 32);
	has(f, lane, b, at);
	b->begun = is_aligned || e->size > UINT16_MAX ? at + 1 : 0;
	f->stats.live_blocks++;
	err = resize(f, b, e->size);
	called(f, op);
	return err;
}

static int again(struct scry_malloc_feed *f, uint32_t lane, const struct scry_ev_malloc *e,
		 uint32_t op)
{
	struct block *b = &f->blocks[e->block];
	uint64_t share = SHARE_ALL, x = 0;
	uint32_t tag, at;
	int err = take(f, lane, b, &tag);

	if (err)
		return err;
	if (e->size <= b->size)
		share = 0; /* nothing of it is new */
	else if (b->size)
		x = (uint64_t)(64.0 * (double)b->size / (double)e->size) & 63;
	at = put_long(f, lane,
		      op | (uint64_t)(b->slot - 1) << 6 | share << 32 | (uint64_t)tag << 48,
		      e->size | x << 42);
	has(f, lane, b, at + 1);
	b->begun = share ? at + 1 : 0;
	err = resize(f, b, e->size);
	called(f, op);
	return err;
}

static int ask(struct scry_malloc_feed *f, uint32_t lane, const struct scry_ev_malloc *e)
{
	struct block *b = &f->blocks[e->block];
	uint32_t tag;
	int err = take(f, lane, b, &tag);

	if (err)
		return err;
	has(f, lane, b,
	    put_long(f, lane,
		     SCRY_REPLAY_USABLE | (uint64_t)(b->slot - 1) << 6 | (uint64_t)tag << 48, 0) +
		    1);
	called(f, SCRY_REPLAY_USABLE);
	return 0;
}

static int end(struct scry_malloc_feed *f, uint32_t lane, const struct scry_ev_malloc *e,
	       uint32_t op)
{
	struct block *b = &f->blocks[e->block];
	uint32_t tag;
	int err = take(f, lane, b, &tag);

	if (err)
		return err;
	put(f, lane, op | (uint64_t)(b->slot - 1) << 6 | (uint64_t)tag << 48);
	slot_push(f, &f->lanes[lane].free, b->slot - 1);
	f->stats.live_bytes -= b->size;
	f->stats.live_blocks--;
	b->slot = 0;
	called(f, op);
	return 0;
}

/* How much of a block the program touched; too late for one of an earlier window. */
static void touched(struct scry_malloc_feed *f, const struct scry_ev_malloc *e)
{
	const struct block *b = e->block < f->block_cap ? &f->blocks[e->block] : NULL;
	uint64_t *w, share;

	if (!b || !b->slot || !b->begun || b->window != f->window || !b->size)
		return;
	share = e->usable >= b->size
			? SHARE_ALL
			: (uint64_t)((double)SHARE_ALL * (double)e->usable / (double)b->size) + 1;
	w = word_at(f, b->begun - 1);
	*w = (*w & ~((uint64_t)SHARE_ALL << 32)) | (share < SHARE_ALL ? share : SHARE_ALL) << 32;
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

static int act(struct scry_malloc_feed *f, uint32_t lane, const struct scry_ev_malloc *e,
	       uint32_t op)
{
	struct block *b = &f->blocks[e->block];
	int err;

	if (is_begin(op) && b->slot) { /* two at one address: the first one's end was not seen */
		err = end(f, lane, e, SCRY_REPLAY_FREE);
		if (err)
			return err;
		f->stats.strange++;
	}
	if (is_begin(op))
		return begin(f, lane, e, op);
	if (!b->slot) {
		f->stats.strange++;
		return 0;
	}
	if (op == SCRY_REPLAY_USABLE)
		return ask(f, lane, e);
	return op < SCRY_REPLAY_USABLE ? again(f, lane, e, op) : end(f, lane, e, op);
}

/* A call. 0, WINDOW_FULL or -errno. */
static int add(struct scry_malloc_feed *f, const struct scry_ev_malloc *e)
{
	uint32_t op, lane;
	int err;

	if (f->block_count + f->active_count + SPARE_BLOCKS > SCRY_REPLAY_BLOCKS ||
	    f->epoch == SCRY_REPLAY_EPOCHS - 1)
		return WINDOW_FULL;
	if (f->active_count && is_epoch_full(f))
		epoch_end(f);
	if (e->function == SCRY_MALLOC_THREAD_END) {
		thread_end(f, e->thread);
		return 0;
	}
	if (e->function == SCRY_MALLOC_TOUCHED) {
		touched(f, e);
		return 0;
	}
	op = operation(f, e);
	if (!op)
		return 0;
	if (e->block >= SCRY_REPLAY_SLOTS || e->size > SCRY_REPLAY_SIZE_MAX) {
		f->stats.strange++;
		return 0;
	}
	err = grow(&f->blocks, &f->block_cap, e->block, sizeof(*f->blocks));
	if (!err)
		err = lane_of(f,
			      e->function == SCRY_MALLOC_OLDER ? f->source->main_thread : e->thread,
			      &lane);
	if (err)
		return err;
	pace(f, lane);
	f->lanes[lane].spawns = f->spawn_count;
	err = act(f, lane, e, op);
	if (err)
		return err;
	f->epoch_calls++;
	f->stats.older += e->function == SCRY_MALLOC_OLDER;
	return 0;
}

static void window_begin(struct scry_malloc_feed *f)
{
	f->window++;
	f->spawn_count = 0;
	f->epoch = f->active_count = f->before[0] = f->before[1] = 0;
	f->epoch_bytes = f->epoch_calls = 0;
	f->stats.windows = f->window;
	f->block_count = 0;
	for (uint32_t i = 0; i < f->lane_count; i++) {
		struct list *l = &f->lanes[i].free;

		f->m->lanes[i] = f->lanes[i].block = SCRY_REPLAY_NONE;
		f->lanes[i].epoch = f->lanes[i].spawns = 0;
		if (!l->first)
			continue;
		f->slots[l->last - 1].next = f->free.first;
		f->free.first = l->first;
		if (!f->free.last)
			f->free.last = l->last;
		l->first = l->last = 0;
	}
	room(f, 0, 0); /* a window has at least the main thread's end */
}

static void window_end(struct scry_malloc_feed *f)
{
	for (uint32_t i = 0; i < f->spawn_count; i++)
		if (f->spawns[i].alive > f->stats.threads_peak)
			f->stats.threads_peak = f->spawns[i].alive;
	for (uint32_t i = 0; i < f->lane_count; i++)
		if (f->lanes[i].is_alive && f->lanes[i].block != SCRY_REPLAY_NONE)
			*word_at(f, room(f, i, 0)) = SCRY_REPLAY_END;
}

static void tell_head(struct scry_malloc_feed *f)
{
	struct scry_replay_head *head = &f->m->head;

	head->window = f->window;
	head->lanes = f->lane_count;
	head->blocks = f->block_count;
	head->slots = f->stats.slots;
}

int scry_malloc_feed_window(struct scry_malloc_feed *f)
{
	const struct scry_ev_malloc *call;
	int got = 1, r = 0;

	if (!f->is_open)
		return 0;
	f->is_open = false;
	if (!f->is_whole) {
		window_begin(f);
		while (r == 0) {
			if (!f->is_held) {
				got = f->source->next(f->source, &call);
				if (got <= 0)
					break;
				f->held = *call;
			}
			r = add(f, &f->held);
			f->is_held = r == WINDOW_FULL;
		}
		if (got < 0 || r < 0)
			return got < 0 ? got : r;
		window_end(f);
		f->is_open = r == WINDOW_FULL;
		f->is_whole = !f->is_open && f->window == 1;
	}
	tell_head(f);
	return 1;
}

int scry_malloc_feed_rewind(struct scry_malloc_feed *f)
{
	f->is_open = true;
	if (f->is_whole)
		return 0;
	memset(&f->stats, 0, sizeof(f->stats));
	if (f->block_cap)
		memset(f->blocks, 0, f->block_cap * sizeof(*f->blocks));
	if (f->slot_cap)
		memset(f->slots, 0, f->slot_cap * sizeof(*f->slots));
	if (f->thread_cap)
		memset(f->lane_of, 0, f->thread_cap * sizeof(*f->lane_of));
	memset(f->lanes, 0, sizeof(f->lanes));
	f->lanes[0].is_alive = true;
	f->lane_count = f->alive = f->stats.threads_peak = 1;
	f->free.first = f->free.last = 0;
	f->window = f->ended = 0;
	f->has_main = f->is_held = false;
	f->curve_step = 1;
	return f->source->rewind(f->source);
}

static int memory_new(struct scry_malloc_feed *f)
{
	f->fd = memfd_create("scry-replay", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (f->fd < 0 || ftruncate(f->fd, sizeof(*f->m)) ||
	    fcntl(f->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return scry_fail(-errno, "no memory for a replay: %s", strerror(errno));
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
		return scry_fail(-ENOMEM, "no memory for a replay");
	f->source = source;
	f->opts = *opts;
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
	free(f->lane_of);
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
