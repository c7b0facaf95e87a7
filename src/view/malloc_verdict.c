/*
 * One sentence about the memory of a process. See malloc_verdict.h.
 */
#include "view/malloc_verdict.h"

#include "base/text.h"

#define POINTS_MIN 8	       /* fewer say nothing of growth */
#define MOMENTS_MIN 4	       /* a recording with fewer is too short to tell when it grew */
#define GROWTH_MIN (64u << 10) /* bytes in the second half: less is no matter */
#define EXPLAINED_MIN                                                                            \
	0.6		   /* of resident memory by what live blocks took up: less tells nothing \
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

/* Rose in each quarter after the first, and by a tenth from half to end. */
static bool rises(const uint64_t quarters[4])
{
	return quarters[0] < quarters[1] && quarters[1] < quarters[2] &&
	       quarters[2] < quarters[3] && quarters[3] - quarters[1] >= GROWTH_MIN &&
	       quarters[3] - quarters[1] > quarters[1] / 10;
}

/* What is loaded once grows from quarter to quarter of the calls, too, where nearly all are made at
 * the beginning; a leak goes on: in the second half of the time, and in the last quarter. */
static bool goes_on(const uint64_t moments[SCRY_MALLOC_MOMENTS], uint32_t n, uint64_t end)
{
	uint64_t half, late;

	if (n < MOMENTS_MIN)
		return true;
	half = moments[(n + 1) / 2 - 1];
	late = moments[(3 * n + 3) / 4 - 1];
	return end > half && end - half >= GROWTH_MIN && end - half > half / 10 && end > late &&
	       end - late > (end - half) / 10;
}

bool scry_malloc_caller_grows(const struct scry_malloc_process *p,
			      const struct scry_malloc_caller_sum *c)
{
	uint32_t n = p->point_count;

	if (n < POINTS_MIN)
		return false;
	return rises((const uint64_t[4]){c->slices[n / 4 - 1], c->slices[n / 2 - 1],
					 c->slices[n * 3 / 4 - 1], c->live.bytes}) &&
	       goes_on(c->moments, p->moment_count, c->live.bytes);
}

/* By calls, up to a point with `end` bytes. */
static bool process_rises(const struct scry_malloc_process *p, uint64_t end)
{
	const struct scry_malloc_point *points = p->points;
	uint32_t n = p->point_count;

	return rises((const uint64_t[4]){points[n / 4 - 1].live.bytes, points[n / 2 - 1].live.bytes,
					 points[n * 3 / 4 - 1].live.bytes, end});
}

static bool process_grows(const struct scry_malloc_process *p)
{
	return process_rises(p, p->live.bytes) &&
	       goes_on(p->moments, p->moment_count, p->live.bytes);
}

/* Of callers that grew all the time, in the second half of the calls; the sum of all may hide it
 * behind blocks that are older, or that others freed. */
static uint64_t growth_of_some(const struct scry_malloc_process *p, uint32_t *ret_callers)
{
	uint64_t bytes = 0;

	*ret_callers = 0;
	for (uint32_t i = 0; i < p->caller_count; i++) {
		const struct scry_malloc_caller_sum *c = &p->callers[i];

		if (!scry_malloc_caller_grows(p, c))
			continue;
		bytes += c->live.bytes - c->slices[p->point_count / 2 - 1];
		++*ret_callers;
	}
	return bytes;
}

static bool some_grow(const struct scry_malloc_process *p)
{
	uint64_t made = p->peak.bytes;
	uint32_t callers;

	for (uint32_t i = 0; i < p->caller_count; i++)
		made -= p->callers[i].name.caller ? 0 : p->callers[i].peak.bytes; /* older */
	return growth_of_some(p, &callers) > made / 10;
}

/* Resident memory was mostly not in live blocks. */
static bool is_unexplained(const struct scry_malloc_process *p)
{
	return p->rss_peak > p->taken_peak + RETAINED_MIN &&
	       (double)p->taken_peak < EXPLAINED_MIN * (double)p->rss_peak;
}

/* Most of that rest is none of malloc's: malloc never had it from the kernel, or, as each byte of a
 * gap was in some block once, so little was ever asked for. */
