/* The words of each thread, and when it begins, waits and ends: see feed_own.h. */
#include "replan/feed_own.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define EPOCH_CALLS 16384u
#define EPOCH_BYTES 65536u
#define EPOCH_SHARE 32u /* of the most that lived at once until then */
#define ENDS_SEEN 9u	/* so many for each that was not: then that one is taken to have ended */
#define AT_US 500u	/* how exactly a recorded time is kept */
#define EPOCH_US 100000u
#define COUPLED 16u    /* one call in so many hands a block over, or takes one */
#define TAKER 2u       /* a taker takes more than so many times what it gives */
#define SWAPPER 2u     /* it gives no more than so many times what it takes */
#define SHORT 2u       /* a thread that begins no more than so many times what lives at most */
#define BEGIN_US 1000u /* from when a thread is begun to its first call */

int scry_malloc_feed_grow(void *table, size_t *cap, size_t index, size_t item)
{
	void **at = table, *more;
	size_t to = *cap ? *cap : 1024;

	if (index < *cap)
		return 0;
	while (to <= index)
		to *= 2;
	more = reallocarray(*at, to, item);
	if (!more)
		return scry_no_memory("%zu blocks that live at once", to);
	memset((char *)more + *cap * item, 0, (to - *cap) * item);
	*at = more;
	*cap = to;
	return 0;
}

uint64_t *scry_malloc_feed_word(struct scry_malloc_feed *f, uint32_t index)
{
	return &f->m->words[index / SCRY_REPLAY_BLOCK][index % SCRY_REPLAY_BLOCK];
}

