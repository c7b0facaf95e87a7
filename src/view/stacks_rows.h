/* The rows of a recording of stacks, to compare two. */
#ifndef SCRY_VIEW_STACKS_ROWS_H
#define SCRY_VIEW_STACKS_ROWS_H

#include "view/data_quality.h"
#include "view/view.h"

struct scry_stacks_row {
	uint64_t self_ns, total_ns, samples;
};

struct scry_stacks_rows {
	struct scry_data_quality quality; /* closed */
	uint64_t watched_ns;		  /* of the clock, whatever the number of threads */
	uint64_t idle_threads;		  /* left out: idle in both recordings */
	/* The caller's: takes a row, as it is shown, but threads without their ids. 0 or -errno. */
	int (*take)(void *arg, const struct scry_buf *text, const struct scry_stacks_row *row);
	void *arg;
	struct scry_reader *reader;
};

/* Reads both, by what `opts` says; gives all rows of one, then of the other. 0 or -errno with a
 * sentence. */
int scry_stacks_rows(const struct scry_view_opts *opts, struct scry_stacks_rows io[2]);

#endif
