/*
 * What threads do between their calls (THINK, wire/replay.h): see feed_own.h.
 *
 * A recording says when calls were made, each some 64 calls or 100 us; what lies between two calls
 * of a thread is its work, or that it waited or had no processor. The sum tells them apart: gaps
 * are cut at the length at which all of them together are the CPU time that the program took, as
 * the kernel counted it. A thread that waited for a block or a place in a queue waits in the replay
 * anyway.
 *
 * The calls themselves lie in the gaps, too, with what recording them took. How much that is
 * follows from how long the threads work in all, which replan/work finds.
 */
#include "replan/feed_own.h"

#define CALL_NS 35    /* unless it is given: its recording (bench/malloc.md) and the allocator */
#define LEAST_NS 2000 /* a word for less would cost more than it is worth */
#define DEBT_NS 50000 /* calls that were faster than that */
#define GAP_MAX_US 1000000u /* in longer ones no thread works without memory */

_Static_assert(GAP_MAX_US *UINT64_C(1000) + LEAST_NS <= SCRY_REPLAY_THINK_MAX, "one word");

/* Eight buckets to each doubling. */
static uint32_t bucket(uint64_t us)
{
	uint32_t top;

	if (us < 8)
		return (uint32_t)us;
	if (us > GAP_MAX_US)
		us = GAP_MAX_US;
	top = 63u - (uint32_t)__builtin_clzll(us);
	return (top - 2) * 8 + (uint32_t)(us >> (top - 3) & 7);
}

static uint64_t bucket_us(uint32_t bucket)
{
	return bucket < 8 ? bucket : (UINT64_C(8) + bucket % 8) << (bucket / 8 - 1);
}

void scry_malloc_feed_think_learn(struct scry_malloc_feed *f)
{
	struct gaps *g = &f->gaps;
	uint64_t cpu_us = f->source->cpu_ns / 1000, below_us = 0, longer = 0;

	for (uint32_t i = 0; i < GAP_BUCKETS; i++)
		longer += g->count[i];
	g->max_us = 0;
	for (uint32_t i = 0; i < GAP_BUCKETS; i++) {
		if (below_us + longer * bucket_us(i) > cpu_us)
			break;
		g->max_us = bucket_us(i) < GAP_MAX_US ? bucket_us(i) : GAP_MAX_US;
		below_us += g->sum_us[i];
		longer -= g->count[i];
		g->kept_us = below_us + longer * g->max_us;
	}
	g->call_ns = CALL_NS;
}

void scry_malloc_feed_work(struct scry_malloc_feed *f, uint64_t work_ns)
{
	struct gaps *g = &f->gaps;
	uint64_t kept_ns = g->kept_us * 1000;

	f->opts.is_thinking = work_ns != 0;
	f->is_whole = false;
	if (g->calls)
		g->call_ns = work_ns < kept_ns ? (kept_ns - work_ns) / g->calls : 0;
}

void scry_malloc_feed_think(struct scry_malloc_feed *f, uint32_t stream)
{
	struct stream *l = &f->streams[stream];
	uint64_t gap = f->now_us - l->gap_from_us;
	uint32_t which;

	l->gap_calls++;
	if (!gap)
		return;
	l->gap_from_us = f->now_us;
	if (f->is_first) {
		which = bucket(gap);
		f->gaps.count[which]++;
		f->gaps.sum_us[which] += gap;
		f->gaps.calls += l->gap_calls;
	}
	gap = gap < f->gaps.max_us ? gap : f->gaps.max_us;
	l->think_ns += (int64_t)(gap * 1000) - (int64_t)(l->gap_calls * f->gaps.call_ns);
	l->gap_calls = 0;
	if (f->is_first || f->alive_max < 2 || !f->opts.is_thinking) {
		l->think_ns = 0;
		return;
	}
	if (l->think_ns < -DEBT_NS)
		l->think_ns = -DEBT_NS;
	if (l->think_ns < LEAST_NS)
		return;
	scry_malloc_feed_put(f, stream, SCRY_REPLAY_THINK | (uint64_t)l->think_ns << 6);
	f->stats.think_ns += (uint64_t)l->think_ns;
	l->think_ns = 0;
}
