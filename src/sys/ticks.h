/*
 * The clock of the agent, ticks of the TSC, and CLOCK_MONOTONIC: the only place that converts.
 *
 * The rate is that of two pairs of readings, TSC and CLOCK_MONOTONIC. While a machine sleeps the
 * second stops and the first goes on, or begins at 0 again, so a rate over a sleep is wrong by any
 * factor. That it has slept CLOCK_BOOTTIME shows, which goes on: then the first pair is taken anew,
 * stamps from before go by the old ones, and the rate from before holds until enough time lies
 * behind it.
 *
 * All functions only compute, but for scry_ticks_look. One struct belongs to one thread.
 */
#ifndef SCRY_SYS_TICKS_H
#define SCRY_SYS_TICKS_H

#include <stdint.h>

#define SCRY_TICKS_LEAST_NS 5000000ull /* less between pairs is too short for a lease's rate */

struct scry_ticks_pair {
	uint64_t tsc, ns; /* CLOCK_MONOTONIC */
	uint64_t boot_ns; /* CLOCK_BOOTTIME */
};

struct scry_ticks_span { /* awake from `first` to `last` */
	struct scry_ticks_pair first, last;
	double tick_ns; /* 0: not known yet */
};

struct scry_ticks {			    /* all 0: nothing is known */
	struct scry_ticks_span now, before; /* the last sleep; before.last.tsc 0: none was seen */
	double per_ns; /* ticks, of a span that is long enough for leases; 0: not known yet */
};

/* Both clocks, now. */
struct scry_ticks_pair scry_ticks_look(void);

/* The newest pair: from the first one on times are known, from the second on the rate. */
void scry_ticks_mark(struct scry_ticks *t, const struct scry_ticks_pair *now);

/* CLOCK_MONOTONIC at `tsc`, ns; the earliest that is known for what is older than that. */
uint64_t scry_ticks_time(const struct scry_ticks *t, uint64_t tsc);
/* How long so many ticks are, ns. 0: the rate is not known yet. */
uint64_t scry_ticks_length(const struct scry_ticks *t, uint64_t ticks);
/* The same by two readings between which the machine did not sleep. */
uint64_t scry_ticks_by(const struct scry_ticks_pair *began, const struct scry_ticks_pair *ended,
		       uint64_t ticks);

/* Marks `now`. The TSC `ns` nanoseconds after it; 0: the rate is not known yet, ask again after
 * SCRY_TICKS_LEAST_NS. */
uint64_t scry_ticks_after(struct scry_ticks *t, const struct scry_ticks_pair *now, uint64_t ns);

#endif
