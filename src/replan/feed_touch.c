/*
 * How much of big blocks the program touched: see feed_own.h.
 *
 * Recordings of older builds say it when a block ends (TOUCHED). Else nothing is known: a table of
 * 200 MiB of which a program uses six would become 200 in a replay. But what all that were there
 * for a while have resident together is known when the program's memory was looked at: its
 * anonymous memory then, less what else lived. That is asked when one of them ends, and at the end
 * of the first pass of the threads that never do. What the program had besides malloc's makes it
 * too much, never too little; and more than all it cannot be.
 */
#include "replan/feed_own.h"

#define BIG (128u << 10) /* of smaller ones each page is touched */

static void set_share(struct scry_malloc_feed *f, const struct block *b, uint64_t share)
{
	uint64_t *w = scry_malloc_feed_word(f, b->begun - 1);

	*w = (*w & ~((uint64_t)SHARE_ALL << 32)) | share << 32;
}

/* For the passes to come; of more big blocks than the map takes, all is touched. */
static void keep_share(struct scry_malloc_feed *f, const struct block *b, uint64_t share)
{
	if (f->is_first && b->size >= BIG)
		scry_map_put(&f->shares, b->number, share);
}

/* The word of a block of an earlier batch is not there any more. */
void scry_malloc_feed_touched(struct scry_malloc_feed *f, const struct scry_ev_malloc *e)
{
	struct block *b = e->block < f->block_cap ? &f->blocks[e->block] : NULL;
	uint64_t share;

	f->is_touch_recorded = true;
	if (!b || !b->slot || !b->begun || !b->size)
		return;
	share = e->usable >= b->size
			? SHARE_ALL
			: (uint64_t)((double)SHARE_ALL * (double)e->usable / (double)b->size) + 1;
	if (share > SHARE_ALL)
		share = SHARE_ALL;
	if (b->batch == f->batch)
		set_share(f, b, share);
	else
		keep_share(f, b, share);
}

uint64_t scry_malloc_feed_share(const struct scry_malloc_feed *f, uint64_t size)
{
	uint64_t share;

	return size >= BIG && scry_map_get(&f->shares, f->number, &share) ? share : SHARE_ALL;
}

void scry_malloc_feed_sample(struct scry_malloc_feed *f)
{
	struct feed_sample *s = &f->sample;

	if (!f->is_first || f->source->rss_count == s->count)
		return;
	f->stats.looked_bytes = f->stats.peak_bytes;
	*s = (struct feed_sample){.count = f->source->rss_count,
				  .number = f->number,
				  .number_before = f->source->rss_count - s->count > 1 ? f->number
										       : s->number,
				  .rss_anon = f->source->rss_anon,
				  .live_bytes = f->stats.live_bytes};
}

/* One that was there for two looks, or before the recording, whose calls show it first: so there
 * was time to touch it. */
static bool is_never(const struct scry_malloc_feed *f, const struct block *b)
{
	return b->slot && b->size >= BIG && f->sample.count &&
	       (b->number < f->sample.number_before || b->number <= f->stats.older);
}

/* Of all that were there for a while, by the last look. -1: there are none. */
static int64_t share_by_look(const struct scry_malloc_feed *f)
{
	const struct feed_sample *s = &f->sample;
	uint64_t bytes = 0, others;

	for (size_t i = 0; i < f->block_cap; i++)
		if (is_never(f, &f->blocks[i]))
			bytes += f->blocks[i].size;
	if (!bytes)
		return -1;
	others = s->live_bytes > bytes ? s->live_bytes - bytes : 0;
	if (s->rss_anon <= others)
		return 0;
	if (s->rss_anon - others >= bytes)
		return SHARE_ALL;
	return (int64_t)((double)SHARE_ALL * (double)(s->rss_anon - others) / (double)bytes);
}

static void give_share(struct scry_malloc_feed *f, const struct block *b, uint64_t share)
{
	keep_share(f, b, share);
	if (b->begun && b->batch == f->batch)
		set_share(f, b, share);
}

/* All is asked once a look: blocks may be many. */
void scry_malloc_feed_ends(struct scry_malloc_feed *f, const struct block *b)
{
	struct feed_sample *s = &f->sample;

	if (!f->is_first || f->is_touch_recorded || !is_never(f, b))
		return;
	if (s->share_count != s->count)
		s->share = share_by_look(f);
	s->share_count = s->count;
	if (s->share >= 0)
		give_share(f, b, (uint64_t)s->share);
}

void scry_malloc_feed_never_ended(struct scry_malloc_feed *f)
{
	int64_t share;

	f->number++; /* the looks since the last call, which was made before them */
	scry_malloc_feed_sample(f);
	share = share_by_look(f);
	for (size_t i = 0; i < f->block_cap && share >= 0; i++)
		if (is_never(f, &f->blocks[i]))
			give_share(f, &f->blocks[i], (uint64_t)share);
}
