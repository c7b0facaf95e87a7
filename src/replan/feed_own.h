/*
 * What the two halves of the feed share: feed.c has the blocks and the calls,
 * feed_streams.c the words of each thread, and when it begins, waits and ends.
 */
#ifndef SCRY_REPLAN_FEED_OWN_H
#define SCRY_REPLAN_FEED_OWN_H

#include <stddef.h>

#include "base/map.h"
#include "replan/feed.h"
#include "replan/feed_think.h"
#include "replan/feed_threads.h"
#include "replan/feed_touch.h"

#define BATCH_FULL 1 /* the call belongs to the next batch */
#define ENDED_LATELY 64u
#define NO_THREAD UINT32_MAX /* whose the call was does not matter: the main thread's */

struct block {		/* of the recording */
	uint32_t slot;	/* + 1; 0: it does not live */
	uint32_t batch; /* in which a thread had it last */
	uint32_t word;	/* there: where a tag goes that publishes it */
	uint32_t begun; /* + 1: the long word by which it got its size; 0: not in this batch */
	uint64_t size;
	uint64_t number; /* of the call by which it got it */
	uint16_t stream; /* which thread had it last */
};

struct slot {
	uint32_t next; /* + 1: free ones */
	uint16_t tag;  /* the last one */
};

struct list { /* of free slots, + 1; the one freed last first */
	uint32_t first, last;
};

/* Streams keep pace, wire/replay.h: all by time, those that hand blocks over by bytes too. */
enum pace { PACE_TIME, PACE_BYTES, PACES };

struct stream {
	uint32_t block, word;  /* where the next word goes; block NONE: not in this batch yet */
	struct list free;      /* those it freed in this batch */
	uint64_t at_us;	       /* the latest time that it has waited for */
	uint32_t epoch[PACES]; /* + 1: the last one it has words in; 0: none in this batch */
	uint32_t spawns;       /* words that begin threads, in this batch, up to its last word */
	uint32_t thread;       /* index */
	bool is_alive;
	bool is_coupled;		 /* it keeps pace by bytes too */
	bool is_unheld;			 /* by those: it enters when it likes */
	uint64_t gap_from_us, gap_calls; /* the time of the call before, and calls at that time */
	int64_t think_ns;		 /* not put yet; below 0: its calls were fast */
};

struct epochs {
	uint32_t number;	/* of the one that runs, in this batch */
	uint32_t gate, need;	/* the last but one; streams that had words in it, 0: none */
	uint32_t before, marks; /* the last one, the same */
	uint32_t active_count;	/* streams with words in this one: */
	uint32_t active[SCRY_REPLAY_STREAMS];
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
	struct list free; /* those of earlier batches: any thread's */
	struct threads threads;
	uint64_t number;     /* of the call, in the recording */
	uint64_t begin_ns;   /* time of the first one */
	uint64_t now_us;     /* since then */
	struct feed_sample { /* the last look at the program's memory, and the one before */
		uint64_t count, number, number_before;
		uint64_t rss_anon, live_bytes;
		uint64_t share_count; /* the look that `share` is of: feed_touch.c */
		int64_t share;
	} sample;
	bool is_touch_recorded; /* the recording says how much of a block was touched when it ends
				 */
	struct scry_map shares; /* number of the call -> touched, of big blocks: feed_touch.h */
	uint64_t passes;
	struct stream streams[SCRY_REPLAY_STREAMS];
	uint32_t stream_count; /* ever used */
	uint32_t block_count;  /* of words, in this batch */
	uint32_t batch, ended, alive;
	uint32_t joined;			  /* that have ended and were waited for */
	struct spawn spawns[SCRY_REPLAY_STREAMS]; /* of this batch */
	uint32_t spawn_count;
	uint64_t ended_us[ENDED_LATELY]; /* when those that ended last made their last call */
	uint32_t alive_max;		 /* threads at once, as the first pass found it; */
	uint64_t live_peak;		 /* the most bytes that lived */
	struct epochs epochs[PACES];
	uint32_t epoch_count; /* of both kinds, in this batch */
	uint64_t epoch_bytes, epoch_calls, epoch_us;
	bool has_main, is_building; /* stream 0 has its thread; only OLDER in this batch */
	struct scry_ev_malloc held; /* a call that belongs to the next batch */
	bool is_held, is_open;	    /* between batch's calls: more may come */
	bool is_whole;		    /* all is in the one batch that is in memory */
	bool is_first;		    /* pass */
	uint64_t curve_step;
	struct gaps gaps;
};

/* Room for `index` in a table; zeroed where new. 0 or -ENOMEM with a sentence. */
int scry_malloc_feed_grow(void *table, size_t *cap, size_t index, size_t item);

/* Room for `count` words of a stream, and one more that leads on. The index of the first. */
uint32_t scry_malloc_feed_room(struct scry_malloc_feed *f, uint32_t stream, uint32_t count);
uint64_t *scry_malloc_feed_word(struct scry_malloc_feed *f, uint32_t index);

/* Puts a short or a long word; its index. */
uint32_t scry_malloc_feed_put(struct scry_malloc_feed *f, uint32_t stream, uint64_t w);
uint32_t scry_malloc_feed_put_long(struct scry_malloc_feed *f, uint32_t stream, uint64_t w,
				   uint64_t w1);

/* A stream has something to do in this epoch, at this time. */
void scry_malloc_feed_pace(struct scry_malloc_feed *f, uint32_t stream);
/* Before each call of the main thread: it has waited for those that ended. */
void scry_malloc_feed_join(struct scry_malloc_feed *f);
/* Ends the epochs that are full; a batch begins. */
void scry_malloc_feed_epoch(struct scry_malloc_feed *f);
void scry_malloc_feed_epochs_begin(struct scry_malloc_feed *f);
/* A block that `from` had is `to`'s now. */
void scry_malloc_feed_crossed(struct scry_malloc_feed *f, uint32_t from, uint32_t to);

/* The stream of a recorded thread. 0, BATCH_FULL or -errno. */
int scry_malloc_feed_stream(struct scry_malloc_feed *f, uint32_t number, uint32_t *ret_stream);
/* The call was made: it may be the thread's last. Then: the recording says that it has ended. */
void scry_malloc_feed_called(struct scry_malloc_feed *f, uint32_t stream);
void scry_malloc_feed_thread_end(struct scry_malloc_feed *f, uint32_t number);
/* The first pass is at its end: threads of which that was not said. */
void scry_malloc_feed_threads_left(struct scry_malloc_feed *f);

#endif
