/* What threads did between their calls: a part of feed_own.h, which has its manual. */
#ifndef SCRY_REPLAN_FEED_THINK_H
#define SCRY_REPLAN_FEED_THINK_H

#include <stdint.h>

struct scry_malloc_feed;

#define GAP_BUCKETS 160u
struct gaps { /* between calls of one thread, us: the first pass's */
	uint64_t count[GAP_BUCKETS], sum_us[GAP_BUCKETS];
	uint64_t calls;	  /* in all of them */
	uint64_t max_us;  /* what is longer is waiting */
	uint64_t kept_us; /* all, cut at that */
	uint64_t call_ns; /* of each call: it lies in its gap, but is not work */
};

/* Before each call: what the stream did since its last one becomes a word, once it is long enough.
 */
void scry_malloc_feed_think(struct scry_malloc_feed *f, uint32_t stream);
/* At the first pass's end: which of its gaps were work. */
void scry_malloc_feed_think_learn(struct scry_malloc_feed *f);

#endif
