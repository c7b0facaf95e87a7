/*
 * How long the fibers of a process may be looked for. A program can have memory of any size, and
 * marks in it without number, each of which costs a walk. So the look through memory may take half
 * of the time, and judging what was found there the rest; what is left out then is counted.
 *
 * It is processor time of the calling thread: on a busy machine as much is done as on an idle one.
 * It begins with the first question.
 */
#ifndef SCRY_NAME_FIBER_BUDGET_H
#define SCRY_NAME_FIBER_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct scry_fiber_budget {
	uint64_t most_ns;		  /* 0: no limit */
	uint64_t until_ns, look_until_ns; /* by the thread's clock; 0: not begun */
	uint64_t asked, unjudged;	  /* asked whether one may be judged; it might not */
	uint64_t unsearched_bytes;	  /* of mappings */
	bool is_over, is_look_over;
};

/* Asked before each one is judged. False: the time is over, and one more was not judged. */
bool scry_fiber_may_judge(struct scry_fiber_budget *b);

/* Asked before a part of a mapping is searched, of which `left` bytes are left. False: the
 * time for that is over, and so much more was not searched. */
bool scry_fiber_may_look(struct scry_fiber_budget *b, uint64_t left);

/* Asked by what takes long and keeps count itself. False: the time is over. */
bool scry_fiber_has_time(struct scry_fiber_budget *b);

#endif
