/*
 * What replays of one malloc recording under several allocators say: a table, a verdict, a picture.
 *
 * The numbers come from cmd/malloc_replay; nothing here starts anything.
 */
#ifndef SCRY_VIEW_MALLOC_REPLAY_H
#define SCRY_VIEW_MALLOC_REPLAY_H

#include "base/buf.h"
#include "view/doc.h"

#define SCRY_REPLAY_RUNS_MAX 99
#define SCRY_REPLAY_ROWS_MAX 16
#define SCRY_REPLAY_KIND_ROWS 6 /* malloc calloc aligned realloc free usable_size */
#define SCRY_REPLAY_CALL_ROWS 7 /* brk mmap munmap mremap madvise mprotect futex */

struct scry_replay_point {
	uint64_t position, bytes;
};

struct scry_replay_spread { /* of a quantity over the runs */
	uint64_t median, least, most;
	uint32_t count;			       /* of runs */
	uint64_t sorted[SCRY_REPLAY_RUNS_MAX]; /* what each had, the least first */
};
/* The rest from `count` values in `sorted`, in any order. */
void scry_replay_spread(struct scry_replay_spread *s);

struct scry_replay_kind_row {
	uint64_t calls, samples;
	uint64_t p50_ns, p99_ns, p999_ns; /* of the samples; upper bounds, within an eighth */
};

struct scry_replay_row {		  /* an allocator */
	const char *label;		  /* as asked for */
	const char *served;		  /* the object that served, as proven */
	uint32_t runs;			  /* 0: it could not be tried */
	struct scry_replay_spread cpu_ns; /* in its calls, and in touching what they gave */
	struct scry_replay_spread rss_peak, rss_end, rss_drained; /* anonymous memory, bytes */
	struct scry_replay_spread faults, kernel_ns;
	uint64_t failed; /* calls that got no memory */
	bool has_syscalls;
	uint64_t syscalls[SCRY_REPLAY_CALL_ROWS]; /* of one replay that was not timed */
	bool has_real;				  /* the program itself was run under it: */
	struct scry_replay_spread real_cpu_ns, real_wall_ns, real_rss;
	struct scry_replay_kind_row all, kinds[SCRY_REPLAY_KIND_ROWS];
	const struct scry_replay_point *points; /* anonymous memory of the median run */
	uint32_t point_count;
};

/* Did it give no memory for more than one in a thousand of the calls? Then its time and memory are
 * of another program. */
bool scry_replay_is_poor(const struct scry_replay_row *row, uint64_t calls);

struct scry_replay_report {
	const struct scry_replay_row *rows; /* the first: what others are compared with */
	uint32_t count;
	bool is_real;		  /* rows are of the program's own runs, in place of replays */
	bool is_by_clock;	  /* real: they take the same time, whatever they do in it */
	const char *touch, *pace; /* the policies' names */
	uint64_t think_ns;	  /* work of the threads between their calls, made again */
	uint64_t span_ns;	  /* recorded; 0 not known */
	bool is_one_thread;	  /* though more were recorded */
	uint64_t calls, words;
	uint64_t threads, threads_peak, crossed;
	uint64_t live_peak_bytes, live_end_bytes, live_end_blocks;
	uint64_t null_cpu_ns;	   /* what the replay itself costs, left out everywhere */
	uint64_t null_spread_ns;   /* and how much that differs from run to run */
	uint64_t program_cpu_ns;   /* of the program that was recorded; 0 not known */
	uint64_t program_rss_peak; /* anonymous memory; 0 not known */
	const struct scry_replay_row *recorded; /* of the allocator that it had then; NULL: none */
	uint64_t recorded_rss;			/* what it had at most under that */
	uint64_t processors;			/* of this machine */
	const struct scry_replay_point *live;	/* bytes asked for */
	uint32_t live_count;
	const struct scry_data_quality *quality;
	const char *const *notes;
	uint32_t note_count;
};

struct scry_replay_verdict {
	int winner;		    /* index of a row; -1: none, or it is not known */
	int best_time, best_memory; /* the best by one alone, if better than the first; -1: none */
	char sentence[768];
};

/*
 * Which allocator suits: the one that is better than the first in time or memory, and not worse in
 * the other. A difference counts when nine of ten pairs of runs, one of each, say the same, and it
 * is at least 3 %: a replay does not predict more exactly than that (memory, where threads hand
 * many blocks over: 25 %), and more than can be told apart: of memory 256 KiB, of time what a
 * replay without an allocator differs by. Time counts where one of the two takes 10 ms, memory
 * where replays under the first have a tenth of what the program had when it was recorded. Fewer
 * than 3 runs say nothing, nor does a recording that lacks more than a thousandth of its calls. Of
 * two sets of five runs that differ by nothing 1 in 30 seem to.
 */
void scry_replay_judge(const struct scry_replay_report *report,
		       struct scry_replay_verdict *ret_verdict);

/*
 * Do the real runs end by the clock? They take equally long, the shortest ones within 1 % and 10
 * ms, though replays or processor time differ by three times as much for each thread: then the
 * faster one does more, and processor time says nothing.
 */
bool scry_replay_is_by_clock(const struct scry_replay_report *report);

/* The same of the real runs; as if there were too few where a row has none. */
void scry_replay_judge_real(const struct scry_replay_report *report,
			    struct scry_replay_verdict *ret_verdict);

/* Is the report's verdict that of the real runs? They show what replays only predict, where two
 * allocators have some and these do not end by the clock. */
bool scry_replay_goes_by_real(const struct scry_replay_report *report);

/* Pushes the document: schema scry.malloc-replay/2. */
void scry_replay_push(const struct scry_replay_report *report, struct scry_doc *doc);

/* Memory over the recording's words, all allocators beside the bytes asked for: one SVG, and the
 * same in a page of HTML with the verdict and the table. 0 or -ENOMEM. */
int scry_replay_svg(const struct scry_replay_report *report, struct scry_buf *out);
int scry_replay_html(const struct scry_replay_report *report, struct scry_buf *out);

#endif
