/*
 * What changed between two recordings of stacks: the time of a method (line, gem, thread), each for
 * a second that was watched.
 *
 * Rows are matched by what they show, never by ids. What the choice of moments at which samples
 * were taken may explain is not a change: it is counted, and not listed. Threads that are idle in
 * both recordings are left out of both, in every form, unless opts->times.idle.
 */
#ifndef SCRY_VIEW_STACKS_DIFF_H
#define SCRY_VIEW_STACKS_DIFF_H

#include "view/diff.h"

#define SCRY_STACKS_DIFF_SCHEMA 3

/* By LINE, METHOD, GEM or THREAD; moments are not heeded. 0 or -errno with a sentence; scry_doc_end
 * stays the caller's. */
int scry_view_stacks_diff(const struct scry_diff_side sides[2], const struct scry_view_opts *opts,
			  struct scry_doc *doc);

#endif
