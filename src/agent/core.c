/* The core's data, and what it says of parts that it does not call. See agent.h. */
#include "agent/agent.h"
#include "wire/shadow.h"

struct scry_agent_data scry_agent;
struct scry_agent_rows scry_agent_rows SCRY_WIPED;

void scry_following_change(uint32_t from, uint32_t to)
{
	__atomic_compare_exchange_n(&scry_agent.following.on, &from, to, 0, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
}

void scry_following_hold(void)
{
	scry_following_change(SCRY_SHADOW_ON, SCRY_SHADOW_HELD);
	scry_following_change(SCRY_SHADOW_PAUSED, SCRY_SHADOW_HELD);
}
