/*
 * A clock on each processor, at whose ticks a program in the kernel runs (probe/bpf), for whoever
 * runs there then.
 */
#ifndef SCRY_SAMPLE_PROCESSORS_H
#define SCRY_SAMPLE_PROCESSORS_H

#include "probe/bpf.h"

/* What a tick stands for at this rate, ns: a little more than one over it, see processors.c. */
uint64_t scry_processors_period(uint64_t rate);

/*
 * Puts the clocks on; processors that come online later have none. `number` is that of
 * scry_bpf_detach_number. 0; or -errno with a sentence: then there are none.
 */
int scry_processors_tick(struct scry_bpf *bpf, const char *program, uint64_t period_ns,
			 uint64_t number);

/* The inode of our pid namespace; 0 where it is the machine's. */
uint32_t scry_processors_namespace(void);

#endif
