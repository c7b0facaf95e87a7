/*
 * Shadow returns: how the agent sees the return of a function whose entry is hooked. Freestanding.
 *
 * At the entry the word that holds the return address, the *slot*, gets the address of a return
 * thunk instead, and the table below an entry with the slot's address and the time. There is one
 * thunk for each return address ever seen (an *original*), so a return finds its way home from the
 * thunk alone, whatever became of the entry: twice, in another thread, in a fork child.
 *
 *   thunk i:  push $i; jmp scry_agent_return     16 bytes, in a slab
 *   originals[i]                                 filled once, never changed
 *
 * Invariant: an entry is in the table before its slot is changed, until its function has returned
 * or its slot is used again. So the host finds every changed slot by the table.
 *
 * What becomes of a call: counted, in counters of its hook that lie in a slab and are shared with
 * the keeper; or, with head.records, recorded one by one (wire/call_ring.h).
 *
 * Private memory, which fork children inherit: there pending returns go home, and with head.records
 * a child that finds a child buffer (wire/child_buffers.h) follows its own calls.
 */
#ifndef SCRY_WIRE_SHADOW_H
#define SCRY_WIRE_SHADOW_H

#include "wire/call_plan.h"

#include <stdint.h>

#define SCRY_SHADOW_THUNKS 16384u /* return addresses, that is call sites */
#define SCRY_SHADOW_THUNK_BYTES 16u
#define SCRY_SHADOW_PROBES 16u
#define SCRY_SHADOW_BUCKETS 32768u
#define SCRY_SHADOW_WAYS 4u /* a bucket is a cache line */
#define SCRY_SHADOW_LAST 8u
#define SCRY_SHADOW_HOOK_BITS 20
#define SCRY_SHADOW_HOOKS_MAX 16384u
#define SCRY_SHADOW_RED_ZONE (1u << 30) /* in a cookie: the stub has left 128 bytes below rsp */

struct scry_shadow_entry {
	uint64_t key; /* slot / 8, then the hook's number in its low bits; 0: empty */
	uint64_t tsc; /* of the entry */
};

/* Executable memory, ascending. What lies elsewhere is not a return address: the function was
 * entered in some other way, and its stack is left alone. */
#define SCRY_SHADOW_RANGES 512u
struct scry_shadow_range {
	uint64_t start, end; /* [start, end) */
};
struct scry_shadow_code {
	uint64_t count;
	struct scry_shadow_range ranges[SCRY_SHADOW_RANGES];
};

/* Of scry_agent.following.on. The host writes OFF and ON, the agent PAUSED and ON: while the lease
 * is over; and HELD: a library was loaded that the host has not seen, perhaps with an unwinder.
 * Then the host writes ON again.
 */
enum scry_shadow_state { SCRY_SHADOW_OFF, SCRY_SHADOW_ON, SCRY_SHADOW_PAUSED, SCRY_SHADOW_HELD };
struct scry_shadow_head {
	uint64_t stats; /* address of the hooks' counters */
	uint32_t hooks; /* how many */
	uint32_t pad;
	uint64_t orphans; /* returns without an entry: the program copies stacks. Then there may be
			     thunks in stacks that are swapped out, and the agent stays mapped */
	uint64_t last[SCRY_SHADOW_LAST]; /* addresses of changes that must be put back last: the
					    unwinders' entries */
	uint64_t unwinder[2]; /* [start, end) of one that is linked into a static program; 0: none,
				 it is libgcc's shared object */
	uint32_t records; /* 1: calls are recorded, and counted in the first hook's counters only */
	uint32_t string_max;  /* bytes of a string that a format names */
	int64_t errno_at;     /* of each thread, from its thread pointer; 0: not known */
	uint64_t code_in_use; /* 0 or 1; the host fills the other one, then switches */
	struct scry_shadow_code code[2];
};
struct scry_shadow {
	struct scry_shadow_head head;
	uint64_t originals[SCRY_SHADOW_THUNKS] __attribute__((aligned(64)));
	struct scry_shadow_entry entries[SCRY_SHADOW_BUCKETS][SCRY_SHADOW_WAYS]
		__attribute__((aligned(64)));
	/* wire/call_plan.h: words of an entry that its return needs; plans, and each hook's */
	uint64_t saved[SCRY_SHADOW_BUCKETS * SCRY_SHADOW_WAYS][SCRY_PLAN_SAVED_MAX];
	uint16_t plan_of[SCRY_SHADOW_HOOKS_MAX];
	struct scry_call_plan plans[SCRY_PLAN_UNITS] __attribute__((aligned(64)));
};

/* A duration's bucket: four linear steps to each power of two, so a bucket is a quarter wide. */
#define SCRY_SHADOW_STEPS 180u
struct scry_shadow_stats {
	uint64_t total_tsc; /* of the calls that returned */
	uint64_t max_tsc;
	uint64_t left;	 /* by longjmp or exception: the slot was used again */
	uint64_t missed; /* calls that could not be followed: table full, lease over */
	uint64_t reserved[4];
	uint64_t histogram[SCRY_SHADOW_STEPS]; /* their sum: calls that returned */
	uint64_t reserved2[4];
};
_Static_assert(sizeof(struct scry_shadow_stats) == 1536, "whole cache lines");

static inline uint32_t scry_shadow_bucket(uint64_t slot)
{
	return (uint32_t)((slot >> 3) * 0x9e3779b97f4a7c15ull >> 49);
}

static inline uint32_t scry_shadow_step(uint64_t ticks)
{
	uint32_t octave, step;

	if (ticks < 4)
		return (uint32_t)ticks;
	octave = 63u - (uint32_t)__builtin_clzll(ticks);
	step = (octave - 1) * 4 + (uint32_t)(ticks >> (octave - 2) & 3);
	return step < SCRY_SHADOW_STEPS ? step : SCRY_SHADOW_STEPS - 1;
}

/* The least number of ticks that falls into a step. */
static inline uint64_t scry_shadow_step_begin(uint32_t step)
{
	return step < 4 ? step : (uint64_t)(4 + (step & 3)) << (step / 4 - 1);
}

#endif
