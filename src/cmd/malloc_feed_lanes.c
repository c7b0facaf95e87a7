/* The words of each thread, and when it begins, waits and ends: see malloc_feed_own.h. */
#include "cmd/malloc_feed_own.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define THREADS_MAX (1u << 24) /* recorded ones */
#define EPOCH_CALLS 16384u
#define EPOCH_BYTES 65536u
#define EPOCH_SHARE 32u /* of the most that lived at once until then */
#define ENDS_SEEN 9u	/* so many for each that was not: then that one is taken to have ended */
#define AT_US 500u	/* how exactly a recorded time is kept */

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
		return scry_fail(-ENOMEM, "no memory for %zu blocks that live at once", to);
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

uint32_t scry_malloc_feed_put(struct scry_malloc_feed *f, uint32_t lane, uint64_t w)
{
	uint32_t at = scry_malloc_feed_room(f, lane, 1);

	*scry_malloc_feed_word(f, at) = w;
	f->stats.position++;
	return at;
}

uint32_t scry_malloc_feed_put_long(struct scry_malloc_feed *f, uint32_t lane, uint64_t w,
				   uint64_t w1)
{
	uint32_t at = scry_malloc_feed_room(f, lane, 2);

	scry_malloc_feed_word(f, at)[0] = w | SCRY_REPLAY_LONG;
	scry_malloc_feed_word(f, at)[1] = w1;
	f->stats.position += 2;
	return at;
}

void scry_malloc_feed_pace(struct scry_malloc_feed *f, uint32_t lane)
{
	struct lane *l = &f->lanes[lane];

	if (f->opts.is_paced && f->now_us >= l->at_us + AT_US) {
		l->at_us = f->now_us;
		scry_malloc_feed_put(f, lane, SCRY_REPLAY_AT | f->now_us << 6);
	}
	if (f->alive < 2 || l->epoch == f->epoch + 1)
		return;
	l->epoch = f->epoch + 1;
	f->active[f->active_count++] = lane;
	if (f->before[1])
		scry_malloc_feed_put(f, lane,
				     SCRY_REPLAY_GATE | (uint64_t)(f->epoch - 2) << 6 |
					     (uint64_t)f->before[1] << 32);
}

static void epoch_end(struct scry_malloc_feed *f)
{
	for (uint32_t i = 0; i < f->active_count; i++)
		if (f->lanes[f->active[i]].is_alive) /* else it was put when it ended */
			scry_malloc_feed_put(f, f->active[i],
					     SCRY_REPLAY_MARK | (uint64_t)f->epoch << 6);
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

void scry_malloc_feed_epoch(struct scry_malloc_feed *f)
{
	if (f->active_count && is_epoch_full(f))
		epoch_end(f);
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
	scry_malloc_feed_pace(f, 0);
	f->alive++;
	f->spawns[f->spawn_count++] = (struct spawn){
		.word = scry_malloc_feed_put(
			f, 0, SCRY_REPLAY_SPAWN | lane << 6 | (uint64_t)f->ended << 32),
		.alive = f->alive,
	};
	f->lanes[lane].spawns = f->spawn_count;
	*ret_lane = lane;
	return 0;
}

int scry_malloc_feed_lane(struct scry_malloc_feed *f, uint32_t thread, uint32_t *ret_lane)
{
	int err;

	*ret_lane = 0;
	if (f->opts.one_thread || thread == NO_THREAD)
		return 0;
	if (thread >= THREADS_MAX)
		return scry_fail(-E2BIG, "more than %u threads", THREADS_MAX);
	err = scry_malloc_feed_grow(&f->lane_of, &f->thread_cap, thread, sizeof(*f->lane_of));
	if (!err)
		err = scry_malloc_feed_grow(&f->last_of, &f->last_cap, thread, sizeof(*f->last_of));
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
static void lane_end(struct scry_malloc_feed *f, uint32_t thread)
{
	uint32_t lane;

	if (f->opts.one_thread || thread >= f->thread_cap || f->lane_of[thread] < 2)
		return;
	lane = f->lane_of[thread] - 1u;
	if (f->lanes[lane].epoch == f->epoch + 1)
		scry_malloc_feed_put(f, lane, SCRY_REPLAY_MARK | (uint64_t)f->epoch << 6);
	*scry_malloc_feed_word(f, scry_malloc_feed_room(f, lane, 1)) = SCRY_REPLAY_STOP;
	for (uint32_t i = f->lanes[lane].spawns; i < f->spawn_count; i++) {
		*scry_malloc_feed_word(f, f->spawns[i].word) += UINT64_C(1) << 32;
		f->spawns[i].alive--;
	}
	f->lanes[lane].is_alive = false;
	f->lane_of[thread] = 0;
	f->ended++;
	f->alive--;
}

/* In the first pass the last call so far, times two; bit 0: the thread has ended. */
void scry_malloc_feed_called(struct scry_malloc_feed *f, uint32_t thread)
{
	if (f->opts.one_thread || thread >= f->last_cap)
		return;
	if (f->is_first)
		f->last_of[thread] = f->number << 1;
	else if (f->last_of[thread] == (f->number << 1 | 1))
		lane_end(f, thread);
}

void scry_malloc_feed_thread_end(struct scry_malloc_feed *f, uint32_t thread)
{
	if (f->is_first && thread < f->last_cap)
		f->last_of[thread] |= 1;
	lane_end(f, thread);
}

/* Ends come late, and so the last ones not at all. In a program whose threads end, they have. */
void scry_malloc_feed_threads_left(struct scry_malloc_feed *f)
{
	uint64_t seen = 0, left = 0;

	for (size_t i = 0; i < f->last_cap; i++) {
		seen += f->last_of[i] & 1;
		left += f->last_of[i] && !(f->last_of[i] & 1);
	}
	for (uint32_t i = 0; i < f->last_cap && seen >= left * ENDS_SEEN; i++)
		if (f->last_of[i] && !(f->last_of[i] & 1) && i != f->source->main_thread)
			scry_malloc_feed_thread_end(f, i);
}
