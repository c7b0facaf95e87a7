/*
 * What grew between two moments: of two recordings, or of one that has slices.
 *
 * Rows are matched by what they show (file, line, class, method; with --stacks the callers too),
 * never by ids or pids. Processes are summed.
 */
#ifndef SCRY_VIEW_DIFF_H
#define SCRY_VIEW_DIFF_H

#include "view/slices.h"
#include "view/view.h"

struct scry_diff_side {
	struct scry_reader *reader; /* at its beginning; one for each side */
	const char *name;	    /* of the recording, for people; NULL: both are the same one */
	struct scry_moment moment;
};

#define SCRY_DIFF_SCHEMA 3

/*
 * Pushes the growth from `from` to `to`; with --live of what survived full marks. 0 or -errno with
 * a sentence; scry_doc_end stays the caller's in both cases.
 */
int scry_view_diff(const struct scry_diff_side *from, const struct scry_diff_side *to,
		   const struct scry_view_opts *opts, struct scry_doc *doc);

#endif
