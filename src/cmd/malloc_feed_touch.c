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

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"

#define BIG (128u << 10) /* of smaller ones each page is touched */
#define NEVER_MAX (1u << 20)

static void set_share(struct scry_malloc_feed *f, const struct block *b, uint64_t share)
{
	uint64_t *w = scry_malloc_feed_word(f, b->begun - 1);

	*w = (*w & ~((uint64_t)SHARE_ALL << 32)) | share << 32;
}

/* Too late for a block of an earlier window: its word is not there any more. */
void scry_malloc_feed_touched(struct scry_malloc_feed *f, const struct scry_ev_malloc *e)
{
	struct block *b = e->block < f->block_cap ? &f->blocks[e->block] : NULL;
	uint64_t share;

	if (!b || !b->slot || !b->begun || b->window != f->window || !b->size)
		return;
	share = e->usable >= b->size
			? SHARE_ALL
			: (uint64_t)((double)SHARE_ALL * (double)e->usable / (double)b->size) + 1;
	set_share(f, b, share < SHARE_ALL ? share : SHARE_ALL);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

uint64_t scry_malloc_feed_share(const struct scry_malloc_feed *f, uint64_t size)
{
	if (size < BIG || !f->never_count ||
	    !bsearch(&f->number, f->never, f->never_count, sizeof(*f->never), compare))
		return SHARE_ALL;
	return f->never_share;
}

void scry_malloc_feed_sample(struct scry_malloc_feed *f)
{
	struct feed_sample *s = &f->sample;

	if (!f->is_first || f->source->rss_count == s->count)
		return;
	*s = (struct feed_sample){.count = f->source->rss_count,
				  .number = f->number,
				  .number_before = s->number,
				  .rss_anon = f->source->rss_anon,
				  .live_bytes = f->stats.live_bytes};
}

/* One that was there for two looks, so that there was time to touch it. */
static bool is_never(const struct scry_malloc_feed *f, const struct block *b)
{
	return b->slot && b->size >= BIG && b->number < f->sample.number_before;
}

int scry_malloc_feed_never_ended(struct scry_malloc_feed *f)
{
	const struct feed_sample *s = &f->sample;
	uint64_t bytes = 0, others;

	for (size_t i = 0; i < f->block_cap; i++)
		if (is_never(f, &f->blocks[i]) && f->never_count < NEVER_MAX) {
			bytes += f->blocks[i].size;
			f->never_count++;
		}
	if (!f->never_count)
		return 0;
	others = s->live_bytes > bytes ? s->live_bytes - bytes : 0;
	f->never_share = s->rss_anon <= others ? 0
			 : s->rss_anon - others >= bytes
				 ? SHARE_ALL
				 : (uint64_t)((double)SHARE_ALL * (double)(s->rss_anon - others) /
					      (double)bytes);
	f->never = calloc(f->never_count, sizeof(*f->never));
	if (!f->never)
		return scry_fail(-ENOMEM, "no memory for %zu blocks that never end",
				 f->never_count);
	f->never_count = 0;
	for (size_t i = 0; i < f->block_cap; i++) {
		const struct block *b = &f->blocks[i];

		if (!is_never(f, b) || f->never_count == NEVER_MAX)
			continue;
		f->never[f->never_count++] = b->number;
		if (b->begun && b->window == f->window)
			set_share(f, b, f->never_share);
	}
	qsort(f->never, f->never_count, sizeof(*f->never), compare);
	return 0;
}
