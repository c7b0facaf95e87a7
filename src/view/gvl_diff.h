/*
 * What changed between two recordings of the GVL: time that others lost because of a line, and
 * waits, each for a second that a process was watched.
 *
 * Rows are matched by what they show, threads by their names, never by ids. What may be chance is
 * not a change: it is counted, and not listed.
 */
#ifndef SCRY_VIEW_GVL_DIFF_H
#define SCRY_VIEW_GVL_DIFF_H

#include "view/diff.h"

#define SCRY_GVL_DIFF_SCHEMA 2

/* By LINE, METHOD, GEM, THREAD or HOLDER; moments are not heeded. 0 or -errno with a sentence;
 * scry_doc_end stays the caller's. */
int scry_view_gvl_diff(const struct scry_diff_side sides[2], const struct scry_view_opts *opts,
		       struct scry_doc *doc);

#endif
