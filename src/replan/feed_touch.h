/* How much of big blocks the program touched: a part of feed_own.h, which has its manual. */
#ifndef SCRY_REPLAN_FEED_TOUCH_H
#define SCRY_REPLAN_FEED_TOUCH_H

#include <stdint.h>

struct scry_malloc_feed;
struct block;
struct scry_ev_malloc;

/* How much of a block was touched, in 65535ths, as far as it is known before it ends. */
#define SHARE_ALL 65535u
#define SCRY_MALLOC_FEED_SHARES (1u << 20) /* that come too late for their batch, at the most */
uint64_t scry_malloc_feed_share(const struct scry_malloc_feed *f, uint64_t size);
/* The recording says so before it ends. */
void scry_malloc_feed_touched(struct scry_malloc_feed *f, const struct scry_ev_malloc *e);
/* Before each call: was the program's memory looked at? */
void scry_malloc_feed_sample(struct scry_malloc_feed *f);
/* Before `b` ends. */
void scry_malloc_feed_ends(struct scry_malloc_feed *f, const struct block *b);
/* At the first pass's end. */
void scry_malloc_feed_never_ended(struct scry_malloc_feed *f);

#endif
