/* See ticks.h. */
#include "sys/ticks.h"

#include <stdbool.h>
#include <time.h>
#include <x86intrin.h>

#define TRIES 4
#define BRIEF_TICKS 20000    /* some us */
#define SLEPT_NS 50000000ull /* the two clocks are read one after the other */

static uint64_t read_clock(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Of some tries the one in which least lay between: in a longer one we were put off the processor.
 */
struct scry_ticks_pair scry_ticks_look(void)
{
	struct scry_ticks_pair best = {0};
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < TRIES && least > BRIEF_TICKS; i++) {
		uint64_t before = __rdtsc(), ns = read_clock(CLOCK_MONOTONIC), after = __rdtsc();

		if (after - before >= least)
			continue;
		least = after - before;
		best = (struct scry_ticks_pair){.tsc = before, .ns = ns};
		best.boot_ns = read_clock(CLOCK_BOOTTIME);
	}
	return best;
}

void scry_ticks_start(struct scry_ticks *t, const struct scry_ticks_pair *now)
{
	*t = (struct scry_ticks){.first = *now};
}

/* Also true of a process that stood for so long just between its two readings: no harm. */
static bool has_slept(const struct scry_ticks_pair *then, const struct scry_ticks_pair *now)
{
	return now->boot_ns - then->boot_ns > now->ns - then->ns + SLEPT_NS || now->tsc < then->tsc;
}

uint64_t scry_ticks_after(struct scry_ticks *t, const struct scry_ticks_pair *now, uint64_t ns)
{
	const uint64_t passed = now->ns - t->first.ns;

	if (has_slept(&t->first, now))
		t->first = *now;
	else if (passed >= SCRY_TICKS_LEAST_NS)
		t->per_ns = (double)(now->tsc - t->first.tsc) / (double)passed;
	return t->per_ns > 0 ? now->tsc + (uint64_t)((double)ns * t->per_ns) : 0;
}
