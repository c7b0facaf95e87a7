/*
 * The real hooks of a guess, in the child: what do the functions return, and what are they given?
 * See alloc_counts.h.
 */
#include "instrument/objects/alloc_counts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/vm.h"
#include "agent/objects.h"
#include "base/err.h"

static bool is_returned(const struct scry_agent_probe *p, uint64_t object)
{
	for (uint64_t i = 0; i < p->births && i < SCRY_PROBE_ISEQ_EVENTS; i++)
		if (p->returned[i] == object)
			return true;
	return false;
}

static bool is_given(const struct scry_agent_probe *p, uint32_t argument, uint64_t object)
{
	for (uint64_t i = 0; i < p->ends && i < SCRY_PROBE_ENDS; i++)
		if (p->given[i][argument] == object)
			return true;
	return false;
}

/* Every object that the child reported was returned by one of them. */
static bool are_all_returned(const struct scry_calib *reported, const struct scry_agent_probe *p)
{
	const struct scry_fact *f = NULL;
	size_t n = 0;

	for (; (f = scry_fact_next(reported, f, "at")); n++)
		if (!is_returned(p, scry_fact_addr(f, 1)))
			return false;
	return n >= SCRY_ALLOC_COUNTS_REPORTED;
}

/* Is `object` in a slot that a call named by an argument, and a mask in another? */
static bool is_in_mask(const struct scry_alloc_counts *c, const struct scry_agent_probe *p,
		       uint64_t object)
{
	const struct scry_ruby_alloc_functions *m = &c->ruby->layout.alloc_functions;

	for (uint64_t i = 0; i < p->ends && i < SCRY_PROBE_ENDS; i++) {
		uint64_t first = p->given[i][m->end_argument];
		uint64_t away = object - first, slot = away / c->child->layout.slot_size;

		if (object >= first && slot < 64 && away % c->child->layout.slot_size == 0 &&
		    p->given[i][m->end_mask] >> slot & 1)
			return true;
	}
	return false;
}

/* How many ends of what the child reported does the guess in layout.alloc_functions explain? */
static size_t explained(const struct scry_alloc_counts *c, const struct scry_calib *reported,
			const struct scry_agent_probe *p)
{
	const struct scry_ruby_alloc_functions *m = &c->ruby->layout.alloc_functions;
	const struct scry_fact *f = NULL;
	size_t hits = 0;

	while ((f = scry_fact_next(reported, f, "at")))
		hits += m->end_mask == SCRY_NO_MASK
				? is_given(p, m->end_argument, scry_fact_addr(f, 1))
				: is_in_mask(c, p, scry_fact_addr(f, 1));
	return hits;
}

static uint64_t scratch_at(const struct scry_alloc_counts *c)
{
	return scry_inject_symbol(&c->inj, "scry_agent_tables") +
	       offsetof(struct scry_agent_tables, sampled.scratch);
}

static int set_probe(struct scry_alloc_counts *c, uint16_t probe)
{
	const struct scry_ruby_alloc_functions *m = &c->ruby->layout.alloc_functions;
	const struct scry_agent_hooks plan = {.probe = probe,
					      .end_argument = (uint16_t)m->end_argument,
					      .end_mask = (uint16_t)m->end_mask,
					      .end_stride = c->child->layout.slot_size};
	const uint64_t none[2] = {0};
	int r = scry_edit_poke(c->inj.mem.fd,
			       scry_inject_symbol(&c->inj, "scry_agent_vm") +
				       offsetof(struct scry_agent_vm, hooks),
			       &plan, sizeof(plan));

	return r < 0 ? r : scry_edit_poke(c->inj.mem.fd, scratch_at(c), none, sizeof(none));
}

/* The real hooks of a set instead of the counting ones, in a mode in which the agent keeps what is
 * returned and given. */
static int hook_set(struct scry_alloc_counts *c)
{
	const struct scry_hook_to born = {
		.kind = SCRY_HOOK_REPLACE, .way = SCRY_WAY_ENTRY, .handler = "scry_agent_born"};
	const struct scry_hook_to freed = {
		.kind = SCRY_HOOK_CALL, .way = SCRY_WAY_ENTRY, .handler = "scry_agent_called"};
	const struct scry_ruby_alloc_functions *m = &c->ruby->layout.alloc_functions;
	int r = scry_hooks_off(&c->hooks, &c->inj);

	scry_hooks_close(&c->hooks);
	if (r == 0)
		r = scry_hooks_open(&c->hooks, &c->proc);
	if (r == 0)
		r = set_probe(c, SCRY_PROBE_ARGUMENTS);
	for (uint32_t i = 0; i < m->count && r == 0; i++)
		r = scry_alloc_counts_want(c, m->make[i], &born);
	if (r == 0)
		r = scry_alloc_counts_want(c, m->end, &freed);
	if (r == 0)
		r = scry_hooks_plan(&c->hooks);
	if (r == 0 && c->hooks.refused)
		return scry_alloc_counts_no(c, "not all functions that make objects can be hooked");
	return r < 0 ? r : scry_hooks_on(&c->hooks, &c->inj, NULL);
}

static int read_probe(struct scry_alloc_counts *c, struct scry_agent_probe *ret)
{
	return scry_mem_read(&c->inj.mem, scratch_at(c), ret, sizeof(*ret));
}

