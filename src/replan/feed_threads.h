/* The recording's threads: a part of feed_own.h, which has its manual. */
#ifndef SCRY_REPLAN_FEED_THREADS_H
#define SCRY_REPLAN_FEED_THREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

#define THREADS_MAX (1u << 24)
#define NO_INDEX                                                                          \
	0u /* index of no thread: the main thread's stream before it is known whose it is \
	    */

struct thread {
	uint32_t number; /* in the recording */
	/* what the first pass found: */
	uint64_t last, calls;
	uint64_t took, gave, begun; /* blocks of others, its own to them; bytes */
	bool has_ended;
	uint16_t stream; /* + 1: now */
};

/* Indices go by which thread calls first, as the recording's numbers may be any; they stay for all
 * passes.
 */
struct threads {
	struct scry_map index; /* of a number */
	struct thread *rows;
	size_t cap;
	uint32_t count; /* the last index */
};

#endif
