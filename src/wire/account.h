/*
 * The account page, behind the control page: what single instruments count, and what they and the
 * keeper ask of each other. So each child buffer has one too, and an idle agent (scry_agent.aside).
 *
 * One struct for each part of the agent that has something to report, on lines of its own. Where
 * both sides write, the keeper's words are on another line.
 *
 * Freestanding. What the host reads here is hostile input.
 */
#ifndef SCRY_WIRE_ACCOUNT_H
#define SCRY_WIRE_ACCOUNT_H

#include "wire/control.h"

#define SCRY_ACCOUNT_LINE __attribute__((aligned(64)))

struct scry_vm_account {
	uint64_t bad; /* self-checks that failed: such objects are counted as unnamed */
};

struct scry_objects_account {
	uint64_t untracked;	/* sampled objects whose end is not followed: the table is full */
	uint64_t forced_gcs;	/* GCs that the keeper asked for and that were done ... */
	uint64_t forced_gc_tsc; /* ... and how long the last one took */
	uint64_t blind;		/* compactions of which not all moves had room in the ring */
	uint64_t booted;	/* the boot slot led to the agent */
	uint64_t ended;		/* the handler ended the watch itself: SCRY_ENDED_* */
	uint64_t unseen;	/* objects that the VM has counted and no hook has shown */
	uint64_t look_tsc;	/* when the last look was asked for: agent/last.c */
	uint32_t looks_asked, look_for; /* a Ruby VM waits for the keeper: enum scry_look */
	uint64_t judge_missed; /* it waited to be judged, and the keeper did not come in time */
	/* keeper */
	uint64_t force_gcs SCRY_ACCOUNT_LINE; /* how many GCs it has asked for in all */
	uint32_t looks_done, judged; /* follows looks_asked, a futex; 1: the layout holds */
};

struct scry_lines_account {
	uint64_t full; /* calls from lines of Ruby that got no code: agent/lines.c */
};

struct scry_walk_account {
	uint64_t missed;     /* a pc for which no object has unwind tables: agent/walk.c */
	uint64_t full, none; /* stacks without a number; calls of threads without a stack */
};

struct scry_malloc_account {
	uint64_t preloaded; /* what its malloc would be without us; 0: it is entered */
};

struct scry_account {
	struct scry_vm_account vm SCRY_ACCOUNT_LINE;
	struct scry_objects_account objects SCRY_ACCOUNT_LINE;
	struct scry_lines_account lines SCRY_ACCOUNT_LINE;
	struct scry_walk_account walk SCRY_ACCOUNT_LINE;
	struct scry_malloc_account malloc SCRY_ACCOUNT_LINE;
};
_Static_assert(sizeof(struct scry_account) <= SCRY_PAGE, "one page");

/* Both pages, before the ring. */
#define SCRY_SHARED_HEAD (2u * SCRY_PAGE)
struct scry_shared_head {
	struct scry_control control;
	uint8_t pad[SCRY_PAGE - sizeof(struct scry_control)];
	struct scry_account account;
};
_Static_assert(sizeof(struct scry_shared_head) <= SCRY_SHARED_HEAD, "two pages");

static inline struct scry_account *scry_account_of(const struct scry_control *control)
{
	return &((struct scry_shared_head *)(uint64_t)control)->account;
}

#endif