/* Do new objects, as the agent counts them, come out even for every kind, and ends in every GC? 1,
 * 0, or -errno. */
static int count_again(struct scry_alloc_counts *c, struct scry_agent_probe *p)
{
	struct scry_ruby_alloc_functions *m = &c->ruby->layout.alloc_functions;
	int r = set_probe(c, SCRY_PROBE_COUNT);

	if (r == 0)
		r = scry_alloc_counts_ask(c, "nothing", 0, NULL);
	m->objects = m->freed = 0;
	for (size_t k = 0; k < SCRY_ALLOC_COUNTS_KINDS + SCRY_ALLOC_COUNTS_FREES && r == 0; k++) {
		struct scry_alloc_counts_reported before = c->reported;
		uint64_t births, ends;

		r = read_probe(c, p);
		births = p->births, ends = p->ends;
		if (r == 0)
			r = scry_alloc_counts_ask(
				c,
				k < SCRY_ALLOC_COUNTS_KINDS
					? scry_alloc_counts_kinds[k]
					: scry_alloc_counts_frees[k - SCRY_ALLOC_COUNTS_KINDS],
				5 * SCRY_ALLOC_COUNTS_ROUNDS, NULL);
		if (r == 0)
			r = read_probe(c, p);
		if (r == 0 && (p->births - births != c->reported.made - before.made ||
			       p->ends - ends != c->reported.freed - before.freed))
			return 0;
		m->objects += (uint32_t)(p->births - births);
		m->freed += (uint32_t)(p->ends - ends);
	}
	return r < 0 ? r : m->freed > SCRY_ALLOC_COUNTS_ROUNDS;
}

/* Where slots have several sizes a mask's slots are not known by these arguments alone. */
static bool may_be(const struct scry_alloc_counts *c)
{
	const struct scry_ruby_alloc_functions *m = &c->ruby->layout.alloc_functions;

	return m->end_mask != m->end_argument &&
	       (m->end_mask == SCRY_NO_MASK || !c->child->layout.page_mask);
}

/* The best guess with this mask: which argument explains most, more than any other. */
static size_t best_argument(struct scry_alloc_counts *c, const struct scry_calib *reported,
			    const struct scry_agent_probe *p,
			    struct scry_ruby_alloc_functions *best)
{
	struct scry_ruby_alloc_functions *m = &c->ruby->layout.alloc_functions;
	size_t most = 0, next = 0;

	for (m->end_argument = 0; m->end_argument < 6; m->end_argument++) {
		size_t n = may_be(c) ? explained(c, reported, p) : 0;

		if (n > most) {
			*best = *m;
			next = most;
			most = n;
		} else if (n > next) {
			next = n;
		}
	}
	return next < most ? most : 0;
}

/*
 * How the object is given: which argument, and which mask if any. Most of what was reported has
 * ended (a few objects are found by the collector in old stack frames and live on), and one guess
 * explains that. Without a mask if that explains it; a mask must explain more than all others, and
 * is not tried before: slots that a wrong one names may not be there. 1: it comes out even; 0;
 * -errno.
 */
static int find_arguments(struct scry_alloc_counts *c, const struct scry_calib *reported,
			  struct scry_agent_probe *p)
{
	struct scry_ruby_alloc_functions *m = &c->ruby->layout.alloc_functions, best = *m,
					 guess = *m;
	size_t most, next = 0;

	m->end_mask = SCRY_NO_MASK;
	most = best_argument(c, reported, p, &best);
	if (2 * most <= SCRY_ALLOC_COUNTS_REPORTED) {
		most = 0;
		for (m->end_mask = 0; m->end_mask < SCRY_NO_MASK; m->end_mask++) {
			size_t n = best_argument(c, reported, p, &guess);

			next = n > most ? most : n > next ? n : next;
			best = n > most ? guess : best;
			most = n > most ? n : most;
		}
	}
	*m = best;
	return 2 * most > SCRY_ALLOC_COUNTS_REPORTED && next < most ? count_again(c, p) : 0;
}

/* 1: each function of the hooked set returns a new object each time, and `end` is given each that
 * is freed; 0: not; -errno. */
int scry_alloc_functions_probe(struct scry_alloc_counts *c, struct scry_agent_probe *p)
{
	struct scry_calib reported = {0};
	int r = hook_set(c);

	if (r == 0)
		r = scry_alloc_counts_ask(c, "forget", 0,
					  NULL); /* what is dead already shall not fill it */
	if (r == 0)
		r = set_probe(c, SCRY_PROBE_ARGUMENTS);
	if (r == 0)
		r = scry_alloc_counts_ask(c, "told", SCRY_ALLOC_COUNTS_REPORTED, &reported);
	if (r == 0)
		r = read_probe(c, p);
	if (r == 0 && are_all_returned(&reported, p)) {
		r = set_probe(c, SCRY_PROBE_ARGUMENTS);
		if (r == 0)
			r = scry_alloc_counts_ask(c, "forget", 0, NULL);
		if (r == 0)
			r = read_probe(c, p);
		if (r == 0)
			r = find_arguments(c, &reported, p);
	}
	scry_calib_stop(&reported);
	return r;
}
