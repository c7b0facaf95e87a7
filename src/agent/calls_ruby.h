/*
 * The Ruby stack of a followed call: its control frames as one number (wire/call_ring.h).
 *
 * A stack is the hash of its frames' pcs, and a pc is known by the generation in which it was
 * emitted: when code that was emitted ends, other code may come to its address: a new one begins,
 * and all is emitted again. Caches without locks keep what was emitted; what one loses is emitted
 * again.
 *
 * Read by plain loads are this thread's own execution context and frames only; code that one of its
 * frames refers to lives as long as the frame. Names are copied by the kernel: lines.h.
 */
#ifndef SCRY_AGENT_CALLS_RUBY_H
#define SCRY_AGENT_CALLS_RUBY_H

#include "agent/agent.h"

#define SCRY_RUBY_CALL_STACKS 16384u
#define SCRY_RUBY_CALL_LINES 16384u

struct scry_agent_ruby_calls {
	struct {
		uint64_t check, number; /* check: of both, as they are written one by one */
	} stacks[SCRY_RUBY_CALL_STACKS];
	uint64_t lines[SCRY_RUBY_CALL_LINES]; /* hashes of those emitted */
	uint64_t numbers;		      /* given */
} SCRY_OWN_PAGES;
extern struct scry_agent_ruby_calls scry_agent_ruby_calls SCRY_SHARED;

/* Reports which stack calls, before scry_call_entered does the rest. */
void scry_call_ruby(const uint64_t *slot);
/* A block is about to be freed. */
void scry_call_ruby_freed(uint64_t address);

#endif
