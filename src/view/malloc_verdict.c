/*
 * One sentence about the memory of a process. See malloc_verdict.h.
 */
#include "view/malloc_verdict.h"

#include "base/text.h"
#include "view/malloc_growth.h"

#include <stdio.h>

#define POINTS_MIN 8	       /* fewer say nothing of growth */
#define GROWTH_MIN (64u << 10) /* bytes: less does not matter */
#define EXPLAINED_MIN                                                                           \
	0.6		   /* of resident memory by what live blocks took up: less says nothing \
			    * of the allocator */
#define FRAGMENTED_MIN 1.4 /* resident memory to the peak of live bytes; heads are less */
#define LATE 10 /* a look so much of the recording's time before the last call is not its end */
#define RETAINED_MIN (1u << 20) /* bytes: less is any allocator's small change */

const char *scry_malloc_verdict_word(enum scry_malloc_verdict verdict)
{
	static const char *const words[] = {
		[SCRY_MALLOC_VERDICT_UNKNOWN] = "unknown",
		[SCRY_MALLOC_VERDICT_GROWS] = "grows",
		[SCRY_MALLOC_VERDICT_RETAINS] = "retains",
		[SCRY_MALLOC_VERDICT_FRAGMENTS] = "fragments",
		[SCRY_MALLOC_VERDICT_STEADY] = "steady",
		[SCRY_MALLOC_VERDICT_ELSEWHERE] = "elsewhere",
		[SCRY_MALLOC_VERDICT_UNEXPLAINED] = "unexplained",
	};

	return words[verdict];
}

/* What of a process grows. */
struct leak {
	bool has_process; /* its live bytes as a whole */
	struct scry_malloc_growth process;
	uint32_t callers;
	uint64_t bytes, bytes_per_s; /* of these callers together */
	uint64_t fallen;	     /* of callers whose live bytes fell all the time */
};

static struct leak leak_of(const struct scry_malloc_process *p)
{
	struct leak l = {.has_process = scry_malloc_process_growth(p, &l.process)};
	struct scry_malloc_growth g;

	for (uint32_t i = 0; i < p->caller_count; i++) {
		l.fallen += scry_malloc_caller_fall(p, &p->callers[i]);
		if (!scry_malloc_caller_growth(p, &p->callers[i], &g))
			continue;
		l.callers++;
		l.bytes += g.bytes;
		l.bytes_per_s += g.bytes_per_s;
	}
	return l;
}

/* What some callers have more, others have less: new blocks may stand in for older ones. */
static bool is_replaced(const struct leak *l)
{
	return l->callers && l->fallen > l->bytes / 2;
}

/* It grew for half the recording or longer, but had been larger: a rise of many, or a leak behind
 * what was freed at the beginning. */
static bool is_one_rise(const struct scry_malloc_process *p, const struct leak *l)
{
	return l->has_process && l->process.is_below_before &&
	       l->process.since_ns < (p->seen_ns - p->first_ns) / 2;
}

/* Rose in each quarter of the calls after the first, and by a tenth from half to end. */
static bool rises_by_calls(const struct scry_malloc_process *p, uint64_t end)
{
	const struct scry_malloc_moment *points = p->points;
	uint32_t n = p->point_count;
	const uint64_t q1 = points[n / 4 - 1].live.bytes, q2 = points[n / 2 - 1].live.bytes,
		       q3 = points[n * 3 / 4 - 1].live.bytes;

	return q1 < q2 && q2 < q3 && q3 < end && end - q2 >= GROWTH_MIN && end - q2 > q2 / 10;
}

/* Resident memory was mostly not in live blocks. */
static bool is_unexplained(const struct scry_malloc_process *p)
{
	return p->rss_peak > p->taken_peak + RETAINED_MIN &&
	       (double)p->taken_peak < EXPLAINED_MIN * (double)p->rss_peak;
}

/* Most of that rest is none of malloc's: malloc never had it from the kernel, or, as each byte of a
 * gap was in some block once, so little was ever asked for. (What other allocators than glibc's
 * keep for themselves is not known: tcmalloc has megabytes of tables before its first block.) */
static bool is_elsewhere(const struct scry_malloc_process *p)
{
	if (!is_unexplained(p) || !p->is_glibc)
		return false;
	return (double)p->taken_all < EXPLAINED_MIN * (double)p->rss_peak ||
	       (p->held_peak && p->held_peak < p->taken_peak + (p->rss_peak - p->taken_peak) / 2);
}

