/*
 * Calls told one by one (agent/calls.c), for agent/shadow.c.
 */
#ifndef SCRY_AGENT_CALLS_H
#define SCRY_AGENT_CALLS_H

#include "agent/agent.h"

/* From the registers that agent/shadow.S has saved up to the slot, in words: agent/keep.h. */
#define SCRY_CALL_REGISTERS 12

/* Its TSC; 0: it could not be told, and its return need not be. */
uint64_t scry_call_entered(const uint64_t *slot, const uint64_t *arguments, uint64_t cookie,
			   int is_tail);
/* Tells who calls, before scry_call_entered does the rest. */
void scry_call_stack(const struct scry_walk_from *from);
void scry_call_returned(const uint64_t *slot, uint64_t result);

#endif
