/*
 * What `scry fibers` shows: a verdict, groups of fibers that wait in one place, and, when asked,
 * each fiber. The numbers come from cmd/fibers; nothing here touches a process.
 */
#ifndef SCRY_VIEW_FIBERS_H
#define SCRY_VIEW_FIBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "view/doc.h"

/* Of a fiber, and of a group of equal ones. */
enum scry_view_fiber_state {
	SCRY_VIEW_FIBER_SUSPENDED,
	SCRY_VIEW_FIBER_NEW,
	SCRY_VIEW_FIBER_RUNNING,
	SCRY_VIEW_FIBER_CHANGED,
	SCRY_VIEW_FIBER_ENDED,
	SCRY_VIEW_FIBER_UNKNOWN,
	SCRY_VIEW_FIBER_STATES,
};

struct scry_fibers_group {
	const char *kind; /* "scryfiber", "ruby", "ucontext", "boost", "unknown" */
	enum scry_view_fiber_state state;
	const char *word; /* what its library calls that; NULL */
	uint64_t count;
	uint64_t sized; /* of them whose stacks have known bounds */
	uint64_t size_min, size_max;
	uint64_t used_count, used_max, used_sum, there_sum;
	uint64_t unguarded, guard_unknown;
	const struct scry_doc_frame *frames; /* outermost first */
	size_t frame_count;
	bool is_cut;	  /* there are more, outside of these */
	bool is_left_out; /* it has frames; there was no room for them */
	bool keeps_note;  /* which one runs is known by the library, or the VM */
};

struct scry_fibers_row {
	uint64_t low, top; /* low 0: not known */
	uint64_t used_bytes, left_bytes, there_bytes, guard_bytes;
	const char *name;
	int64_t tid;
	size_t group;
	bool has_guard, knows_guard, has_used;
};

struct scry_fibers_report {
	int64_t pid;
	const char *comm, *core; /* core: its file; NULL: it lives */
	const struct scry_fibers_group *groups;
	size_t group_count;
	struct scry_fibers_row (*row)(const void *arg, size_t i); /* of `count`, for --all */
	const void *arg;
	size_t count;
	bool is_all;
	uint64_t top; /* groups that are shown to people; 0: all; SCRY_VIEW_TOP_DEFAULT */
	uint64_t total, found[SCRY_VIEW_FIBER_STATES];
	uint64_t mapped_bytes, used_bytes, there_bytes;
	bool has_nearest;
	struct scry_fibers_row nearest;	       /* to the end of its stack */
	struct scry_fibers_row nearest_vm;     /* to the end of a Ruby's own stack */
	uint64_t vm_left_bytes, vm_size_bytes; /* of that; size 0: none */
	uint64_t threads, threads_running, thread_stacks, on_fibers, unmanned;
	uint64_t spare_stacks, spare_bytes;
	uint64_t read_bytes, swapped_bytes, unread_bytes, stale, several, unled, unled_midway,
		freed, unchecked, unlisted, lost, bad, unreadable, unjudged, unsearched_bytes;
	bool is_late; /* --max-time was over */
	uint64_t took_ns;
	const char *lack;	  /* what it could not be seen with, for the second line; NULL */
	const char *const *notes; /* the caller's own */
	size_t note_count;
};

/* Pushes the document: schema scry.fibers/3. 0 or -ENOMEM with a sentence. */
int scry_fibers_push(const struct scry_fibers_report *report, struct scry_doc *doc);

/* Where a group waits: the innermost frame that is the program's own, and no library's that only
 * switches. NULL: it has no frames. */
const struct scry_doc_frame *scry_fibers_place(const struct scry_fibers_group *group);

#endif
