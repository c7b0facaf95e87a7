/*
 * Calls of a malloc recording -> batches of words that scry-replay plays (wire/replay.h).
 *
 * The one pass over the calls gives each block a slot and each thread a stream, and finds where one
 * thread takes a block over from another. A recording that fits into one batch (some 15 million
 * calls) is decoded once for all runs, twice with threads; a longer one again for each. Memory: the
 * batch's 128 MiB, 40 bytes for each block that lives at once and 8 for each slot.
 *
 * One thread. Life: new; then for each run rewind, and batch until it returns 0; free.
 */
#ifndef SCRY_REPLAN_FEED_H
#define SCRY_REPLAN_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/event.h"
#include "wire/replay_head.h"

/* Where calls come from: those of one process, in their order. */
struct scry_malloc_source {
	int (*rewind)(struct scry_malloc_source *s); /* 0 or -errno with a sentence */
	/* 1 and the next call, valid until the next; 0 at the end; -errno with a sentence */
	int (*next)(struct scry_malloc_source *s, const struct scry_ev_malloc **ret_call);
	uint64_t time_ns;  /* of the call that next gave, as exact as the recording; 0: not known */
	uint64_t rss_anon; /* what the program had when it was last looked at, bytes */
	uint64_t rss_count;   /* how often it was, in the first pass */
	uint32_t main_thread; /* its number; 0: the first that makes a call */
	uint64_t cpu_ns;      /* of the program, when the first pass is over; 0: not known */
};

#define SCRY_MALLOC_CURVE 2048u
struct scry_malloc_point {
	uint64_t position; /* words, as in head->position */
	uint64_t live;	   /* bytes asked for */
};

struct scry_malloc_feed_stats { /* of what was read in the last run */
	uint64_t calls;		/* that are replayed, but for `older` */
	uint64_t by_kind[SCRY_REPLAY_KINDS];
	uint64_t nulls;	   /* not replayed: free(NULL) and the like */
	uint64_t failed;   /* not replayed: got no memory when recorded */
	uint64_t unknown;  /* not replayed: of blocks that the recording does not know */
	uint64_t strange;  /* not replayed, or mended: calls that cannot have been */
	uint64_t older;	   /* blocks older than the recording, made in batches of their own */
	uint64_t crossed;  /* ends, reallocs and questions by another thread than had it before */
	uint64_t tags;	   /* of these, in one batch: threads may have to wait */
	uint64_t position; /* words */
	uint32_t batches, slots;
	uint32_t threads, threads_peak;
	uint64_t live_blocks, live_bytes;   /* at the end */
	uint64_t peak_bytes, peak_position; /* of live bytes */
	uint64_t looked_bytes; /* at most, until the last look at the program's memory */
	uint64_t size_max;
	uint64_t think_ns;    /* of all threads: THINK */
	uint64_t span_ns;     /* recorded, from the first call to the last */
	uint32_t point_count; /* live bytes, evenly over the words; the peak apart */
	struct scry_malloc_point points[SCRY_MALLOC_CURVE];
};

struct scry_malloc_feed_opts {
	bool one_thread;   /* all calls by the main thread */
	bool is_paced;	   /* with the times of the calls: AT */
	bool is_thinking;  /* with what threads did between them, where there are several: THINK */
	uint64_t live_max; /* bytes that may live at once: more is refused */
};

struct scry_malloc_feed;

/* `source` stays the caller's and must live as long. 0 or -errno with a sentence. */
int scry_malloc_feed_new(struct scry_malloc_source *source,
			 const struct scry_malloc_feed_opts *opts,
			 struct scry_malloc_feed **ret_feed);
void scry_malloc_feed_free(struct scry_malloc_feed *f); /* NULL is legal */

/* Back to the first batch. 0 or the source's error. */
int scry_malloc_feed_rewind(struct scry_malloc_feed *f);

/*
 * That threads work between their calls for `work_ns` in all (0: not at all), where there are
 * several: in each stream the length of its gaps, less the same time for each call. It comes out
 * somewhat longer where some streams' gaps are shorter than that: stats' think_ns is what it is.
 * Legal once the first pass is over; holds from the next rewind on.
 */
void scry_malloc_feed_work(struct scry_malloc_feed *f, uint64_t work_ns);

/* Makes the next batch, its numbers in the head included. 1; 0: there are no more; -errno with a
 * sentence: the source's, -E2BIG beyond the limits. */
int scry_malloc_feed_batch(struct scry_malloc_feed *f);

struct scry_replay_memory *scry_malloc_feed_memory(struct scry_malloc_feed *f);
int scry_malloc_feed_fd(const struct scry_malloc_feed *f); /* sealed, close-on-exec; stays its */
const struct scry_malloc_feed_stats *scry_malloc_feed_stats(const struct scry_malloc_feed *f);

#endif
