/* The part that counts a Ruby VM's locks: wire/gvl.h. The host fills the plan. */
#ifndef SCRY_AGENT_GVL_H
#define SCRY_AGENT_GVL_H

#include "wire/gvl.h"
#include "wire/gvl_plan.h"

/*
 * Mutexes that may be locks of other ractors, by a hash of their addresses: whoever lets one go
 * looks at the words of its set, and goes on if it is none of them. `is`: which table counts it.
 */
#define SCRY_GVL_SETS 32u
#define SCRY_GVL_WAYS 4u
#define SCRY_GVL_YOUNG 0u    /* it was made in this watch, and may be another mutex */
#define SCRY_GVL_PROVEN 255u /* a ractor's lock, which had no event yet; else its table + 1 */

struct scry_agent_gvl {
	struct scry_gvl_plan plan; /* its mutex first: agent/gvl_thunk.S */
	uint64_t known[SCRY_GVL_SETS][SCRY_GVL_WAYS] __attribute__((aligned(64))); /* 0: free */
	uint8_t is[SCRY_GVL_SETS][SCRY_GVL_WAYS], tries[SCRY_GVL_SETS][SCRY_GVL_WAYS];
	uint8_t victim[SCRY_GVL_SETS]; /* the way that makes room next */
};
extern struct scry_agent_gvl scry_agent_gvl __attribute__((visibility("hidden")));
_Static_assert(offsetof(struct scry_agent_gvl, known) == 192, "for agent/gvl_thunk.S");

#define SCRY_GVL_HASH 0x9e3779b1u /* for agent/gvl_thunk.S: times that, 27 bits to the right */
static inline uint32_t scry_gvl_set_of(uint64_t mutex)
{
	return (uint32_t)mutex * SCRY_GVL_HASH >> 27;
}
_Static_assert(SCRY_GVL_SETS == 1u << 5, "the shift above");

/* The VM lets its first ractor's lock go; one of `known`; it makes a mutex (gvl_others.c). */
void scry_gvl_let_go(uint64_t mutex, uint32_t waits);
void scry_gvl_let_go_other(uint64_t mutex, uint32_t waits);
void scry_gvl_made(uint64_t mutex);

#endif
