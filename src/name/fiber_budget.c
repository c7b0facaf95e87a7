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

static uint64_t later(uint64_t now, uint64_t ns)
{
	return ns < UINT64_MAX - now ? now + ns : UINT64_MAX;
}

static uint64_t see(struct scry_fiber_budget *b)
{
	const uint64_t now = used_ns();

	if (!b->until_ns) {
		b->until_ns = later(now, b->most_ns);
		b->look_until_ns = later(now, b->most_ns / 2);
	}
	b->is_over = now >= b->until_ns;
	return now;
}

bool scry_fiber_has_time(struct scry_fiber_budget *b)
{
	if (b->most_ns && !b->is_over)
		see(b);
	return !b->is_over;
}

bool scry_fiber_may_judge(struct scry_fiber_budget *b)
{
	if (b->most_ns && !b->is_over && b->asked++ % ASK_EVERY == 0)
		see(b);
	b->unjudged += b->is_over;
	return !b->is_over;
}

bool scry_fiber_may_look(struct scry_fiber_budget *b, uint64_t left)
{
	if (b->most_ns && !b->is_look_over)
		b->is_look_over = see(b) >= b->look_until_ns;
	if (b->is_look_over)
		b->unsearched_bytes += left;
	return !b->is_look_over;
}
