/*
 * A thread of the dynamic loader waits until the keeper has hooked what it has just loaded.
 *
 * It waits after relocation and before constructors (sys/loader), with the loader's lock held. It
 * draws a ticket, wakes the keeper, and waits until that has answered: at most load_wait_tsc ticks
 * (50 ms) beyond its last sign of life, and never beyond the lease, which is not renewed meanwhile
 * (1 s). Only while the keeper says that it writes, to the lease's end. A keeper that once did not
 * answer in time is not waited for again until it has caught up. Never in a fork child: `loads`
 * lies in the process state page, which is wiped there: its times are counted. Nor where the
 * program has forbidden itself system calls: it goes on, and what the keeper has not hooked yet is
 * reported as late.
 *
 * What the keeper has not seen may be an unwinder, which must not meet a return address that leads
 * to us: until it has, no new calls are followed.
 */
#include <stdint.h>

#include "agent/agent.h"
#include "agent/syscall.h"

#define NAP_NS 5000000
#define NAPS 10
#define NAPS_MAX 400 /* in all: other processes may write what says that the keeper lives */
#define CUTS 16	     /* naps that ended early, for one */

static void wake(uint32_t *word)
{
	if (!scry_calling_begin())
		return;
	scry_agent_syscall4(SCRY_SYS_FUTEX, (uint64_t)word, SCRY_FUTEX_WAKE, 1, 0);
	scry_calling_end();
}

static uint64_t now_tsc(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

static int is_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

static int wait_for(struct scry_control *c, uint32_t ticket)
{
	uint64_t end = now_tsc() + c->load_wait_tsc;
	uint32_t beat = __atomic_load_n(&c->load_beat, __ATOMIC_RELAXED), done;
	int has_given_up = 0, naps = 0, all = 0, is_whole;

	while (is_before(done = __atomic_load_n(&c->load_done, __ATOMIC_SEQ_CST), ticket)) {
		uint32_t beats = __atomic_load_n(&c->load_beat, __ATOMIC_RELAXED);
		uint64_t now = now_tsc();

		if (beats != beat) {
			end = now + c->load_wait_tsc;
			naps = 0;
		}
		beat = beats;
		if (now > __atomic_load_n(&c->lease_tsc, __ATOMIC_RELAXED) ||
		    all >= NAPS_MAX * CUTS)
			return 0;
		/* We say that we go, then look whether it writes; it says that it writes, then
		 * looks whether we go: one of us two sees the other. */
		/* Time in which we did not run, the keeper may not have run either. */
		if (((now > end && (naps >= NAPS || now > end + c->load_wait_tsc)) ||
		     scry_calling_is_over()) &&
		    !has_given_up) {
			__atomic_store_n(&c->load_given_up, ticket, __ATOMIC_SEQ_CST);
			has_given_up = 1;
		}
		if (has_given_up && !__atomic_load_n(&c->load_busy, __ATOMIC_SEQ_CST))
			return 0;
		is_whole = scry_calling_nap(&c->load_done, done, NAP_NS) == SCRY_ETIMEDOUT;
		naps += is_whole;
		all += is_whole ? CUTS : 1;
	}
	return 1;
}

/* What a fork child loads is not hooked: the keeper says that there was such. */
static void count_in_child(const struct scry_state_page *g)
{
	const struct scry_claim *claim = (const void *)((const uint8_t *)g + SCRY_CLAIM_OFFSET);
	struct scry_child_buffers *pool = scry_agent.follow.child_buffers;

	if (pool && (!g->open || claim->owned) && __atomic_load_n(&pool->follow, __ATOMIC_RELAXED))
		__atomic_fetch_add(&pool->loads, 1, __ATOMIC_RELAXED);
}

/* `arg`: what the loader hands to the code that it is about to run; 0: not known. */
void scry_agent_load(uint64_t arg) __attribute__((used));
void scry_agent_load(uint64_t arg)
{
	struct scry_state_page *g = scry_agent.state_page;
	struct scry_control *c = scry_agent.control;
	uint32_t ticket, given_up;

	if (!__atomic_load_n(&g->loads, __ATOMIC_RELAXED)) {
		count_in_child(g);
		return;
	}
	__atomic_fetch_add(&g->inflight, 1, __ATOMIC_SEQ_CST);
	c->load_arg = arg;
	given_up = __atomic_load_n(&c->load_given_up, __ATOMIC_RELAXED);
	ticket = __atomic_add_fetch(&c->load_seq, 1, __ATOMIC_SEQ_CST);
	wake(&c->load_seq);
	if (is_before(__atomic_load_n(&c->load_done, __ATOMIC_RELAXED), given_up) ||
	    !wait_for(c, ticket)) {
		scry_following_hold();
		__atomic_store_n(&c->load_given_up, ticket, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(&c->load_late, 1, __ATOMIC_RELAXED);
	}
	__atomic_fetch_sub(&g->inflight, 1, __ATOMIC_SEQ_CST);
}
