/*
 * Breakpoints (hook/breaks.h), as the agent knows them when there is no keeper any more.
 *
 * A slab of copies: SCRY_BREAKS_HEAD bytes, then SCRY_BREAKS_SLOT for each: the copy, and at
 * SCRY_BREAKS_COPY the address of which it is one; 0 behind the last. Not among the slab's
 * counters, as fork children could write those.
 *
 * Freestanding. The host writes all of it.
 */
#ifndef SCRY_WIRE_BREAKS_H
#define SCRY_WIRE_BREAKS_H

#include <stdint.h>

#include "wire/control.h"

#define SCRY_BREAKS_HEAD 256u
#define SCRY_BREAKS_COPY 32u
#define SCRY_BREAKS_SLOT 40u

struct scry_sigaction { /* as rt_sigaction(2) takes it on x86_64 */
	uint64_t handler, flags, restorer, mask;
};

struct scry_agent_trap {
	struct scry_sigaction action, older; /* of SIGTRAP: ours; what was found */
	uint64_t is_set;
	uint64_t slab_count;
	struct {
		uint64_t code, copies;
	} slabs[SCRY_SLABS_MAX];
};

#endif