/* Most of it is in gaps: malloc had it, and the blocks are known. */
static bool is_in_gaps(const struct scry_malloc_process *p)
{
	return is_unexplained(p) && p->held_peak && !is_elsewhere(p) &&
	       !(p->allocator.flags & SCRY_ALLOCATOR_OLDER_PARTIAL);
}

bool scry_malloc_older_unknown(const struct scry_malloc_process *p)
{
	return !p->functions[SCRY_MALLOC_OLDER] &&
	       p->rss_first > p->rss_first_live + RETAINED_MIN && p->rss_first > p->rss_peak / 10;
}

bool scry_malloc_is_measured(const struct scry_malloc_process *p)
{
	return p->rss_ns > p->first_ns;
}

bool scry_malloc_peak_looked_at(const struct scry_malloc_process *p)
{
	return p->rss_peak && p->rss_live_peak >= p->peak.bytes / 2;
}

static enum scry_malloc_verdict judge(const struct scry_malloc_process *p, const struct leak *l)
{
	uint64_t live = p->rss_live;

	if (p->point_count < POINTS_MIN || !scry_malloc_growth_is_known(p))
		return SCRY_MALLOC_VERDICT_UNKNOWN;
	if (l->has_process && !l->process.is_below_before)
		return SCRY_MALLOC_VERDICT_GROWS;
	if (l->callers && !is_replaced(l))
		return SCRY_MALLOC_VERDICT_GROWS;
	if (l->callers || is_one_rise(p, l) || scry_malloc_older_unknown(p))
		return SCRY_MALLOC_VERDICT_UNKNOWN;
	if (is_unexplained(p) && !is_in_gaps(p))
		return is_elsewhere(p) ? SCRY_MALLOC_VERDICT_ELSEWHERE
				       : SCRY_MALLOC_VERDICT_UNEXPLAINED;
	if (!p->rss || p->rss < live + RETAINED_MIN)
		return SCRY_MALLOC_VERDICT_STEADY;
	if (live < p->peak.bytes / 2 && p->rss - live > p->peak.bytes / 2 &&
	    p->rss > p->rss_peak / 2)
		return SCRY_MALLOC_VERDICT_RETAINS;
	if ((double)p->rss_peak > FRAGMENTED_MIN * (double)p->peak.bytes)
		return SCRY_MALLOC_VERDICT_FRAGMENTS;
	return SCRY_MALLOC_VERDICT_STEADY;
}

static void put_size(struct scry_buf *buf, const char *before, uint64_t bytes, const char *after)
{
	scry_buf_printf(buf, "%s", before);
	scry_text_size(buf, bytes);
	scry_buf_printf(buf, "%s", after);
}

static void put_rate(struct scry_buf *buf, uint64_t bytes, uint64_t bytes_per_s)
{
	put_size(buf, " by ", bytes, ", ");
	scry_text_size(buf, bytes_per_s);
	scry_buf_printf(buf, " a second");
}

static void put_since(struct scry_buf *buf, const struct scry_malloc_growth *g)
{
	scry_buf_printf(buf, "from ");
	if (g->since_ns) {
		scry_text_duration(buf, g->since_ns);
		scry_buf_printf(buf, " after ");
	}
	scry_buf_printf(buf, "the first call to the end,");
	put_rate(buf, g->bytes, g->bytes_per_s);
}

static void put_growth(const struct scry_malloc_process *p, const struct leak *l,
		       struct scry_buf *buf)
{
	scry_buf_printf(buf, "live bytes grew ");
	if (l->callers) {
		scry_buf_printf(buf, "to the end, those of %u caller%s", l->callers,
				l->callers == 1 ? "" : "s");
		put_rate(buf, l->bytes, l->bytes_per_s);
	} else {
		put_since(buf, &l->process);
		put_size(buf, ", to ", p->last.bytes, "");
	}
	if (p->is_released) {
		scry_buf_printf(buf, "; the program freed ");
		scry_text_size(buf, p->last.bytes - p->live.bytes);
		scry_buf_printf(buf, " of what lived in its last ");
		scry_text_duration(buf, p->seen_ns - p->last_at_ns);
	}
	scry_buf_printf(buf, ": a leak%s, %sor a program still filling its caches",
			p->is_released ? " while it runs" : "",
			p->has_vm ? "garbage that no collection has freed yet, " : "");
	if (l->callers)
		scry_buf_printf(buf, " (rows marked + below)");
}

