/*
 * The producer's end of the ring: reserve, put, publish. One producer at a time: the VM's lock
 * serialises allocation and sweeping within the one ractor that is armed.
 *
 * A handler waits for nobody: a full ring, or a keeper that no longer refreshes its lease, means
 * that the event is dropped and counted.
 */
#include "agent/agent.h"

#define LEASE_CHECK_EVERY 256

struct scry_agent_data scry_agent;

static uint64_t tsc(void)
{
	uint32_t lo, hi;

	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}

/* Reads the clock once in 256 events: the lease is a second long, an event some ten nanoseconds. */
static __attribute__((noinline)) void check_lease(struct scry_gate *g)
{
	const struct scry_control *c = scry_agent.control;
	uint64_t now = tsc();

	g->until_lease_check = LEASE_CHECK_EVERY;
	g->lease_ok = now < c->lease_tsc;
	if (now >= c->lease_end_tsc)
		g->wanted = 0; /* nobody comes back */
}

static __attribute__((noinline)) int reserve_slowly(struct scry_gate *g, uint64_t words)
{
	struct scry_control *c = scry_agent.control;

	if (!g->lease_ok) {
		c->lost_lease++;
		c->lost++;
		return 0;
	}
	g->tail_seen = __atomic_load_n(&c->tail, __ATOMIC_ACQUIRE);
	if (g->head + words - g->tail_seen <= g->ring_mask)
		return 1;
	c->lost++;
	return 0;
}

int scry_ring_reserve(struct scry_gate *g, uint64_t words)
{
	if (unlikely(--g->until_lease_check == 0))
		check_lease(g);
	if (likely(g->lease_ok) && likely(g->head + words - g->tail_seen <= g->ring_mask))
		return 1;
	return reserve_slowly(g, words);
}