uint32_t scry_malloc_feed_room(struct scry_malloc_feed *f, uint32_t number, uint32_t count)
{
	struct stream *l = &f->streams[number];
	uint32_t index;

	if (l->block == SCRY_REPLAY_NONE) {
		f->m->streams[number] = l->block = f->block_count++;
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

uint32_t scry_malloc_feed_put(struct scry_malloc_feed *f, uint32_t stream, uint64_t w)
{
	uint32_t at = scry_malloc_feed_room(f, stream, 1);

	*scry_malloc_feed_word(f, at) = w;
	f->stats.position++;
	return at;
}

uint32_t scry_malloc_feed_put_long(struct scry_malloc_feed *f, uint32_t stream, uint64_t w,
				   uint64_t w1)
{
	uint32_t at = scry_malloc_feed_room(f, stream, 2);

	scry_malloc_feed_word(f, at)[0] = w | SCRY_REPLAY_LONG;
	scry_malloc_feed_word(f, at)[1] = w1;
	f->stats.position += 2;
	return at;
}

/* The stream has something to do in this epoch. */
static void enter(struct scry_malloc_feed *f, uint32_t stream, enum pace pace)
{
	struct epochs *e = &f->epochs[pace];

	if (f->streams[stream].epoch[pace] == e->number + 1)
		return;
	f->streams[stream].epoch[pace] = e->number + 1;
	e->active[e->active_count++] = stream;
	if (e->need && !(pace == PACE_BYTES && f->streams[stream].is_unheld))
		scry_malloc_feed_put(f, stream,
				     SCRY_REPLAY_GATE | (uint64_t)e->gate << 6 |
					     (uint64_t)e->need << 32);
}

/*
 * A thread that begins others waits for their end. That is not recorded, but that they had ended
 * is: what the main thread did behind that it does behind it again. Else the blocks of a round of
 * threads would lie among those of the next.
 */
void scry_malloc_feed_join(struct scry_malloc_feed *f)
{
	if (f->is_first || f->joined == f->ended)
		return;
	f->joined = f->ended;
	scry_malloc_feed_put(f, 0, SCRY_REPLAY_JOIN | (uint64_t)f->ended << 32);
}

void scry_malloc_feed_pace(struct scry_malloc_feed *f, uint32_t stream)
{
	struct stream *l = &f->streams[stream];

	if (f->opts.is_paced && f->now_us >= l->at_us + AT_US) {
		l->at_us = f->now_us;
		scry_malloc_feed_put(f, stream, SCRY_REPLAY_AT | f->now_us << 6);
	}
	if (f->alive < 2)
		return;
	enter(f, stream, PACE_TIME);
	if (l->is_coupled)
		enter(f, stream, PACE_BYTES);
}

static void mark(struct scry_malloc_feed *f, uint32_t stream, uint32_t epoch)
{
	scry_malloc_feed_put(f, stream, SCRY_REPLAY_MARK | (uint64_t)epoch << 6);
}

static void epoch_end(struct scry_malloc_feed *f, struct epochs *e)
{
	for (uint32_t i = 0; i < e->active_count; i++)
		if (f->streams[e->active[i]].is_alive) /* else it was put when it ended */
			mark(f, e->active[i], e->number);
	e->gate = e->before;
	e->need = e->marks;
	e->before = e->number;
	e->marks = e->active_count;
	e->active_count = 0;
	e->number = f->epoch_count++;
}

/* So much may be begun in an epoch that a replay's live bytes stay near the recording's. */
static bool is_epoch_full(const struct scry_malloc_feed *f)
{
	uint64_t bytes = f->stats.peak_bytes / EPOCH_SHARE;

	return f->epoch_calls >= EPOCH_CALLS ||
	       f->epoch_bytes >= (bytes > EPOCH_BYTES ? bytes : EPOCH_BYTES);
}

void scry_malloc_feed_epoch(struct scry_malloc_feed *f)
{
	if (f->epochs[PACE_BYTES].active_count && is_epoch_full(f)) {
		epoch_end(f, &f->epochs[PACE_BYTES]);
		f->epoch_bytes = f->epoch_calls = 0;
	}
	if (f->epochs[PACE_TIME].active_count && f->now_us >= f->epoch_us + EPOCH_US) {
		epoch_end(f, &f->epochs[PACE_TIME]);
		f->epoch_us = f->now_us;
	}
}

void scry_malloc_feed_epochs_begin(struct scry_malloc_feed *f)
{
	f->epoch_count = 0;
	for (uint32_t i = 0; i < PACES; i++) {
		struct epochs *e = &f->epochs[i];

		e->number = f->epoch_count++;
		e->need = e->marks = e->active_count = 0;
	}
	f->epoch_bytes = f->epoch_calls = 0;
	f->epoch_us = f->now_us;
}

/*
 * A thread's first call comes some time after it was begun: one that ended shortly before may have
 * been there then, if it was not one more than ever were there at once. What is taken off the
 * threads that must have ended.
 */
static uint32_t may_overlap(const struct scry_malloc_feed *f)
{
	uint32_t count = 0;

	if (f->is_first)
		return 0;
	while (count < f->ended && count < ENDED_LATELY && f->alive + count < f->alive_max &&
	       f->ended_us[(f->ended - count - 1) % ENDED_LATELY] + BEGIN_US > f->now_us)
		count++;
	return count;
}

/* A thread that hands few blocks over has no queue that would hold it back: as far as the other
 * threads go it may run ahead by time only. In the first pass nothing is known of any thread. */
static bool is_coupled(const struct scry_malloc_feed *f, uint32_t thread)
{
	const struct thread *t = &f->threads.rows[thread];

	return f->is_first || (t->took + t->gave) * COUPLED >= t->calls;
}

/*
 * Nor need a thread hold back that only takes. Nor one that takes as many as it gives, in a life so
 * short that it could not run far: while it waited it would give its processor to the next, and
 * more threads would be under way at once than in the program.
 */
static bool is_unheld(const struct scry_malloc_feed *f, uint32_t thread)
{
	const struct thread *t = &f->threads.rows[thread];

	return !f->is_first && (t->took > t->gave * TAKER ||
				(t->gave <= t->took * SWAPPER && t->begun <= f->live_peak * SHORT));
}

void scry_malloc_feed_crossed(struct scry_malloc_feed *f, uint32_t from, uint32_t to)
{
	uint32_t gives = f->streams[from].thread, takes = f->streams[to].thread;

	if (!f->is_first)
		return;
	if (gives != NO_INDEX)
		f->threads.rows[gives].gave++;
	if (takes != NO_INDEX)
		f->threads.rows[takes].took++;
}

static int stream_begin(struct scry_malloc_feed *f, uint32_t thread, uint32_t *ret_stream)
{
	uint32_t stream = 1;

	/* One whose thread has ended in this batch still has its words there. */
	while (stream < f->stream_count &&
	       (f->streams[stream].is_alive || f->streams[stream].block != SCRY_REPLAY_NONE))
		stream++;
	if (stream == SCRY_REPLAY_STREAMS) {
		if (f->alive < SCRY_REPLAY_STREAMS)
			return BATCH_FULL;
		return scry_fail(-E2BIG, "more than %u threads at once; fix: --threads 1",
				 SCRY_REPLAY_STREAMS);
	}
	if (stream == f->stream_count)
		f->stream_count++;
	f->streams[stream] = (struct stream){.block = SCRY_REPLAY_NONE,
					     .thread = thread,
					     .is_alive = true,
					     .gap_from_us = f->now_us,
					     .is_unheld = is_unheld(f, thread),
					     .is_coupled = is_coupled(f, thread)};
	f->m->streams[stream] = SCRY_REPLAY_NONE;
	scry_malloc_feed_pace(f, 0);
	f->streams[0].gap_from_us = f->now_us; /* beginning a thread is work that is made again */
	f->alive++;
	f->spawns[f->spawn_count++] = (struct spawn){
		.word = scry_malloc_feed_put(f, 0,
					     SCRY_REPLAY_SPAWN | stream << 6 |
						     (uint64_t)(f->ended - may_overlap(f)) << 32),
		.alive = f->alive,
	};
	f->streams[stream].spawns = f->spawn_count;
	*ret_stream = stream;
	return 0;
}

static int thread_of(struct scry_malloc_feed *f, uint32_t number, uint32_t *ret_thread)
{
	struct threads *t = &f->threads;
	uint64_t *index = scry_map_ref(&t->index, number);
	int err;

	if (!index && t->count == THREADS_MAX)
		return scry_fail(-E2BIG, "more than %u threads", THREADS_MAX);
	if (!index)
		return scry_no_memory("%u threads", t->count + 1);
	if (*index == NO_INDEX) {
		err = scry_malloc_feed_grow(&t->rows, &t->cap, t->count + 1, sizeof(*t->rows));
		if (err)
			return err;
		*index = ++t->count;
		t->rows[t->count].number = number;
	}
	*ret_thread = (uint32_t)*index;
	return 0;
}

int scry_malloc_feed_stream(struct scry_malloc_feed *f, uint32_t number, uint32_t *ret_stream)
{
	uint32_t thread = 0;
	int err;

	*ret_stream = 0;
	if (f->opts.one_thread || number == NO_THREAD)
		return 0;
	err = thread_of(f, number, &thread);
	if (err)
		return err;
	if (!f->threads.rows[thread].stream) {
		bool is_main =
			f->source->main_thread ? number == f->source->main_thread : !f->has_main;

		err = is_main && !f->has_main ? 0 : stream_begin(f, thread, ret_stream);
		if (err)
			return err;
		if (!*ret_stream) {
			f->streams[0].thread = thread;
			f->streams[0].is_coupled = is_coupled(f, thread);
			f->streams[0].is_unheld = is_unheld(f, thread);
		}
		f->has_main |= is_main;
		f->threads.rows[thread].stream = (uint16_t)(*ret_stream + 1);
		f->stats.threads++;
	}
	*ret_stream = f->threads.rows[thread].stream - 1u;
	return 0;
}

/*
 * The main thread stays: a thread must begin those that come later. That a thread has ended is
 * recorded late, but its stream ends behind its last call: threads that were begun since then were
 * begun after it had ended, or as good as.
 */
static void stream_end(struct scry_malloc_feed *f, uint32_t thread)
{
	uint32_t stream = f->threads.rows[thread].stream - 1u;

	if (f->threads.rows[thread].stream < 2)
		return;
	for (uint32_t i = 0; i < PACES; i++)
		if (f->streams[stream].epoch[i] == f->epochs[i].number + 1)
			mark(f, stream, f->epochs[i].number);
	*scry_malloc_feed_word(f, scry_malloc_feed_room(f, stream, 1)) = SCRY_REPLAY_STOP;
	for (uint32_t i = f->streams[stream].spawns; i < f->spawn_count; i++) {
		*scry_malloc_feed_word(f, f->spawns[i].word) += UINT64_C(1) << 32;
		f->spawns[i].alive--;
	}
	f->streams[stream].is_alive = false;
	f->threads.rows[thread].stream = 0;
	f->ended_us[f->ended % ENDED_LATELY] = f->now_us;
	f->ended++;
	f->alive--;
}

void scry_malloc_feed_called(struct scry_malloc_feed *f, uint32_t stream)
{
	uint32_t thread = f->streams[stream].thread;
	struct thread *t;

	if (thread == NO_INDEX)
		return;
	t = &f->threads.rows[thread];
	if (f->is_first) {
		t->last = f->number;
		t->calls++;
	} else if (t->has_ended && t->last == f->number) {
		stream_end(f, thread);
	}
}

static void thread_end(struct scry_malloc_feed *f, uint32_t thread)
{
	if (f->is_first)
		f->threads.rows[thread].has_ended = true;
	stream_end(f, thread);
}

void scry_malloc_feed_thread_end(struct scry_malloc_feed *f, uint32_t number)
{
	uint64_t thread;

	if (scry_map_get(&f->threads.index, number, &thread))
		thread_end(f, (uint32_t)thread);
}

/* Ends come late, and so the last ones not at all. In a program whose threads end, they have. */
void scry_malloc_feed_threads_left(struct scry_malloc_feed *f)
{
	const struct thread *rows = f->threads.rows;
	uint64_t seen = 0, left = 0;

	for (uint32_t i = 1; i <= f->threads.count; i++) {
		seen += rows[i].has_ended;
		left += rows[i].last && !rows[i].has_ended;
	}
	for (uint32_t i = 1; i <= f->threads.count && seen >= left * ENDS_SEEN; i++)
		if (rows[i].last && !rows[i].has_ended && rows[i].number != f->source->main_thread)
			thread_end(f, i);
}
