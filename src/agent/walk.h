/*
 * The callers: the native stack of this thread, as a number.
 *
 *   id = scry_walk_stack(t, &from, emit);
 *
 * A new stack is emitted by `emit`: a number, return addresses from the innermost on
 * (wire/unwind.h: SCRY_UNWIND_EXACT), 0 at its end where what lies below is not known. Numbers hold
 * for the process and the watch.
 *
 * How it cannot fault: nothing is read but words between the stack pointer and the end of the
 * thread's own stack, whose pages were looked at by the kernel; on other stacks (fibers, alternate
 * signal stacks) a copy that the kernel made.
 *
 * Why it is fast: a walk depends on nothing but registers and the words that it reads. Kept are the
 * last walks of each thread with these words: where they are what they were, so is the stack. The
 * first half of them is found by stack pointer and return address; where that one does not hold,
 * its words, as they are now, find one of the second half.
 */
#ifndef SCRY_AGENT_WALK_H
#define SCRY_AGENT_WALK_H

#include "agent/agent.h"

#define SCRY_WALK_DEPTH_MAX 64u
#define SCRY_WALK_WORDS 80u	    /* that a kept walk may have read */
#define SCRY_WALKS 128u		    /* kept by a thread */
#define SCRY_WALKERS 96u	    /* threads at a time; others have no stacks */
#define SCRY_WALK_COPY 512u	    /* words of another stack */
#define SCRY_WALK_STACKS (1u << 18) /* different ones */
#define SCRY_WALK_RULES 4096u	    /* of return addresses, kept */

struct scry_frame_walk {
	uint64_t sp, bp, bx, generation;
	uint32_t stack; /* 0: none is kept here */
	uint32_t reach; /* bytes from sp to behind the last word */
	uint16_t words;
	uint16_t uses; /* 1: of bp, 2: of bx */
	uint32_t offsets[SCRY_WALK_WORDS];
	uint64_t values[SCRY_WALK_WORDS];
};

struct scry_walker {
	uint64_t owner; /* number of its row in the table of threads, + 1; 0: none */
	struct scry_frame_walk walks[SCRY_WALKS];
	struct scry_frame_walk now;
	uint64_t misses;
	uint64_t frames[SCRY_WALK_DEPTH_MAX];
	uint64_t copy[SCRY_WALK_COPY];
};

struct scry_walk_rule { /* written without a lock: `check` shows whether both are of one writer */
	uint64_t check, rule;
};

struct scry_agent_walks {
	uint64_t stacks[SCRY_WALK_STACKS]; /* hashes, by number - 1; bit 0: it is emitted */
	struct scry_walk_rule rules[SCRY_WALK_RULES];
	uint32_t count; /* stacks */
	struct scry_walker walkers[SCRY_WALKERS];
} SCRY_OWN_PAGES;
extern struct scry_agent_walks scry_agent_walks SCRY_SHARED;

struct scry_walk_from {	      /* registers at a function's entry */
	const uint64_t *slot; /* where its return address lies: rsp */
	uint64_t bp, bx;
};

/* 0: it could not be recorded. */
typedef int scry_walk_report(struct scry_agent_thread *t, uint32_t id, const uint64_t *frames,
			     uint32_t count);

/* After scry_thread_buffer_enter. 0: no stack. */
uint32_t scry_walk_stack(struct scry_agent_thread *t, const struct scry_walk_from *from,
			 scry_walk_report *emit);

#endif
