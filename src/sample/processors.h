/*
 * A clock on each processor, at whose ticks a program in the kernel runs (probe/bpf), for whoever
 * runs there then.
 */
#ifndef SCRY_SAMPLE_PROCESSORS_H
#define SCRY_SAMPLE_PROCESSORS_H

#include <stddef.h>

#include "probe/bpf.h"

/* How the clocks go: all zeros is none. */
struct scry_processors {
	int *fds; /* of the events */
	size_t count;
	uint64_t period_ns, swayed_ns;
};

/* What a tick stands for at this rate, ns: a little more than one over it, see processors.c. */
uint64_t scry_processors_period(uint64_t rate);

/*
 * Puts the clocks on; processors that come online later have none. `number` is that of
 * scry_bpf_detach_number. 0; or -errno with a sentence: then there are none. `ret` (NULL: they are
 * not to sway) is freed by done.
 */
int scry_processors_tick(struct scry_bpf *bpf, const char *program, uint64_t period_ns,
			 uint64_t number, struct scry_processors *ret);
void scry_processors_done(struct scry_processors *p);

/* Another period for all of them, which begins now. Each processor is interrupted, so not more
 * often than each `rest_ns`. */
void scry_processors_pace(struct scry_processors *p, uint64_t period_ns);
uint64_t scry_processors_rest_ns(const struct scry_processors *p);

/*
 * To be called each few ms. Work that repeats by itself, and has nothing to do with the rate, may
 * come in step with a clock for as long as a program runs, so that the same few moments of it are
 * sampled again and again: now and then the period is made another one, within a quarter, by
 * chance.
 */
void scry_processors_sway(struct scry_processors *p);

#endif
