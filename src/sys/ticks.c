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

/* Also true of a process that stood for so long just between its two readings: no harm. */
static bool has_slept(const struct scry_ticks_pair *then, const struct scry_ticks_pair *now)
{
	return now->boot_ns - then->boot_ns > now->ns - then->ns + SLEPT_NS || now->tsc < then->tsc;
}

void scry_ticks_mark(struct scry_ticks *t, const struct scry_ticks_pair *now)
{
	struct scry_ticks_span *span = &t->now;
	uint64_t ticks, ns;

	if (!span->first.tsc) {
		span->first = span->last = *now;
		return;
	}
	if (has_slept(&span->last, now)) {
		t->before = *span;
		span->first = span->last = *now;
		return;
	}
	span->last = *now;
	ticks = now->tsc - span->first.tsc;
	ns = now->ns - span->first.ns;
	if (ticks && ns)
		span->tick_ns = (double)ns / (double)ticks;
	if (ticks && ns >= SCRY_TICKS_LEAST_NS)
		t->per_ns = (double)ticks / (double)ns;
}

static uint64_t time_in(const struct scry_ticks_span *span, uint64_t tsc)
{
	return tsc <= span->first.tsc
		       ? span->first.ns
		       : span->first.ns +
				 (uint64_t)((double)(tsc - span->first.tsc) * span->tick_ns);
}

uint64_t scry_ticks_time(const struct scry_ticks *t, uint64_t tsc)
{
	uint64_t at;

	if (tsc >= t->now.first.tsc || !t->before.last.tsc)
		return time_in(&t->now, tsc);
	at = time_in(&t->before, tsc);
	return at < t->now.first.ns ? at : t->now.first.ns;
}

uint64_t scry_ticks_length(const struct scry_ticks *t, uint64_t ticks)
{
	return (uint64_t)((double)ticks * t->now.tick_ns);
}

uint64_t scry_ticks_by(const struct scry_ticks_pair *began, const struct scry_ticks_pair *ended,
		       uint64_t ticks)
{
	const uint64_t all = ended->tsc - began->tsc;

	return all ? (uint64_t)((double)ticks / (double)all * (double)(ended->ns - began->ns)) : 0;
}

uint64_t scry_ticks_after(struct scry_ticks *t, const struct scry_ticks_pair *now, uint64_t ns)
{
	scry_ticks_mark(t, now);
	return t->per_ns > 0 ? now->tsc + (uint64_t)((double)ns * t->per_ns) : 0;
}
