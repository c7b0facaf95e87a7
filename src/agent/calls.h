/*
 * Calls recorded one by one (agent/calls.c), for agent/shadow.c.
 */
#ifndef SCRY_AGENT_CALLS_H
#define SCRY_AGENT_CALLS_H

#include "agent/agent.h"
#include "agent/calls_ruby.h"
#include "agent/returns.h"
#include "agent/thread_buffer.h"
#include "agent/walk.h"

/* Threads, in the channel of followed calls. */
extern struct scry_agent_thread scry_agent_call_rows[SCRY_THREADS] SCRY_SHARED;
#define scry_call_thread_buffer_enter() \
	scry_thread_buffer_enter_in(SCRY_CHANNEL_CALLS, scry_agent_call_rows)

/* From the registers that agent/shadow.S has saved up to the slot, in words: agent/keep.h. */
#define SCRY_CALL_REGISTERS 12

/* Its TSC; 0: it could not be recorded, and its return need not be. `saved`: what its return needs
 * goes there. */
uint64_t scry_call_entered(const uint64_t *slot, const uint64_t *arguments, uint64_t cookie,
			   int is_tail, uint64_t *saved);

/* A call that has parts at its return. */
struct scry_call_back {
	uint32_t hook;
	const struct scry_call_plan *plan;
	uint64_t saved[SCRY_PLAN_SAVED_MAX];
};
/* The plan of a hook's function, where its return has parts; else NULL. */
static inline const struct scry_call_plan *scry_call_plan_back(uint32_t hook)
{
	uint32_t at = scry_agent_shadow.plan_of[hook % SCRY_SHADOW_HOOKS_MAX];
	const struct scry_call_plan *plan = &scry_agent_shadow.plans[at % SCRY_PLAN_UNITS];

	return unlikely(at) && (plan->back | plan->back_words | plan->back_vectors) ? plan : 0;
}
/* Records the caller, before scry_call_entered does the rest. */
void scry_call_stack(const struct scry_walk_from *from);
void scry_call_returned(const uint64_t *slot, const struct scry_call_back *backs, uint32_t count);

#endif