/* What rose with the calls and is not a leak: when it did, or that it was freed. */
static void put_past_growth(const struct scry_malloc_process *p, struct scry_buf *buf)
{
	uint64_t end = p->live.bytes, half;
	uint32_t i = 0;

	if (p->point_count < POINTS_MIN)
		return;
	if (rises_by_calls(p, end)) {
		half = p->moments[(p->moment_count + 1) / 2 - 1];
		while (i < p->point_count - 1 && p->points[i].live.bytes < end / 10 * 9)
			i++;
		scry_buf_printf(buf, ": nine tenths of what lived at the end were there after ");
		scry_text_duration(buf, p->points[i].time_ns - p->first_ns);
		put_size(buf, ", and they grew by ", end > half ? end - half : 0,
			 " in the second half of the time, ");
		scry_text_duration(buf, (p->seen_ns - p->first_ns) / 2);
	} else if (rises_by_calls(p, p->points[p->point_count - 1].live.bytes)) {
		put_size(buf, ": they did nearly to the end, but only ", end, " were left then");
	}
}

static void put_rss(const struct scry_malloc_process *p, struct scry_buf *buf)
{
	if (!scry_malloc_is_measured(p)) {
		scry_buf_printf(buf, "; resident memory was not measured after the first call: the "
				     "program was too short for that");
		return;
	}
	put_size(buf, "; resident memory was ", p->rss, " at the last look, ");
	if (p->last_ns > p->rss_ns && p->last_ns - p->rss_ns > (p->last_ns - p->first_ns) / LATE) {
		scry_text_duration(buf, p->last_ns - p->rss_ns);
		scry_buf_printf(buf, " before the last call, ");
	}
	put_size(buf, "when ", p->rss_live, " lived");
	if (p->rss_live > p->rss + RETAINED_MIN)
		scry_buf_printf(buf, ": not all of that was touched");
}

static void put_unknown(const struct scry_malloc_process *p, const struct leak *l,
			struct scry_buf *buf)
{
	if (p->point_count < POINTS_MIN) {
		scry_buf_printf(buf, "too few calls to show growth");
		return;
	}
	if (!scry_malloc_growth_is_known(p)) {
		scry_buf_printf(buf, "too short to show growth: from the first call to the last ");
		scry_text_duration(buf, p->seen_ns - p->first_ns);
		return;
	}
	if (l->callers) {
		scry_buf_printf(buf,
				"cannot tell a leak: live bytes of %u caller%s grew all the time "
				"(rows marked + below),",
				l->callers, l->callers == 1 ? "" : "s");
		put_rate(buf, l->bytes, l->bytes_per_s);
		put_size(buf, ", but live bytes of others fell by ", l->fallen,
			 ": newer blocks may replace older ones; fix: watch longer");
		return;
	}
	if (is_one_rise(p, l)) {
		scry_buf_printf(buf, "cannot tell a leak: live bytes grew ");
		put_since(buf, &l->process);
		scry_buf_printf(buf, ", but had been more before; fix: watch longer");
		return;
	}
	put_size(buf, "", p->rss_first,
		 " were resident before the first call that was recorded, and their blocks are not "
		 "known: it is open whether malloc explains the resident memory");
}

