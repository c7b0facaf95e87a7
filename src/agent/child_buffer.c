/*
 * A fork child moves into a child buffer of its own. See wire/child_buffers.h.
 *
 * Runs inside the child's first event (or a postponed job that it inherited), on a process state
 * page that the fork wiped. The inherited tables are empty by then: their pages are wiped too.
 * Plain stores and a few atomic operations; no system call, no waiting.
 */
#include "agent/thread_buffer.h"

static struct scry_claim *claim_of(struct scry_state_page *g)
{
	return (struct scry_claim *)((uint8_t *)g + SCRY_CLAIM_OFFSET);
}

static uint64_t tsc(void)
{
	uint32_t lo, hi;

	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}

/* The order matters to what looks at us from outside: `owned` is last. */
static void move_in(struct scry_state_page *g, uint32_t child_buffer, uint32_t watch,
		    void (*moved)(struct scry_state_page *))
{
	const struct scry_follow *f = &scry_agent.follow;
	uint64_t at =
		(uint64_t)f->child_buffers + SCRY_PAGE + child_buffer * SCRY_CHILD_BUFFER_BYTES;
	struct scry_control *c = (struct scry_control *)at;

	scry_agent.control = c;
	for (uint32_t i = 0; i < SCRY_CHANNELS; i++) {
		struct scry_agent_channel *k = &scry_agent.tracking.channels[i];

		k->control = (struct scry_control *)(at + f->channel_at[i]);
		k->pool = (struct scry_thread_buffer *)(at + f->channel_at[i] + SCRY_SHARED_HEAD);
		k->given_up = k->all_open = 0;
	}
	c->taken[0] = 1;
	g->frames = scry_agent.follow.frames;
	g->ring = at + SCRY_SHARED_HEAD;
	g->table = at + f->table_at + SCRY_SHARED_HEAD;
	g->head = g->at = 0;
	g->segment = 0;
	g->end = SCRY_SEGMENT_WORDS;
	__atomic_store_n(&g->open, 1, __ATOMIC_RELEASE); /* other threads use all of the above */
	/* each child draws samples of its own */
	g->random = (tsc() ^ (uint64_t)child_buffer << 40) * 0x9e3779b97f4a7c15ull | 1;
	g->wanted = watch;
	if (moved)
		moved(g);
	__atomic_store_n(&claim_of(g)->owned, child_buffer + 1, __ATOMIC_RELEASE);
}

static int claim_one(struct scry_state_page *g, void (*moved)(struct scry_state_page *g))
{
	struct scry_child_buffers *child_buffers = scry_agent.follow.child_buffers;
	struct scry_claim *claim = claim_of(g);
	uint32_t watch;

	watch = __atomic_load_n(&child_buffers->follow, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; watch && i < scry_agent.follow.sets; i++) {
		uint32_t is_free = 0;

		if (__atomic_load_n(&child_buffers->taken[i], __ATOMIC_RELAXED))
			continue;
		__atomic_store_n(&claim->trying, i + 1, __ATOMIC_SEQ_CST);
		if (!__atomic_compare_exchange_n(&child_buffers->taken[i], &is_free, 1, 0,
						 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			continue;
		/* The keeper clears `follow`, then looks which process has a child buffer: one of
		 * us two sees the other. */
		if (__atomic_load_n(&child_buffers->follow, __ATOMIC_SEQ_CST) != watch) {
			__atomic_store_n(&child_buffers->taken[i], 0, __ATOMIC_SEQ_CST);
			break;
		}
		__atomic_fetch_add(&child_buffers->claims, 1, __ATOMIC_RELAXED);
		move_in(g, i, watch, moved);
		return 1;
	}
	claim->trying = SCRY_CLAIM_GIVEN_UP;
	if (watch)
		__atomic_fetch_add(&child_buffers->refused, 1, __ATOMIC_RELAXED);
	return 0;
}

/* A child's other threads, which it may have by then, pass until that is done. */
int scry_child_buffer_claim(struct scry_state_page *g, void (*moved)(struct scry_state_page *g))
{
	uint64_t is_free = 0;

	if (!scry_agent.follow.child_buffers || g->open ||
	    claim_of(g)->trying == SCRY_CLAIM_GIVEN_UP ||
	    !__atomic_compare_exchange_n(&g->table, &is_free, 1, 0, __ATOMIC_ACQUIRE,
					 __ATOMIC_RELAXED) ||
	    !claim_one(g, moved))
		return 0;
	scry_thread_buffer_say_pid();
	return 1;
}
