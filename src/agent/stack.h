/*
 * Stacks as one number: see stack.c.
 */
#ifndef SCRY_AGENT_STACK_H
#define SCRY_AGENT_STACK_H

#include "wire/control.h"
#include "wire/ruby_ring.h"

#define SCRY_STACK_DEPTH 1024u /* frames; of a deeper stack the newest are left out */
#define SCRY_STACK_CACHES 4u   /* threads whose newest stack is remembered */
#define SCRY_STACK_LOST 0xffffffffu
#define SCRY_STACK_FILTER_BITS 65536u

struct scry_agent_node {
	uint64_t pc; /* 0: empty */
	uint32_t parent, reserved;
};
struct scry_agent_stack_cache {
	uint64_t ec;
	uint64_t count;
	/* by frame, the oldest first */
	uint64_t pc[SCRY_STACK_DEPTH]; /* 0: a C frame */
	uint32_t node[SCRY_STACK_DEPTH];
};
struct scry_agent_stacks {
	uint32_t count, newest;
	uint64_t iseqs[SCRY_STACK_FILTER_BITS / 64];
	struct scry_agent_stack_cache caches[SCRY_STACK_CACHES];
	struct scry_agent_node nodes[SCRY_STACK_NODES];
};

struct scry_agent_place;

/* The callers of `place`, 0 when there are none; SCRY_STACK_LOST: no room in the ring. */
uint32_t scry_stack_node(const struct scry_agent_frames *f, const struct scry_agent_place *place);
void scry_stack_forget_iseq(uint64_t iseq);
void scry_stack_forget_all(void);

#endif