static bool is_elsewhere(const struct scry_malloc_process *p)
{
	if (!is_unexplained(p))
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

static enum scry_malloc_verdict judge(const struct scry_malloc_process *p)
{
	uint64_t live = p->rss_live;

	if (p->point_count < POINTS_MIN)
		return SCRY_MALLOC_VERDICT_UNKNOWN;
	if (process_grows(p))
		return SCRY_MALLOC_VERDICT_GROWS;
	if (some_grow(p) || scry_malloc_older_unknown(p))
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

static void put_growth(const struct scry_malloc_process *p, struct scry_buf *buf)
{
	uint32_t n = p->point_count;

	put_size(buf, "live bytes grew all the time, from ", p->points[n / 4 - 1].live.bytes, "");
	put_size(buf, " after a quarter of the calls to ", p->live.bytes,
		 " at the end: a leak, or a program still filling its caches; rows marked + below "
		 "grew with "
		 "it");
}

/* What rose with the calls and is no leak: when it did, or that it was freed. */
static void put_past_growth(const struct scry_malloc_process *p, struct scry_buf *buf)
{
	uint64_t end = p->live.bytes, half;
	uint32_t i = 0;

	if (p->point_count < POINTS_MIN)
		return;
	if (process_rises(p, end)) { /* there are moments: else it were a leak */
		half = p->moments[(p->moment_count + 1) / 2 - 1];
		while (i < p->point_count - 1 && p->points[i].live.bytes < end / 10 * 9)
			i++;
		scry_buf_printf(buf, ": nine tenths of what lived at the end were there after ");
		scry_text_duration(buf, p->points[i].time_ns - p->first_ns);
		put_size(buf, ", and they grew by ", end > half ? end - half : 0,
			 " in the second half of the time, ");
		scry_text_duration(buf, (p->seen_ns - p->first_ns) / 2);
	} else if (process_rises(p, p->points[p->point_count - 1].live.bytes)) {
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

static void put_unknown(const struct scry_malloc_process *p, struct scry_buf *buf)
{
	uint32_t callers;
	uint64_t grown;

	if (p->point_count < POINTS_MIN) {
		scry_buf_printf(buf, "too few calls to tell growth");
		return;
	}
	if (some_grow(p)) {
		grown = growth_of_some(p, &callers);
		scry_buf_printf(buf,
				"cannot tell a leak: live bytes as a whole did not grow all the "
				"time, but those of %u caller%s did, ",
				callers, callers == 1 ? "" : "s");
		put_size(buf, "by ", grown,
			 " in the second half of the calls (rows marked + below); fix: watch "
			 "longer");
		return;
	}
	put_size(buf, "", p->rss_first,
		 " were resident before the first call that was recorded, and their blocks are not "
		 "known: whether malloc explains the resident memory cannot be told");
}

/* What the rest is, as far as it is known. */
static void put_unexplained(const struct scry_malloc_process *p, struct scry_buf *buf)
{
	bool is_certain = is_elsewhere(p);

	scry_buf_printf(buf, "%s %.0f %% of the resident memory: ",
			is_certain ? "malloc explains only" : "live blocks explain only",
			100.0 * (double)p->taken_peak / (double)p->rss_peak);
	put_size(buf, "", p->taken_peak, " were in live blocks at most, with their heads, ");
	put_size(buf, "", p->rss_peak, " were resident at most; the rest is ");
	if (is_certain) {
		scry_buf_printf(buf, "what the program maps itself, as the heap of a VM: ");
		if (p->held_peak)
			put_size(buf, "malloc held ", p->held_peak, " of the kernel's at most; ");
		else
			put_size(buf, "all blocks would be ", p->taken_all,
				 " if none had been freed; ");
		return;
	}
	if (p->has_vm)
		scry_buf_printf(buf, "the heap of the VM, which it maps itself, or gaps between "
				     "blocks");
	else if (p->threads > 1)
		scry_buf_printf(buf,
				"gaps between blocks, in the arenas of malloc for %u threads, or "
				"what the program maps itself",
				p->threads);
	else
		scry_buf_printf(buf, "gaps between blocks, or what the program maps itself");
	scry_buf_printf(buf, ": scry malloc replay shows what malloc alone comes to; ");
}

enum scry_malloc_verdict scry_malloc_verdict(const struct scry_malloc_process *p,
					     struct scry_buf *buf)
{
	enum scry_malloc_verdict verdict = judge(p);

	if (verdict != SCRY_MALLOC_VERDICT_UNKNOWN && is_unexplained(p) && !is_in_gaps(p) &&
	    !scry_malloc_older_unknown(p))
		put_unexplained(p, buf);
	switch (verdict) {
	case SCRY_MALLOC_VERDICT_UNKNOWN:
		put_unknown(p, buf);
		break;
	case SCRY_MALLOC_VERDICT_GROWS:
		put_growth(p, buf);
		break;
	case SCRY_MALLOC_VERDICT_RETAINS:
		put_size(buf, "no leak seen: the program freed what it held at its peak (",
			 p->peak.bytes, ")");
		put_rss(p, buf);
		scry_buf_printf(buf, ": kept by the allocator, or held by blocks scattered over "
				     "its pages; another allocator may give it back: scry malloc "
				     "replay");
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
