/*
 * How much of big blocks the program touched: see malloc_feed_own.h.
 *
 * A recording says it when a block ends (TOUCHED). Of one that never ends nothing is said: a table
 * of 200 MiB of which a program uses six would become 200 in a replay. But what all of them have
 * resident together can be told at the end of the first pass: the anonymous memory that the program
 * had then, less what else lived. What it had besides malloc's makes that too much, never too
 * little; and more than all it cannot be.
 */
#include "cmd/malloc_feed_own.h"

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

/* The word of a block of an earlier window is not there any more. */
void scry_malloc_feed_touched(struct scry_malloc_feed *f, const struct scry_ev_malloc *e)
{
	struct block *b = e->block < f->block_cap ? &f->blocks[e->block] : NULL;
	uint64_t share;

	if (!b || !b->slot || !b->begun || !b->size)
		return;
	share = e->usable >= b->size
			? SHARE_ALL
			: (uint64_t)((double)SHARE_ALL * (double)e->usable / (double)b->size) + 1;
	if (share > SHARE_ALL)
		share = SHARE_ALL;
	if (b->window == f->window)
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

/* One that was there for two looks, or before the recording, whose calls tell of it first: so there
 * was time to touch it. */
static bool is_never(const struct scry_malloc_feed *f, const struct block *b)
{
	return b->slot && b->size >= BIG && f->sample.count &&
	       (b->number < f->sample.number_before || b->number <= f->stats.older);
}

void scry_malloc_feed_never_ended(struct scry_malloc_feed *f)
{
	const struct feed_sample *s = &f->sample;
	uint64_t bytes = 0, others, share;

	f->number++; /* the looks since the last call, which was made before them */
	scry_malloc_feed_sample(f);
	for (size_t i = 0; i < f->block_cap; i++)
		if (is_never(f, &f->blocks[i]))
			bytes += f->blocks[i].size;
	if (!bytes)
		return;
	others = s->live_bytes > bytes ? s->live_bytes - bytes : 0;
	share = s->rss_anon <= others ? 0
		: s->rss_anon - others >= bytes
			? SHARE_ALL
			: (uint64_t)((double)SHARE_ALL * (double)(s->rss_anon - others) /
				     (double)bytes);
	for (size_t i = 0; i < f->block_cap; i++) {
		const struct block *b = &f->blocks[i];

		if (!is_never(f, b))
			continue;
		keep_share(f, b, share);
		if (b->begun && b->window == f->window)
			set_share(f, b, share);
	}
}
