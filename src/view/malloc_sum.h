/*
 * What the calls of malloc functions in a recording come to, one sum for each process.
 *
 * One pass. Memory: 48 bytes for each block of the most that lived at once, and 1,120 bytes a
 * caller; 10 KiB of a process that has ended.
 * The state at the peak is not copied at each new peak: a caller remembers what it held at the peak
 * when it next changes, so a peak costs nothing. In the same way it remembers what it held before
 * the process began to free and hardly began any more: a program that ends may free all it has.
 */
#ifndef SCRY_VIEW_MALLOC_SUM_H
#define SCRY_VIEW_MALLOC_SUM_H

#include "base/map.h"
#include "rec/reader.h"
#include "view/native_frames.h"

#define SCRY_MALLOC_SLICES 32	    /* points of the curve; even */
#define SCRY_MALLOC_MOMENTS 64	    /* evenly apart in time; even */
#define SCRY_MALLOC_SIZE_ROWS 48    /* row i: sizes up to 2^i bytes */
#define SCRY_MALLOC_LIFE_ROWS 24    /* row i: ended within 4^i calls */
#define SCRY_MALLOC_TIME_ROWS 9	    /* row i: ended within 10^i us */
#define SCRY_MALLOC_SHORT_CALLS 256 /* short-lived: ended within so many calls of its process */

struct scry_malloc_held {
	uint64_t blocks, bytes;
};

struct scry_malloc_caller_sum {
	struct scry_ev_caller name; /* zeros, but for the id: not reported */
	uint64_t allocated, bytes;  /* blocks begun or resized here, and what was asked for */
	uint64_t ended;		    /* of these, freed or resized */
	uint64_t short_lived;
	uint64_t temporary; /* freed or resized by the thread that made it before it made another */
	uint64_t size_blocks[SCRY_MALLOC_SIZE_ROWS]; /* as the process's `sizes` */
	uint64_t older; /* bytes of blocks that are older than the recording */
	struct scry_malloc_held live, peak, at;
	struct scry_malloc_held last;	       /* as the process's */
	uint64_t peak_number;		       /* of the peak that `peak` is of */
	uint64_t release_number;	       /* of the release that `last` is before */
	uint64_t moments[SCRY_MALLOC_MOMENTS]; /* live bytes at each */
};

struct scry_malloc_moment {
	uint64_t time_ns, calls;
	struct scry_malloc_held live;
	uint64_t rss; /* RssAnon recorded last; 0 none */
};

#define SCRY_MALLOC_LOOKS 256 /* more that wait are taken at once */

struct scry_malloc_look { /* at resident memory: recorded before the calls of its time */
	uint64_t time_ns, rss;
};

struct scry_malloc_block_sum;

struct scry_malloc_release { /* a run of frees among which hardly a block begins */
	uint64_t number, began_ns;
	uint64_t begun, freed;	     /* bytes, since */
	struct scry_malloc_held was; /* what lived before it */
};

