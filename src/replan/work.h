/*
 * How long the threads of a program work between their calls of malloc, all together.
 *
 * A recording does not say: gaps between its calls hold the calls, their recording and waiting,
 * too. What is known is the processor time that the program took; and what the calls take of it
 * can be tried. Both depend on each other, as threads that work less meet more often in the
 * allocator: so it is tried without work, then with what that leaves, and the line through the two
 * shows where work and calls are together what the program took.
 */
#ifndef SCRY_REPLAN_WORK_H
#define SCRY_REPLAN_WORK_H

#include <stdint.h>

#include "replan/run.h"

/*
 * Settles it for the feed (scry_malloc_feed_work), by two replays under `allocator`, the one that
 * the program had when it took `program_ns` of processor time. Legal when the feed's first pass is
 * over. Does nothing for a recording of one thread, or where program_ns is 0. 0 or the errors of
 * scry_malloc_run; `scratch` is the last replay's result.
 */
int scry_malloc_work_settle(struct scry_malloc_feed *feed,
			    const struct scry_malloc_allocator *allocator,
			    const struct scry_malloc_run_opts *opts, uint64_t program_ns,
			    struct scry_malloc_result *scratch);

/* Of a program that was recorded: what it would have taken alone, ns. */
uint64_t scry_malloc_work_unrecorded(const struct scry_malloc_feed *feed, uint64_t program_ns);

#endif
