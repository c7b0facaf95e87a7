/* See malloc_growth.h. */
#include "view/malloc_growth.h"

#define PARTS 8u		/* of the time that is looked at; each of a moment at least */
#define MOMENTS_MIN (2 * PARTS) /* a recording with fewer is too short */
#define LEAST (64u << 10)	/* bytes: less does not matter */
#define LEAST_SHARE 1000	/* nor is less than a thousandth of what lives */
#define WAVERS 50		/* a fiftieth more or less is the same */
#define SLOWER 4		/* what grew so much faster at first was loaded, or is a cache */
#define LIKE_THE_REST 2		/* what came before the first moment is part of the rise */

struct series {
	uint64_t at[SCRY_MALLOC_MOMENTS + 1]; /* the last: the end */
	uint64_t floor[SCRY_MALLOC_MOMENTS + 1];
	uint32_t last;
};

static void fill(struct series *s, const uint64_t *moments, uint32_t n, uint64_t end)
{
	s->last = n;
	for (uint32_t i = 0; i <= n; i++)
		s->at[i] = i < n ? moments[i] : end;
	for (uint32_t i = n + 1; i-- > 0;)
		s->floor[i] = i == n || s->at[i] < s->floor[i + 1] ? s->at[i] : s->floor[i + 1];
}

/* The floor at the border of a part. */
static uint64_t border(const struct series *s, uint32_t from, uint32_t part)
{
	return s->floor[from + (s->last - from) * part / PARTS];
}

static bool rises_from(const struct series *s, uint32_t from)
{
	uint64_t grown = border(s, from, PARTS) - border(s, from, 0), half = PARTS / 2;

	if (grown < LEAST || grown < s->at[s->last] / LEAST_SHARE)
		return false;
	for (uint32_t i = 0; i < PARTS; i++)
		if (border(s, from, i) >= border(s, from, i + 1))
			return false;
	return (border(s, from, PARTS) - border(s, from, half)) * SLOWER >=
	       border(s, from, half) - border(s, from, 0);
}

/* The earliest moment from which on it rises. */
static bool find(const struct series *s, uint32_t *ret_from)
{
	for (uint32_t from = 0; from + PARTS <= s->last; from++)
		if (rises_from(s, from)) {
			*ret_from = from;
			return true;
		}
	return false;
}

static uint64_t most(const struct series *s, uint32_t from, uint32_t to)
{
	uint64_t m = 0;

	for (uint32_t i = from; i <= to; i++)
		m = s->at[i] > m ? s->at[i] : m;
	return m;
}

/* Had it been about as much at the beginning of the rise, or before? Then it may be one of many. */
static bool is_below_before(const struct series *s, uint32_t from, uint64_t grown)
{
	uint32_t length = s->last - from;

	return most(s, from + length / 2, s->last) < most(s, 0, from + length / PARTS) + grown / 2;
}

/* Moments up to the last time that is looked at. */
static uint32_t moments_of(const struct scry_malloc_process *p)
{
	uint64_t n = (p->last_at_ns - p->first_ns) / p->moment_every;

	return n < p->moment_count ? (uint32_t)n : p->moment_count;
}

struct held { /* by a process, or a caller */
	const uint64_t *moments;
	uint64_t older, last;
};

/* By how much what rises from the first moment on had risen before it, from what was older; 0: more
 * than since, so it was loaded. */
static uint64_t risen_before(const struct series *s, uint64_t older, uint64_t grown)
{
	uint64_t before = s->at[0] > older ? s->at[0] - older : 0;

	return before <= LIKE_THE_REST * grown / s->last ? before : 0;
}

static bool growth(const struct scry_malloc_process *p, const struct held *held,
		   struct scry_malloc_growth *ret)
{
	struct series s;
	uint64_t grown, before, since_ns, ns;
	uint32_t from;

	if (!scry_malloc_growth_is_known(p))
		return false;
	fill(&s, held->moments, moments_of(p), held->last);
	if (!find(&s, &from))
		return false;
	grown = s.floor[s.last] - s.floor[from];
	before = from ? 0 : risen_before(&s, held->older, grown);
	since_ns = (from + 1) * p->moment_every;
	ns = p->last_at_ns - p->first_ns - since_ns;
	*ret = (struct scry_malloc_growth){
		.is_late = from > s.last / PARTS,
		.is_below_before = is_below_before(&s, from, grown),
		.since_ns = before ? 0 : since_ns,
		.bytes = grown + before,
		.bytes_per_s = ns ? (uint64_t)((double)grown * 1e9 / (double)ns) : 0,
	};
	return true;
}

bool scry_malloc_growth_is_known(const struct scry_malloc_process *p)
{
	return moments_of(p) >= MOMENTS_MIN;
}

bool scry_malloc_process_growth(const struct scry_malloc_process *p,
				struct scry_malloc_growth *ret_growth)
{
	return growth(p, &(struct held){p->moments, p->older, p->last.bytes}, ret_growth);
}

/* Did the process never hold more before that time than it holds in the end? */
static bool is_new_high(const struct scry_malloc_process *p, uint64_t since_ns)
{
	for (uint32_t i = 0; i < p->moment_count && (i + 1) * p->moment_every <= since_ns; i++)
		if (p->moments[i] > p->last.bytes + p->last.bytes / WAVERS)
			return false;
	return true;
}

bool scry_malloc_caller_growth(const struct scry_malloc_process *p,
			       const struct scry_malloc_caller_sum *c,
			       struct scry_malloc_growth *ret_growth)
{
	struct scry_malloc_growth g;

	if (c->last.bytes < LEAST ||
	    !growth(p, &(struct held){c->moments, c->older, c->last.bytes}, &g))
		return false;
	if (g.is_below_before || (g.is_late && !is_new_high(p, g.since_ns)))
		return false;
	*ret_growth = g;
	return true;
}

uint64_t scry_malloc_caller_fall(const struct scry_malloc_process *p,
				 const struct scry_malloc_caller_sum *c)
{
	const uint32_t n = moments_of(p);
	uint64_t before, now = 0;
	uint32_t top = 0;

	for (uint32_t i = 1; i < n; i++)
		top = c->moments[i] > c->moments[top] ? i : top;
	if (!scry_malloc_growth_is_known(p) || top + PARTS > n || c->moments[top] < LEAST)
		return 0;
	before = c->moments[top];
	for (uint32_t i = 1; i <= PARTS; i++, before = now) {
		now = i < PARTS ? c->moments[top + (n - top) * i / PARTS] : c->last.bytes;
		if (now >= before)
			return 0;
	}
	return c->moments[top] - now;
}

bool scry_malloc_caller_half(const struct scry_malloc_process *p,
			     const struct scry_malloc_caller_sum *c, uint64_t *ret_bytes)
{
	const uint32_t n = moments_of(p);

	if (n < 2)
		return false;
	*ret_bytes = c->last.bytes - c->moments[n / 2 - 1];
	return true;
}
