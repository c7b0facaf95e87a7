/* See ticks.h. */
#include "sys/ticks.h"

#include <stdbool.h>
#include <time.h>
#include <x86intrin.h>

#define SLEPT_NS 50000000ull /* the two clocks are read one after the other */

static uint64_t read_clock(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct scry_ticks_pair scry_ticks_look(void)
{
	struct scry_ticks_pair p = {.tsc = __rdtsc(), .ns = read_clock(CLOCK_MONOTONIC)};

	p.boot_ns = read_clock(CLOCK_BOOTTIME);
	return p;
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
