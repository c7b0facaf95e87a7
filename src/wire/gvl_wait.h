/*
 * Waits for a Ruby VM's lock that are over, each with its thread's stack: a ring behind the table
 * of wire/gvl.h.
 *
 * Whoever writes the table appends, where a record fits; the keeper reads, and says how far. The
 * table has both positions. Freestanding. What the host reads here is hostile.
 */
#ifndef SCRY_WIRE_GVL_WAIT_H
#define SCRY_WIRE_GVL_WAIT_H

#include "wire/gvl.h"

/* A wait that is over, in the ring; the control frames follow, the newest first, and the values, as
 * they stood. */
struct scry_gvl_wait {
	uint64_t words; /* of all that; without frames of the head alone: there was no stack */
	uint64_t th, ticks;
	uint32_t who, is_old;			   /* SCRY_GVL_WHO; as in its row */
	uint64_t ec, stack, end, cfp, bottom, top; /* as in struct scry_walk_copy */
};
#define SCRY_GVL_WAIT_WORDS (sizeof(struct scry_gvl_wait) / 8)
#define SCRY_GVL_RING_AT ((sizeof(struct scry_gvl_table) + 4095) / 4096 * 512) /* in words */
#define SCRY_GVL_RING (1ull << 17)					       /* words */
#define SCRY_GVL_STACK_BYTES 65536ull /* of frames, and of values; a deeper one is not taken */
_Static_assert(SCRY_GVL_RING_AT + SCRY_GVL_RING <= SCRY_RING_WORDS, "both lie in the ring");

#endif