struct scry_malloc_process {
	uint32_t pid;
	uint32_t exe_str;
	bool is_glibc;				/* serves malloc, as far as it is known */
	bool has_vm;				/* a VM is known, which maps a heap of its own */
	struct scry_malloc_caller_sum *callers; /* as they came; [0]: not known; none of a process
						   that has ended and has not most calls */
	uint32_t caller_count, caller_cap;
	struct scry_map caller_places;	      /* id -> place in `callers` */
	struct scry_malloc_block_sum **pages; /* of blocks; NULL: none of them was seen */
	uint32_t page_cap;
	uint64_t calls; /* of the program; what scry itself emitted is in `functions` only */
	uint64_t functions[SCRY_MALLOC_FUNCTIONS];
	uint64_t allocated, bytes; /* without blocks that are older than the recording */
	uint64_t ended;
	uint64_t lived; /* of these, whose beginning was recorded, too; of these: */
	uint64_t short_lived;
	uint64_t foreign_ends; /* by another thread than the one that made it */
	uint64_t temporary;    /* as a caller's; too few where has_more_threads */
	uint32_t
		*newest; /* by thread: the block that it made last, and one; 0: none, or it ended */
	uint32_t newest_cap;
	bool has_more_threads; /* than SCRY_MALLOC_SUM_THREADS */
	uint64_t unknown_ends; /* of blocks made before the recording */
	uint64_t failed, null_frees, moved;
	uint64_t older;
	struct scry_malloc_held live, peak, at;
	struct scry_malloc_release release;
	struct scry_malloc_held last; /* at the end; `is_released`: before the last release */
	uint64_t last_at_ns;	      /* when that was */
	bool has_ended, is_released;  /* by its end it had freed what it held till then */
	uint64_t taken, taken_peak;   /* by blocks that live: usable bytes, and a head for each */
	uint64_t taken_all;	      /* had no block been freed */
	uint64_t peak_number, peak_ns, peak_calls, first_ns, last_ns, at_ns;
	bool has_at;
	struct scry_malloc_moment points[SCRY_MALLOC_SLICES];
	uint32_t point_count;
	uint64_t point_every;		       /* calls */
	uint64_t moments[SCRY_MALLOC_MOMENTS]; /* live bytes, moment_every apart */
	uint32_t moment_count;
	uint64_t moment_every;		    /* ns */
	uint64_t seen_ns;		    /* that it was there: its last call or look */
	uint64_t rss, rss_live, rss_ns;	    /* RssAnon recorded last, what lived then; 0 unknown */
	uint64_t rss_peak, rss_live_peak;   /* of all looks */
	uint64_t held_peak;		    /* that malloc had from the kernel; 0 unknown */
	uint64_t arenas_held;		    /* of it then, in arenas but for the first */
	uint64_t arenas;		    /* at most; 0 unknown */
	uint64_t rss_first, rss_first_live; /* of a look before the first call; 0 none */
	struct scry_malloc_look
		looks[SCRY_MALLOC_LOOKS]; /* that wait for the calls of their time */
	uint32_t look_count;
	uint32_t threads;
	struct scry_ev_allocator allocator;
	struct scry_malloc_held sizes[SCRY_MALLOC_SIZE_ROWS], size_live[SCRY_MALLOC_SIZE_ROWS];
	uint64_t lives[SCRY_MALLOC_LIFE_ROWS], times[SCRY_MALLOC_TIME_ROWS];
};

#define SCRY_MALLOC_SUM_PROCESSES 16384u
#define SCRY_MALLOC_SUM_CALLERS (1u << 19) /* as many as are recorded; those beyond: not known */
#define SCRY_MALLOC_SUM_THREADS (1u << 20)
#define SCRY_MALLOC_SUM_BYTES (2ull << 30) /* of callers and blocks, of all processes together */

struct scry_malloc_sum {
	const struct scry_reader *reader; /* of the events; set by the caller; NULL: of none */
	struct scry_malloc_process **processes;
	struct scry_native_frames stacks; /* of all of them */
	uint32_t count;
	uint32_t living;   /* first; the rest has ended: what follows of their pids is new */
	uint64_t bytes;	   /* of SCRY_MALLOC_SUM_BYTES */
	uint32_t pid;	   /* only this one; 0 all */
	uint64_t began_ns; /* absolute: the first process was entered; set for where none says so */
	bool has_began;
	bool has_at;	   /* a moment is asked for: */
	uint64_t at_ns;	   /* since it began */
	uint64_t left_out; /* calls of processes beyond the table */
};

/* Adds one event, of any type. 0 or -ENOMEM with a sentence. */
int scry_malloc_sum_event(struct scry_malloc_sum *s, const struct scry_event *event);

/* All is read: what `at` and `peak` of each caller are is settled. */
void scry_malloc_sum_close(struct scry_malloc_sum *s);
void scry_malloc_sum_done(struct scry_malloc_sum *s);

/* The process with most calls; NULL: none. */
struct scry_malloc_process *scry_malloc_sum_main(const struct scry_malloc_sum *s);

#endif
