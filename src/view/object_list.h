/*
 * From a recording to the rows of the objects view: read, filter, widen to what --by names.
 *
 * The objects view and the diff share it. Texts and frames go into tables (scry_object_tables) that
 * outlive a recording, so the rows of two recordings compare by their ids.
 */
#ifndef SCRY_VIEW_OBJECT_LIST_H
#define SCRY_VIEW_OBJECT_LIST_H

#include "view/frames.h"
#include "view/data_quality.h"
#include "view/object_rows.h"
#include "view/view.h"

struct scry_object_tables {
	struct scry_intern names;
	struct scry_frames frames;
	struct scry_map gems; /* id of a path -> id of its gem's name */
};

void scry_object_tables_init(struct scry_object_tables *tables);
void scry_object_tables_done(struct scry_object_tables *tables);

struct scry_object_list {
	/* set by the caller */
	struct scry_object_tables *tables;
	const struct scry_view_opts *opts;
	bool keeps_pids;    /* a row for each process */
	bool keeps_methods; /* by line: a row for each method too */
	uint64_t until_ns;  /* the counters of the slices that had ended by then; 0: the end */
	bool is_nothing;    /* only data quality is read: everything counts as zero */
	bool is_one;	    /* only the sites of `only_pid` */
	uint32_t only_pid;
	/* results */
	struct scry_data_quality quality;
	struct scry_object_row *rows;
	size_t count;
	struct scry_object_counts all; /* of every site, listed or not */
	uint64_t freed, unfollowed, frees_older, internal, unnamed;
	uint64_t grepped, filtered,
		died;		   /* of all allocated: left out by --grep, --filter, --live */
	uint64_t left_out_live;	   /* of these, not freed by the end */
	uint64_t events;	   /* about objects */
	uint64_t slice_end_ns;	   /* of the last slice where the end is missing; else 0 */
	bool has_slots, has_sizes; /* of what is listed: sizes of slots only, full sizes */
	bool has_stacks;
};

/*
 * Reads all of `reader`: rows with equal keys are summed, in the order of keys (processes first). 0
 * or -errno with a sentence. Done in every case.
 */
int scry_object_list_read(struct scry_object_list *list, struct scry_reader *reader);

/* Then: sums over processes if `sums_pids`, leaves out what --live does, knows what is listed. */
void scry_object_list_settle(struct scry_object_list *list, bool sums_pids);

void scry_object_list_done(struct scry_object_list *list);

/* "app.rb:3", "(no Ruby frame)", "(unknown)". */
void scry_object_place(const struct scry_object_row *row, bool with_line, struct scry_buf *buf);

/* Appends what the row is of: "String at app.rb:3", "app.rb", "gem orm"; as opts->by. */
void scry_object_subject(const struct scry_object_row *row, int by, struct scry_buf *buf);

/* Half the width of the interval of a figure of `counts`; 0 when it is exact. */
struct scry_cell scry_object_error_cell(const struct scry_object_counts *counts, double variance,
					uint64_t samples);
/* The same of the living. "at least": of some samples it is not known whether they live. */
struct scry_cell scry_object_live_error_cell(const struct scry_object_counts *counts);

/* The place of the row and its callers. `scratch` is the table's. */
struct scry_cell scry_object_frames(const struct scry_object_tables *tables,
				    const struct scry_object_row *row,
				    struct scry_frame_row *scratch);

/* The class as people read it: never empty. */
struct scry_cell scry_object_class(const struct scry_object_row *row);

#endif
