/*
 * Return addresses of followed calls (wire/shadow.h), for code that reads a stack: there a thunk's
 * address is in their place.
 */
#ifndef SCRY_AGENT_RETURNS_H
#define SCRY_AGENT_RETURNS_H

#include "agent/agent.h"
#include "wire/shadow.h"

extern struct scry_shadow scry_agent_shadow SCRY_SHARED;

/* Where a thunk leads; any other address as it is. */
static inline uint64_t scry_return_home(uint64_t pc)
{
	const uint64_t thunks = scry_agent.following.thunks, at = pc - thunks;

	return unlikely(at < SCRY_SHADOW_THUNKS * SCRY_SHADOW_THUNK_BYTES && thunks)
		       ? scry_agent_shadow.originals[at / SCRY_SHADOW_THUNK_BYTES]
		       : pc;
}

#endif
