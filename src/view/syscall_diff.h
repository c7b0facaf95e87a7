/*
 * What changed between two recordings of system calls: of rates where calls were counted, of shares
 * of processor time where they were sampled.
 *
 * Rows are matched by what they show (call, object, symbol, offset), never by ids or pids. Of whole
 * programs each other count is a change; else what may be chance, as few were counted, is none: it
 * is counted, and not listed.
 */
#ifndef SCRY_VIEW_SYSCALL_DIFF_H
#define SCRY_VIEW_SYSCALL_DIFF_H

#include "view/view.h"

struct scry_syscall_side {
	struct scry_reader *reader; /* at its beginning */
	const char *name;	    /* of the recording */
};

#define SCRY_SYSCALL_DIFF_SCHEMA 2

/* By SITE or SYSCALL. 0 or -errno with a sentence; scry_doc_end stays the caller's. */
int scry_view_syscall_diff(const struct scry_syscall_side sides[2],
			   const struct scry_view_opts *opts, struct scry_doc *doc);

#endif
