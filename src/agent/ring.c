/*
 * The producer's end of the ring: reserve, put, publish. One producer at a time: the VM's lock
 * serialises allocation and sweeping within the one ractor that is armed.
 *
 * A handler waits for nothing: a full ring, or a keeper that no longer refreshes its lease, means
 * that the event is dropped and counted.
 */
#include "agent/objects.h"

#define LEASE_CHECK_EVERY 256

struct scry_agent_objects scry_agent_objects;
struct scry_agent_tables scry_agent_tables SCRY_WIPED;

static uint64_t tsc(void)
{
	uint32_t lo, hi;

	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}

/* Reads the clock once in 256 events: the lease is a second long, an event some ten nanoseconds. A
 * sample may be a second's work away from the next. */
static __attribute__((noinline)) void check_lease(struct scry_state_page *g)
{
	const struct scry_control *c = scry_agent.control;
	uint64_t now = tsc();

	g->until_lease_check = scry_agent_objects.sampling.on ? 1 : LEASE_CHECK_EVERY;
	g->lease_ok = now < c->lease_tsc;
	if (now >= c->lease_end_tsc)
		g->wanted = 0; /* no keeper comes back */
}

/* Closes the segment in use and goes on in the free one with the lowest number. 0: none is free. */
static int next_segment(struct scry_state_page *g)
{
	struct scry_control *c = scry_agent.control;
	struct scry_segment *done = &c->segments[g->segment];

	for (uint32_t i = 0; i < SCRY_SEGMENTS; i++) {
		if (__atomic_load_n(&c->taken[i], __ATOMIC_ACQUIRE))
			continue;
		c->taken[i] = 1;
		done->next = i;
		done->used = (uint32_t)(g->at % SCRY_SEGMENT_WORDS);
		if (!done->used) /* filled to its last word */
			done->used = SCRY_SEGMENT_WORDS;
		g->segment = i;
		g->at = (uint64_t)i * SCRY_SEGMENT_WORDS;
		g->end = g->at + SCRY_SEGMENT_WORDS;
		return 1;
	}
	return 0;
}

static __attribute__((noinline)) int reserve_slowly(struct scry_state_page *g)
{
	struct scry_control *c = scry_agent.control;

	if (!g->lease_ok) {
		c->lost_lease++;
		c->lost++;
		return 0;
	}
	if (next_segment(g))
		return 1;
	c->lost++;
	return 0;
}

SCRY_INTO_CALLERS int scry_ring_reserve(struct scry_state_page *g, uint64_t words)
{
	if (unlikely(--g->until_lease_check == 0))
		check_lease(g);
	if (likely(g->lease_ok) && likely(g->at + words <= g->end))
		return 1;
	return reserve_slowly(g);
}
