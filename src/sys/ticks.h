/*
 * How long a time is in ticks of the TSC, for leases: the agent has no other clock.
 *
 * The rate is that of two pairs of readings, TSC and CLOCK_MONOTONIC. While a machine sleeps the
 * second stands still and the first goes on, or begins at 0 again, so a rate over a sleep is wrong
 * by any factor. That it has slept CLOCK_BOOTTIME tells, which goes on: then the first pair is
 * taken anew, and the rate from before holds until enough time lies behind it.
 *
 * One struct belongs to one thread.
 */
#ifndef SCRY_SYS_TICKS_H
#define SCRY_SYS_TICKS_H

#include <stdint.h>

#define SCRY_TICKS_LEAST_NS 5000000ull /* less between two pairs does not tell the rate */

struct scry_ticks_pair {
	uint64_t tsc, ns; /* CLOCK_MONOTONIC */
	uint64_t boot_ns; /* CLOCK_BOOTTIME */
};
struct scry_ticks {
	struct scry_ticks_pair first;
	double per_ns; /* 0: not known yet */
};

struct scry_ticks_pair scry_ticks_look(void);
void scry_ticks_start(struct scry_ticks *t, const struct scry_ticks_pair *now);

/* The TSC `ns` nanoseconds after `now`. 0: the rate is not known yet, ask again after
 * SCRY_TICKS_LEAST_NS. */
uint64_t scry_ticks_after(struct scry_ticks *t, const struct scry_ticks_pair *now, uint64_t ns);

#endif
