/*
 * The producer's end of the ring: reserve, put, publish. One producer at a time: the VM's lock
 * serialises allocation and sweeping within the one ractor that is armed.
 *
 * A handler waits for nobody: a full ring, or a keeper that no longer refreshes its lease, means
 * that the event is dropped and counted.
 */
#include "agent/agent.h"

#define LEASE_CHECK_EVERY 64

struct scry_agent_data scry_agent;

static uint64_t tsc(void)
{
	uint32_t lo, hi;

	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}

/* Reads the clock once in 64 events: the lease is a second long, an event some ten nanoseconds. */
static void check_lease(void)
{
	const struct scry_control *c = scry_agent.control;
	uint64_t now = tsc();

	scry_agent.until_lease_check = LEASE_CHECK_EVERY;
	scry_agent.lease_ok = now < c->lease_tsc;
	if (now >= c->lease_end_tsc)
		scry_agent.control->wanted = 0;
}

int scry_ring_reserve(uint64_t words)
{
	struct scry_control *c = scry_agent.control;

	if (unlikely(--scry_agent.until_lease_check == 0))
		check_lease();
	if (unlikely(!scry_agent.lease_ok)) {
		c->lost_lease++;
		c->lost++;
		return 0;
	}
	if (likely(scry_agent.state.head + words - scry_agent.tail_seen <= scry_agent.ring_mask))
		return 1;
	scry_agent.tail_seen = __atomic_load_n(&c->tail, __ATOMIC_ACQUIRE);
	if (scry_agent.state.head + words - scry_agent.tail_seen <= scry_agent.ring_mask)
		return 1;
	c->lost++;
	return 0;
}
