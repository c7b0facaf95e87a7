/*
 * How long finders may judge what they have found. A program can make marks without number, each
 * of which costs a walk; what is not judged when the time is over is counted.
 *
 * It is processor time of the calling thread: on a busy machine as much is judged as on an idle
 * one. It begins with the first question, as the look through memory before is bounded by the
 * memory.
 */
#ifndef SCRY_NAME_FIBER_BUDGET_H
#define SCRY_NAME_FIBER_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct scry_fiber_budget {
	uint64_t most_ns;  /* 0: no limit */
	uint64_t until_ns; /* by the thread's clock; 0: not begun */
	uint64_t asked, unjudged;
	bool is_over;
};

/* Asked before each one is judged. False: the time is over, and one more was not judged. */
bool scry_fiber_may_judge(struct scry_fiber_budget *b);

#endif
