/*
 * The data quality of a recording: what was watched, what is missing from it, what watching cost.
 *
 * Every view gives each event to scry_data_quality_event and, when all are read, closes the sum
 * with scry_data_quality_close and shows it first. What the recording does not say is unknown and
 * not shown. Losses: TOTALS.lost and LOST events may count the same events, so the greater sum
 * counts. A LOST event of 0 says that their number is not known.
 */
#ifndef SCRY_VIEW_DATA_QUALITY_H
#define SCRY_VIEW_DATA_QUALITY_H

#include "base/buf.h"
#include "rec/reader.h"
#include "view/doc.h"

#define SCRY_DATA_QUALITY_PROCESSES 64 /* listed; more are counted */
#define SCRY_DATA_QUALITY_SEEN 1024    /* distinguished from others; a watch has rows of 256 */
#define SCRY_DATA_QUALITY_NOTES 64
#define SCRY_DATA_QUALITY_CAUSES 16

struct scry_data_quality_process {
	uint32_t pid;
	uint32_t exe_str;
	uint32_t runtime_str;
	uint64_t start_ticks;
};

struct scry_data_quality_cause {
	uint32_t why_str;
	uint64_t count;
};

struct scry_data_quality {
	const struct scry_reader *reader;
	const char *label;   /* of the recording, where two are compared; NULL: none */
	bool has_own_errors; /* the rows have errors that are the program's: ours are told apart */
	const char *noun;    /* of what `shown` counts: "objects", "calls"; NULL: nothing to say */
	uint64_t shown;
	uint32_t instrument_str;
	struct scry_data_quality_process processes[SCRY_DATA_QUALITY_PROCESSES];
	struct scry_data_quality_seen {
		uint32_t pid;
		uint64_t start_ticks;
	} seen[SCRY_DATA_QUALITY_SEEN]; /* each process once */
	uint32_t seen_count;
	uint32_t process_count;	 /* programs; may exceed what is listed */
	uint32_t exec_count;	 /* of them: what one ran in its place */
	uint32_t nameless_count; /* beside them: without an event, set by the view */
	/* Each once: what notes say of several processes, too. `text_str` as it is of the first. */
	struct scry_data_quality_note {
		uint32_t text_str, others, is_cost;
	} notes[SCRY_DATA_QUALITY_NOTES];
	uint32_t note_count; /* may exceed what is listed */
	struct scry_data_quality_cause causes[SCRY_DATA_QUALITY_CAUSES];
	uint32_t cause_count;
	bool has_totals;       /* after close: of all that were watched */
	bool has_one_totals;   /* one event for all processes */
	uint32_t totals_count; /* processes that have theirs */
	uint32_t unended;      /* programs that lack theirs, where others have them */
	bool has_pause;
	bool is_moment; /* set by a view that ends before the recording does: its GCs are not known
			 */
	uint64_t events, lost, errors; /* lost and errors are final after close */
	uint64_t lost_events, read_errors, read_beyond, left_out;
	uint64_t missing;   /* processes that are not in the recording, or in part */
	uint64_t perhaps;   /* and those that perhaps should be */
	bool has_lost_more; /* a loss of an unknown number of events */
	uint64_t pause_max_ns;
	uint64_t start_ns; /* the program was held before its first instruction, at most */
	uint64_t target_cpu_ns, overhead_cpu_ns;
	uint64_t unknown_cpu_ns; /* of samples, set by the view: of no row */
	uint64_t unsure;	 /* calls that --where could not judge, set by the view */
	uint64_t watched_ns, frees_older;
	uint64_t first_ns, last_ns; /* when the first process was entered, and the last one left */
	uint64_t gcs, full_gcs, compactions, moved;
	uint64_t forced_gc_ns;		     /* of the process whose took longest */
	uint64_t uncollected;		     /* processes that made none, though asked for */
	uint64_t sample_every, sample_bytes; /* 0: every object is counted */
	uint32_t last_slice;		     /* greatest number; 0: none */
	uint64_t first_slice_ns;	     /* when the first one began */
};

/* Begins the sum for a recording. */
void scry_data_quality_init(struct scry_data_quality *h, const struct scry_reader *reader);

/* Adds what one event says. */
void scry_data_quality_event(struct scry_data_quality *h, const struct scry_event *event);

/* All is read: adds what the reader itself found. */
void scry_data_quality_close(struct scry_data_quality *h);

/* Has it a PROCESS event? */
bool scry_data_quality_has_process(const struct scry_data_quality *h, uint32_t pid);

/* "scry objects: pid 4711 ruby 3.1.2, 30.0 s, ..." */
void scry_data_quality_line(const struct scry_data_quality *h, const char *view,
			    struct scry_buf *buf);

/* The same without what scry_data_quality_losses says, or what is 0. */
void scry_data_quality_watched(const struct scry_data_quality *h, const char *view,
			       struct scry_buf *buf);

/* "incomplete: 12 events lost, 2 processes missing"; nothing where nothing is. */
void scry_data_quality_losses(const struct scry_data_quality *h, struct scry_buf *buf);

/* Estimated cost in percent of the target's CPU time; false when unknown. */
bool scry_data_quality_overhead(const struct scry_data_quality *h, double *ret_percent);

/* Pushes data quality, then the notes. */
void scry_data_quality_push(const struct scry_data_quality *h, struct scry_doc *doc);

/* The notes alone: the recording's own, and those about losses, samples, moves and torn tails. */
void scry_data_quality_notes(const struct scry_data_quality *h, struct scry_doc *doc);

#endif
