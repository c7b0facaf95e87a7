/*
 * What the agent knows of a Ruby: its own part, as objects and lines of code both need it.
 */
#ifndef SCRY_AGENT_VM_H
#define SCRY_AGENT_VM_H

#include "agent/agent.h"
#include "wire/ruby_hooks.h"
#include "wire/ruby_plan.h"

struct scry_agent_vm { /* host writes */
	struct scry_agent_ruby ruby;
	struct scry_agent_hooks hooks;
};
extern struct scry_agent_vm scry_agent_vm SCRY_SHARED;

/* What a handler knows of the frame that is running. */
struct scry_agent_place {
	uint64_t pc; /* address the frame's pc has outside the hook; 0: no Ruby frame */
	uint64_t iseq;
	uint64_t ec, cfp; /* the frame itself */
	uint32_t depth;	  /* 0xffff unknown */
	uint32_t top;
};

#endif