/* What the rest is, as far as it is known. */
static void put_unexplained(const struct scry_malloc_process *p, struct scry_buf *buf)
{
	bool is_certain = is_elsewhere(p);
	char stacks[48] = "";

	if (p->threads > 1)
		snprintf(stacks, sizeof(stacks), ", the stacks of %u threads", p->threads);
	scry_buf_printf(buf, "%s %.0f %% of the resident memory: ",
			is_certain ? "malloc explains only" : "live blocks explain only",
			100.0 * (double)p->taken_peak / (double)p->rss_peak);
	put_size(buf, "", p->taken_peak, " were in live blocks at most, with their heads, ");
	put_size(buf, "", p->rss_peak, " were resident at most; the rest is ");
	if (is_certain) {
		scry_buf_printf(buf, "%s%s: ",
				p->has_vm ? "the heap of the VM, and what else is mapped itself"
					  : "what the program maps itself",
				stacks);
		if (p->held_peak)
			put_size(buf, "malloc held ", p->held_peak, " of the kernel's at most; ");
		else
			put_size(buf, "all blocks would be ", p->taken_all,
				 " if none had been freed; ");
		return;
	}
	if (p->is_glibc && p->threads > 1)
		scry_buf_printf(buf, "gaps between blocks, in the arenas of malloc for %u threads",
				p->threads);
	else
		scry_buf_printf(buf, "gaps between blocks");
	scry_buf_printf(buf,
			"%s%s, or what the program maps itself%s: scry malloc replay shows "
			"what malloc alone comes to; ",
			p->is_glibc ? "" : ", tables and caches of the allocator's own", stacks,
			p->has_vm ? ", as the heap of the VM" : "");
}

/* Threads have arenas, and most of what malloc held without need is there. */
static bool is_in_arenas(const struct scry_malloc_process *p)
{
	return p->arenas > 2 && p->held_peak > p->taken_peak &&
	       p->arenas_held > (p->held_peak - p->taken_peak) / 2 &&
	       p->arenas_held > p->held_peak / 2;
}

static void put_arenas(const struct scry_malloc_process *p, struct scry_buf *buf)
{
	if (!is_in_arenas(p))
		return;
	scry_buf_printf(buf, "; malloc has %llu arenas, ", (unsigned long long)p->arenas);
	put_size(buf, "and ", p->arenas_held,
		 " of its memory were in arenas of threads: scry malloc replay --with "
		 "glibc,glibc:MALLOC_ARENA_MAX=2 shows whether fewer arenas need less");
}

enum scry_malloc_verdict scry_malloc_verdict(const struct scry_malloc_process *p,
					     struct scry_buf *buf)
{
	const struct leak leak = leak_of(p);
	enum scry_malloc_verdict verdict = judge(p, &leak);

	if (verdict != SCRY_MALLOC_VERDICT_UNKNOWN && is_unexplained(p) && !is_in_gaps(p) &&
	    !scry_malloc_older_unknown(p))
		put_unexplained(p, buf);
	switch (verdict) {
	case SCRY_MALLOC_VERDICT_UNKNOWN:
		put_unknown(p, &leak, buf);
		break;
	case SCRY_MALLOC_VERDICT_GROWS:
		put_growth(p, &leak, buf);
		break;
	case SCRY_MALLOC_VERDICT_RETAINS:
		put_size(buf, "no leak seen: the program freed what it held at its peak (",
			 p->peak.bytes, ")");
		put_rss(p, buf);
		scry_buf_printf(buf, ": kept by the allocator, or held by blocks scattered over "
				     "its pages; another allocator may give it back: scry malloc "
				     "replay");
		put_arenas(p, buf);
		return verdict;
	case SCRY_MALLOC_VERDICT_FRAGMENTS:
		put_size(buf, "no leak seen; resident memory reached ", p->rss_peak, "");
		put_size(buf, " while no more than ", p->peak.bytes, " ever lived, ");
		put_size(buf, "", p->taken_peak, " with what is usable behind it and heads: ");
		if (is_in_gaps(p))
			put_size(buf, "malloc held ", p->held_peak,
				 " of the kernel's, and what no block took up of that is in gaps");
		else
			scry_buf_printf(buf, "lost in or between blocks, or not malloc's");
		scry_buf_printf(buf, "; another allocator may need less: scry malloc replay");
		put_arenas(p, buf);
		return verdict;
	case SCRY_MALLOC_VERDICT_ELSEWHERE:
	case SCRY_MALLOC_VERDICT_UNEXPLAINED:
		scry_buf_printf(buf,
				"no leak of malloc seen: live bytes did not grow all the time");
		put_past_growth(p, buf);
		break;
	case SCRY_MALLOC_VERDICT_STEADY:
		put_size(buf, "no leak seen: live bytes reached ", p->peak.bytes,
			 " and did not grow all the time");
		put_past_growth(p, buf);
		break;
	}
	if (!p->rss) {
		scry_buf_printf(buf, "; the recording does not say how much memory was resident");
		return verdict;
	}
	put_rss(p, buf);
	return verdict;
}
