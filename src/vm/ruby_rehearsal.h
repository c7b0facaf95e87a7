/*
 * What came out when that which is done to a live Ruby to watch its objects was done to a child of
 * the same program first (instrument/objects/rehearsal). Kept with the layout, whose proof in
 * action it is.
 */
#ifndef SCRY_VM_RUBY_REHEARSAL_H
#define SCRY_VM_RUBY_REHEARSAL_H

#include <stdbool.h>
#include <stdint.h>

/* A way of watching is the sum of these. */
enum scry_ruby_way {
	SCRY_RUBY_WAY_STACKS = 1,
	SCRY_RUBY_WAY_SAMPLED = 2,
	SCRY_RUBY_WAY_HOOKS = 4, /* hooks on functions of the VM, not its events */
	SCRY_RUBY_WAYS = 8,
};

/* What a way goes without, or that it cannot be gone at all. */
enum scry_ruby_without {
	SCRY_RUBY_WITHOUT_COMPACTION = 1, /* the watch ends when the heap is compacted */
	SCRY_RUBY_WITHOUT_RACTORS = 2,	  /* ... when a ractor is made */
	SCRY_RUBY_WITHOUT_ALL = 4,	  /* refused */
};

struct scry_ruby_rehearsal {
	uint64_t agent;	  /* the hash of the agent that was on stage; 0: not rehearsed */
	uint64_t layout;  /* scry_cache_stamp() of the layout that was */
	uint32_t without; /* enum scry_ruby_without */
	uint32_t objects; /* of which all counts were exact */
	char why[3][160]; /* by bit of `without`: what happened */
};

#endif
