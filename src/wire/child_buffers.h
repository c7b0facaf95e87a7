/*
 * The pool of child buffers: where fork children of a watched process record, from their first
 * event on.
 *
 *   head page | child buffer 0: control, account, ring | child buffer 1 | ...
 *
 * mapped rw- and shared by the process and all its fork descendants.
 *
 * A child finds its process state page zero, takes a free child buffer by one compare-and-swap and
 * goes on as if it had been entered: no system call, no stop, no loss. The keeper finds out later
 * whose child buffer it is (hook/child_buffers), reads it to its end when that process ends, and
 * frees it.
 *
 * Where several instruments record each child has a set of child buffers, one for each: a process
 * that claims child buffer I has those at fixed distances behind it, too. Then set 0 is that of the
 * process that was entered.
 *
 * Freestanding. What the host reads here is hostile: any descendant of the process can write it.
 */
#ifndef SCRY_WIRE_CHILD_BUFFERS_H
#define SCRY_WIRE_CHILD_BUFFERS_H

#include "wire/account.h"
#include "wire/thread_buffers.h"

#define SCRY_CHILD_BUFFERS 64u
#define SCRY_CHILD_BUFFER_BYTES (SCRY_SHARED_HEAD + 8ull * SCRY_RING_WORDS)
#define SCRY_CHILD_BUFFERS_BYTES \
	(SCRY_PAGE + SCRY_CHILD_BUFFERS * SCRY_CHILD_BUFFER_BYTES) /* touched pages cost only */

struct scry_child_buffers {
	/* keeper writes */
	uint32_t follow; /* the watch that children take up; 0: they take the hook off */
	uint32_t nonce;	 /* of a pool that is joined: wire/preload.h */
	uint64_t pad0[7];
	/* agents add */
	uint64_t claims;  /* child buffers ever taken */
	uint64_t refused; /* children that found none */
	uint64_t loads;	  /* times that a child loaded or unloaded libraries (agent/loads.c) */
	uint64_t pad1[5];
	uint32_t taken[SCRY_CHILD_BUFFERS]; /* 0 free, 1 taken; a child swaps it in, the keeper
					       clears it */
};
_Static_assert(sizeof(struct scry_child_buffers) <= SCRY_PAGE, "the head page");

/*
 * In the process state page, and so wiped by a fork: which child buffer this process has. `trying`
 * is written before the swap and `owned` after it: a child buffer that is taken while no process
 * tries or owns it is a dead one's.
 */
#define SCRY_CLAIM_OFFSET 2048u
#define SCRY_CLAIM_GIVEN_UP 0xffffffffu
struct scry_claim {
	uint32_t trying; /* child buffer + 1; SCRY_CLAIM_GIVEN_UP: found none */
	uint32_t owned;	 /* child buffer + 1 */
};

/* Private, inherited by children, written by the host before the watch is on. */
struct scry_follow {
	struct scry_child_buffers *child_buffers; /* 0: children are not followed */
	uint64_t nonce; /* of this pool: says that a process descends from this one */
	struct scry_agent_frames frames; /* for a child's process state page */
	uint32_t waits; /* a process that takes a child buffer waits until the keeper has seen it:
			   wire/preload.h */
	uint32_t sets;	/* a child claims one of the child buffers [0, sets) */
	/* bytes from there to the child buffer of that channel, and to that of a table (gvl) */
	uint64_t channel_at[SCRY_CHANNELS], table_at;
};

#endif
