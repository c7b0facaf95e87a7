/* See fiber_budget.h. */
#include "name/fiber_budget.h"

#include <time.h>

#define ASK_EVERY 16u /* the clock is a system call */

static uint64_t used_ns(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool scry_fiber_may_judge(struct scry_fiber_budget *b)
{
	if (b->most_ns && !b->is_over && b->asked++ % ASK_EVERY == 0) {
		const uint64_t now = used_ns();

		if (!b->until_ns)
			b->until_ns = b->most_ns < UINT64_MAX - now ? now + b->most_ns : UINT64_MAX;
		b->is_over = now >= b->until_ns;
	}
	b->unjudged += b->is_over;
	return !b->is_over;
}
