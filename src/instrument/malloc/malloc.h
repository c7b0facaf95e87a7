/*
 * What `scry malloc record` keeps of a process that it records: the state of its watch. Processes
 * that were entered have hooks; fork children have a child buffer of the process that was.
 */
#ifndef SCRY_INSTRUMENT_MALLOC_MALLOC_H
#define SCRY_INSTRUMENT_MALLOC_MALLOC_H

#include "hook/thread_buffers.h"
#include "hook/unwind.h"
#include "instrument/malloc/functions.h"
#include "instrument/malloc/late.h"
#include "instrument/malloc/lines.h"
#include "instrument/malloc/older.h"
#include "name/malloc.h"

struct scry_malloc_record_opts { /* the instrument's options */
	bool no_lines;
	uint64_t depth; /* of stacks; 0: none */
	const char *prefix;
};

struct scry_malloc_child;

struct scry_malloc_watch {
	struct scry_hooks hooks;
	struct scry_malloc_functions functions;
	struct scry_ruby_lines lines;
	struct scry_thread_buffers *buffers;
	struct scry_malloc *calls;
	struct scry_malloc_older older;
	struct scry_malloc_late late;
	struct scry_unwinding unwinding;
	bool has_stacks;
	uint64_t end_tsc; /* nothing later is emitted; 0: no end yet */
	uint64_t flush_ns;
	bool is_full; /* no memory for more: what comes is not taken */
	/* children, of this process and of its children, that have not been seen to record */
	struct scry_malloc_child *children;
	size_t child_count;
	bool has_dropped; /* more of them than there is room for; it was reported */
	/* of a child */
	uint64_t looked_ns, waited_ns; /* for its parent's fork, while the keeper was there */
	const struct scry_ruby *ruby;  /* whose lines its calls have: that of its root */
	bool is_proven;
};

#endif
