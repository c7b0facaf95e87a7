/*
 * What changed between two recordings of malloc: which callers hold more at the peak or at the end,
 * and which ask for more.
 *
 * Rows are matched by what they show, never by ids; of each recording it is the process with most
 * calls.
 */
#ifndef SCRY_VIEW_MALLOC_DIFF_H
#define SCRY_VIEW_MALLOC_DIFF_H

#include "view/diff.h"

#define SCRY_MALLOC_DIFF_SCHEMA 2

/* By LINE, FILE, METHOD, CALLER, MODULE or STACK; moments are not heeded. 0 or -errno with a
 * sentence; scry_doc_end stays the caller's. */
int scry_view_malloc_diff(const struct scry_diff_side sides[2], const struct scry_view_opts *opts,
			  struct scry_doc *doc);

#endif
