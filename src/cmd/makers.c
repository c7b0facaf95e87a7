/*
 * Counts calls in a child: see makers.h. The child is ours, is killed at the end, and so nothing in
 * it is put back.
 */
#include "cmd/makers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "base/err.h"
#include "cmd/makers_script.h" /* made by meson from makers.rb: static const char makers_script[] */
#include "hook/hooks.h"
#include "vm/ruby_calib.h"

#define PAUSE_NS 1000000000ull
#define TOLD 64u	   /* objects whose addresses the script tells */
#define SETS_MAX 8u	   /* sets of functions that explain the counts */
#define STRUCT_BYTES 4096u /* of the VM's structs that are searched for counters */
#define ANSWER 64u	   /* objects that an answer takes, at most */
#define ROUNDS 40	   /* of what is made in a phase: more than what happens by the way */

static const char *const kinds[] = {
	"strings",    "dups",	   "slices",   "built",	     "arrays",	"splats",      "hashes",
	"objects",    "allocated", "plain",    "structs",    "procs",	"lambdas",     "times",
	"ranges",     "floats",	   "bignums",  "symbols",    "matches", "regexps",     "rationals",
	"complexes",  "classes",   "modules",  "singletons", "methods", "enumerators", "mapped",
	"exceptions", "evals",	   "bindings", "fibers",     "mutexes", "queues",      "randoms",
	"stats",      "maps",	   "formats",  "gsubs",	     "packs",
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))
static const char *const frees[] = {"collect", "drop", "drop", "collect", "drop"};
#define FREES (sizeof(frees) / sizeof(frees[0]))

struct phase {
	uint64_t made, freed; /* by the VM's account */
	uint64_t *calls;      /* by function */
};

struct told { /* what the child said last */
	uint64_t made, freed, gcs;
};

struct counting {
	struct scry_ruby *ruby; /* the target's */
	struct scry_ruby *child;
	struct scry_calib_talk talk;
	struct scry_proc proc;
	struct scry_inject inj;
	struct scry_hooks hooks;
	struct scry_text *text;
	struct told told;
	struct phase off[KINDS], on[KINDS], free[FREES];
	bool *sets[SETS_MAX]; /* by function: those that may be the makers */
	size_t set_count;
	uint64_t freers[SETS_MAX]; /* those that may be the one who frees */
	size_t freer_count;
	uint64_t *addresses; /* of the counted functions, module-relative */
	size_t count;
};

/* --- the child
 * ---------------------------------------------------------------------------------- */

static int ask(struct counting *c, const char *name, unsigned n, struct scry_calib *ret)
{
	struct scry_calib answer;
	const struct scry_fact *f;
	char line[64];
	int r;

	snprintf(line, sizeof(line), "%s %u\n", name, n);
	r = scry_calib_ask(&c->talk, line, &answer);
	if (r < 0)
		return r;
	f = scry_fact_next(&answer, NULL, "counts");
	if (!f || f->count < 4)
		r = scry_fail(-EPROTO, "the child does not tell what it made");
	else
		c->told = (struct told){(uint64_t)scry_fact_number(f, 1),
					(uint64_t)scry_fact_number(f, 2),
					(uint64_t)scry_fact_number(f, 3)};
	if (r == 0 && ret)
		*ret = answer;
	else
		scry_calib_stop(&answer);
	return r;
}

/* Its Ruby: the same file, its own place. */
static int find_module(struct counting *c)
{
	const uint8_t *theirs = NULL, *ours = NULL;
	struct scry_ruby *child;
	size_t n;
	int r = scry_ruby_like(c->ruby, &c->child);

	if (r == 0)
		r = scry_ruby_bind(c->child, c->talk.pid);
	if (r < 0)
		return scry_fail(-ENOTSUP, "the child does not run '%s'", c->ruby->module);
	child = c->child;
	for (size_t i = 0; i < child->maps.count; i++)
		if (!strcmp(child->maps.entries[i].path, child->module)) {
			r = scry_elf_bias(child->elf, &child->maps, &child->maps.entries[i],
					  &child->bias);
			break;
		}
	n = scry_elf_build_id(child->elf, &theirs);
	if (r == 0 &&
	    (n != scry_elf_build_id(c->ruby->elf, &ours) || !n || memcmp(theirs, ours, n)))
		r = scry_fail(-ENOTSUP,
			      "'%s' on disk is not the library that process %d runs; fix: restart "
			      "the program",
			      child->module, c->ruby->pid);
	return r;
}

static int open_child(struct counting *c, const struct scry_proc *target)
{
	int r = scry_calib_open(target, makers_script, &c->talk);

	if (r == 0)
		r = ask(c, "nothing", 0, NULL);
	if (r == 0)
		r = scry_proc_open(&c->proc, c->talk.pid);
	if (r == 0)
		r = find_module(c);
	if (r == 0)
		r = scry_text_read(c->child->elf, &c->text);
	if (r == 0)
		r = scry_inject_lock(&c->inj, &c->proc);
	c->inj.max_pause_ns = PAUSE_NS;
	c->inj.purpose = "counting";
	return r < 0 ? r : scry_inject_enter(&c->inj, c->child->bias, NULL);
}

static int want(struct counting *c, uint64_t address, const struct scry_hook_to *to)
{
	char request[32];

	snprintf(request, sizeof(request), "%#" PRIx64, c->child->bias + address);
	return scry_hooks_want(&c->hooks, request, to);
}

static int hook_all(struct counting *c)
{
	const struct scry_hook_to to = {.kind = SCRY_HOOK_COUNT, .way = SCRY_WAY_ENTRY};
	int r = scry_hooks_open(&c->hooks, &c->proc);

	for (size_t i = 0; i < scry_text_range_count(c->text) && r == 0; i++)
		if (scry_text_range(c->text, i)->kind == SCRY_TEXT_FUNCTION)
			r = want(c, scry_text_range(c->text, i)->start, &to);
	if (r == 0)
		r = scry_hooks_plan(&c->hooks);
	return r < 0 ? r : scry_hooks_on(&c->hooks, &c->inj, NULL);
}

/* --- counts
 * ------------------------------------------------------------------------------------- */

static uint64_t calls(const struct counting *c, size_t i)
{
	return scry_hook_calls(&c->hooks.rows[i], &c->inj);
}

/* Twice, so that what is made once only (caches, names) is there; the second time is counted. What
 * the question itself costs is the same both times. */
static int run(struct counting *c, const char *name, unsigned n, struct phase *ret)
{
	struct told before;
	int r = ask(c, name, n, NULL);

	ret->calls = malloc(8 * (c->hooks.count + 1));
	if (!ret->calls)
		return scry_fail(-ENOMEM, "not enough memory to count calls");
	for (size_t i = 0; i < c->hooks.count; i++)
		ret->calls[i] = calls(c, i);
	before = c->told;
	if (r == 0)
		r = ask(c, name, n, NULL);
	for (size_t i = 0; i < c->hooks.count; i++)
		ret->calls[i] = calls(c, i) - ret->calls[i];
	ret->made = c->told.made - before.made;
	ret->freed = c->told.freed - before.freed;
	return r;
}

/* Different numbers, so that no two kinds look alike. */
static int run_kinds(struct counting *c, struct phase *ret)
{
	int r = 0;

	for (size_t k = 0; k < KINDS && r == 0; k++)
		r = run(c, kinds[k], ROUNDS + (unsigned)k, &ret[k]);
	return r;
}

static int run_all(struct counting *c)
{
	int r = run_kinds(c, c->off);

	for (size_t k = 0; k < FREES && r == 0; k++)
		r = run(c, frees[k], 10 * ROUNDS + (unsigned)k, &c->free[k]);
	if (r == 0)
		r = ask(c, "events", 1, NULL);
	if (r == 0)
		r = run_kinds(c, c->on);
	return r < 0 ? r : ask(c, "events", 0, NULL);
}

static int not_proven(struct counting *c, const char *why)
{
	snprintf(c->ruby->layout.makers.why, sizeof(c->ruby->layout.makers.why), "%s", why);
	return -ENOENT;
}

static ssize_t index_of(const struct counting *c, uint64_t address)
{
	size_t low = 0, high = c->hooks.count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (c->hooks.rows[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < c->hooks.count && c->hooks.rows[low].address == address ? (ssize_t)low : -1;
}

/* --- who makes
 * ---------------------------------------------------------------------------------- */

/* Is function `i` called no more often than objects are made, with events on? */
static bool may_make(const struct counting *c, size_t i)
{
	uint64_t all = 0;

	for (size_t k = 0; k < KINDS; k++) {
		if (c->on[k].calls[i] > c->on[k].made)
			return false;
		all += c->on[k].calls[i];
	}
	return all > ROUNDS;
}

/* Do two functions (or one, twice given) together make all objects of each phase? */
static bool make_all(const struct phase *p, size_t a, size_t b)
{
	for (size_t k = 0; k < KINDS; k++)
		if (p[k].calls[a] + (a == b ? 0 : p[k].calls[b]) != p[k].made)
			return false;
	return true;
}

/* Adds the functions that call function `i` directly. */
static int add_callers(struct counting *c, size_t i, bool *set)
{
	uint64_t bias = c->child->bias;
	struct scry_transfers sites = {0};

	sites.room = scry_text_sites(c->text, c->hooks.rows[i].address - bias, &sites);
	sites.rows = calloc(sites.room + 1, sizeof(*sites.rows));
	if (!sites.rows)
		return scry_fail(-ENOMEM, "not enough memory for call sites");
	scry_text_sites(c->text, c->hooks.rows[i].address - bias, &sites);
	for (size_t k = 0; k < sites.room; k++) {
		const struct scry_text_range *at = scry_text_at(c->text, sites.rows[k].source);
		ssize_t caller;

		if (at && at->kind == SCRY_TEXT_COLD && at->parent != SCRY_TEXT_NO_PARENT)
			at = scry_text_range(c->text, at->parent);
		caller = at ? index_of(c, bias + at->start) : -1;
		if (caller >= 0)
			set[caller] = true;
	}
	free(sites.rows);
	return 0;
}

static bool are_makers(const struct counting *c, const bool *set)
{
	for (size_t k = 0; k < KINDS; k++) {
		uint64_t sum = 0;

		for (size_t i = 0; i < c->hooks.count; i++)
			sum += set[i] ? c->off[k].calls[i] : 0;
		if (sum != c->off[k].made)
			return false;
	}
	return true;
}

/* Is it object events that bring function `i` about? */
static bool is_slow(const struct counting *c, size_t i)
{
	uint64_t on = 0, off = 0;

	for (size_t k = 0; k < KINDS; k++) {
		on += c->on[k].calls[i];
		off += c->off[k].calls[i];
	}
	return on > 8 * off;
}

/*
 * Who makes the objects when events are off, `way` being how they come when events are on: its
 * callers; and, when it is called all the same, `hooked` has it itself. It may be called by
 * functions that make other objects without it, which are then seen to return its objects again.
 */
static int add_makers(struct counting *c, size_t way, bool *counted, bool *hooked)
{
	int r = add_callers(c, way, counted);

	if (r == 0 && is_slow(c, way))
		return add_callers(c, way, hooked);
	hooked[way] = true;
	return r;
}

static int keep_set(struct counting *c, const bool *set)
{
	for (size_t i = 0; i < c->set_count; i++)
		if (!memcmp(set, c->sets[i], c->hooks.count))
			return 0;
	if (c->set_count == SETS_MAX)
		return not_proven(c, "too many sets of functions explain the objects made");
	c->sets[c->set_count] = malloc(c->hooks.count + 1);
	if (!c->sets[c->set_count])
		return scry_fail(-ENOMEM, "not enough memory for makers");
	memcpy(c->sets[c->set_count++], set, c->hooks.count + 1);
	return 0;
}

/* Keeps the functions that stand for the ways `a` and `b`, if they explain the counts with events
 * off. `sets` has room for two. */
static int try_ways(struct counting *c, size_t a, size_t b, bool *sets)
{
	bool *counted = sets, *hooked = sets + c->hooks.count + 1;
	int r;

	memset(sets, 0, 2 * (c->hooks.count + 1));
	r = add_makers(c, a, counted, hooked);
	if (r == 0)
		r = add_makers(c, b, counted, hooked);
	if (r < 0 || (!are_makers(c, counted) && !are_makers(c, hooked)))
		return r;
	return keep_set(c, hooked);
}

/* All sets that explain the counts: what they return decides between them. */
static int find_sets(struct counting *c)
{
	bool *set = malloc(2 * (c->hooks.count + 1));
	size_t *may = calloc(c->hooks.count + 1, sizeof(*may)), n = 0;
	int r = set && may ? 0 : scry_fail(-ENOMEM, "not enough memory for makers");

	for (size_t i = 0; i < c->hooks.count && r == 0; i++)
		if (may_make(c, i))
			may[n++] = i;
	for (size_t a = 0; a < n && r == 0; a++)
		for (size_t b = a; b < n && r == 0; b++)
			if (make_all(c->on, may[a], may[b]))
				r = try_ways(c, may[a], may[b], set);
	free(set);
	free(may);
	if (r == 0 && !c->set_count)
		r = not_proven(c, "no functions were called as often as objects were made");
	return r;
}

/* --- who frees
 * ---------------------------------------------------------------------------------- */

/* Called only when objects are freed; then by as many calls as objects, or one for up to 64. */
static bool may_free(const struct counting *c, size_t i)
{
	for (size_t k = 0; k < KINDS; k++)
		if (c->off[k].calls[i])
			return false;
	for (size_t k = 0; k < FREES; k++)
		if (c->free[k].freed > 20 * ROUNDS &&
		    (c->free[k].calls[i] * 64 < c->free[k].freed ||
		     c->free[k].calls[i] > c->free[k].freed))
			return false;
	return true;
}

/*
 * The VM tells of births and ends through one function, which with events on is called for each
 * object made: who calls it too, and only in a GC, may be the one who frees.
 */
static int find_freers(struct counting *c)
{
	bool *set = calloc(c->hooks.count + 1, 1);
	int r = set ? 0 : scry_fail(-ENOMEM, "not enough memory for makers");

	for (size_t i = 0; i < c->hooks.count && r == 0; i++)
		if (make_all(c->on, i, i))
			r = add_callers(c, i, set);
	for (size_t i = 0; i < c->hooks.count && r == 0; i++)
		if (set[i] && may_free(c, i) && c->freer_count < SETS_MAX)
			c->freers[c->freer_count++] = c->addresses[i];
	free(set);
	if (r == 0 && !c->freer_count)
		r = not_proven(c, "no function was called as objects were freed");
	return r;
}

/* --- what they return and are given
 * ------------------------------------------------------------- */

static bool is_returned(const struct scry_agent_probe *p, uint64_t object)
{
	for (uint64_t i = 0; i < p->births && i < SCRY_PROBE_BIRTHS; i++)
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

/* Every object that the child told of was returned by one of them. */
static bool are_all_returned(const struct scry_calib *told, const struct scry_agent_probe *p)
{
	const struct scry_fact *f = NULL;
	size_t n = 0;

	for (; (f = scry_fact_next(told, f, "at")); n++)
		if (!is_returned(p, scry_fact_addr(f, 1)))
			return false;
	return n >= TOLD;
}

/* Is `object` in a slot that a call named by an argument, and a mask in another? */
static bool is_in_mask(const struct counting *c, const struct scry_agent_probe *p, uint64_t object)
{
	const struct scry_ruby_makers *m = &c->ruby->layout.makers;

	for (uint64_t i = 0; i < p->ends && i < SCRY_PROBE_ENDS; i++) {
		uint64_t first = p->given[i][m->end_argument];
		uint64_t away = object - first, slot = away / c->child->layout.slot_size;

		if (object >= first && slot < 64 && away % c->child->layout.slot_size == 0 &&
		    p->given[i][m->end_mask] >> slot & 1)
			return true;
	}
	return false;
}

/* How many ends of what the child told of does the guess in layout.makers explain? */
static size_t explained(const struct counting *c, const struct scry_calib *told,
			const struct scry_agent_probe *p)
{
	const struct scry_ruby_makers *m = &c->ruby->layout.makers;
	const struct scry_fact *f = NULL;
	size_t hits = 0;

	while ((f = scry_fact_next(told, f, "at")))
		hits += m->end_mask == SCRY_NO_MASK
				? is_given(p, m->end_argument, scry_fact_addr(f, 1))
				: is_in_mask(c, p, scry_fact_addr(f, 1));
	return hits;
}

static int set_probe(struct counting *c, uint16_t probe)
{
	const struct scry_ruby_makers *m = &c->ruby->layout.makers;
	const struct scry_agent_hooks plan = {.probe = probe,
					      .end_argument = (uint16_t)m->end_argument,
					      .end_mask = (uint16_t)m->end_mask,
					      .end_stride = c->child->layout.slot_size};
	const uint64_t none[2] = {0};
	int r = scry_edit_poke(c->inj.mem.fd, c->inj.data + offsetof(struct scry_agent_data, hooks),
			       &plan, sizeof(plan));

	return r < 0 ? r
		     : scry_edit_poke(c->inj.mem.fd,
				      c->inj.data +
					      offsetof(struct scry_agent_data, sampled.scratch),
				      none, sizeof(none));
}

/* The real hooks of a set instead of the counting ones, in a mode in which the agent keeps what is
 * returned and given. */
static int hook_set(struct counting *c)
{
	const struct scry_hook_to born = {
		.kind = SCRY_HOOK_REPLACE, .way = SCRY_WAY_ENTRY, .handler = "scry_agent_born"};
	const struct scry_hook_to freed = {
		.kind = SCRY_HOOK_CALL, .way = SCRY_WAY_ENTRY, .handler = "scry_agent_called"};
	const struct scry_ruby_makers *m = &c->ruby->layout.makers;
	int r = scry_hooks_off(&c->hooks, &c->inj);

	scry_hooks_close(&c->hooks);
	if (r == 0)
		r = scry_hooks_open(&c->hooks, &c->proc);
	if (r == 0)
		r = set_probe(c, SCRY_PROBE_ARGUMENTS);
	for (uint32_t i = 0; i < m->count && r == 0; i++)
		r = want(c, m->make[i], &born);
	if (r == 0)
		r = want(c, m->end, &freed);
	if (r == 0)
		r = scry_hooks_plan(&c->hooks);
	if (r == 0 && c->hooks.refused)
		return not_proven(c, "not all functions that make objects can be hooked");
	return r < 0 ? r : scry_hooks_on(&c->hooks, &c->inj, NULL);
}

static int read_probe(struct counting *c, struct scry_agent_probe *ret)
{
	return scry_mem_read(&c->inj.mem,
			     c->inj.data + offsetof(struct scry_agent_data, sampled.scratch), ret,
			     sizeof(*ret));
}

/* Do births, told apart by the agent, come out even for every kind, and ends in every GC? 1, 0, or
 * -errno. */
static int count_again(struct counting *c, struct scry_agent_probe *p)
{
	struct scry_ruby_makers *m = &c->ruby->layout.makers;
	int r = set_probe(c, SCRY_PROBE_COUNT);

	if (r == 0)
		r = ask(c, "nothing", 0, NULL);
	m->objects = m->freed = 0;
	for (size_t k = 0; k < KINDS + FREES && r == 0; k++) {
		struct told before = c->told;
		uint64_t births, ends;

		r = read_probe(c, p);
		births = p->births, ends = p->ends;
		if (r == 0)
			r = ask(c, k < KINDS ? kinds[k] : frees[k - KINDS], 5 * ROUNDS, NULL);
		if (r == 0)
			r = read_probe(c, p);
		if (r == 0 && (p->births - births != c->told.made - before.made ||
			       p->ends - ends != c->told.freed - before.freed))
			return 0;
		m->objects += (uint32_t)(p->births - births);
		m->freed += (uint32_t)(p->ends - ends);
	}
	return r < 0 ? r : m->freed > ROUNDS;
}

/*
 * How the object is given: which argument, and which mask if any. Most of what was told has ended
 * (a few objects are found by the collector in old stack frames and live on), and one guess
 * explains more of it than all others. A guess is only tried when it is the best: slots that a
 * wrong mask names may not be there. 1: it comes out even; 0; -errno.
 */
static int find_arguments(struct counting *c, const struct scry_calib *told,
			  struct scry_agent_probe *p)
{
	struct scry_ruby_makers *m = &c->ruby->layout.makers, best = *m;
	size_t most = 0, next = 0;

	for (m->end_argument = 0; m->end_argument < 6; m->end_argument++) {
		for (m->end_mask = 0; m->end_mask <= SCRY_NO_MASK; m->end_mask++) {
			size_t n = m->end_mask == m->end_argument ? 0 : explained(c, told, p);

			if (n > most) {
				best = *m;
				next = most;
				most = n;
			} else if (n > next) {
				next = n;
			}
		}
	}
	*m = best;
	return 2 * most > TOLD && next < most ? count_again(c, p) : 0;
}

/* 1: each function of the hooked set returns a new object each time, and `end` is given each that
 * is freed; 0: not; -errno. */
static int try_set(struct counting *c, struct scry_agent_probe *p)
{
	struct scry_calib told = {0};
	int r = hook_set(c);

	if (r == 0)
		r = ask(c, "told", TOLD, &told);
	if (r == 0)
		r = read_probe(c, p);
	if (r == 0 && are_all_returned(&told, p)) {
		r = ask(c, "forget", 0, NULL);
		if (r == 0)
			r = read_probe(c, p);
		if (r == 0)
			r = find_arguments(c, &told, p);
	}
	scry_calib_stop(&told);
	return r;
}

/* --- the VM's own counters
 * ---------------------------------------------------------------------- */

struct look { /* at all structs that the VM struct points to */
	uint64_t at[STRUCT_BYTES / 8];
	uint64_t words[STRUCT_BYTES / 8][STRUCT_BYTES / 8];
};

static void read_structs(const struct counting *c, struct look *l)
{
	const struct scry_mem *mem = &c->child->mem;
	uint64_t vm = 0;

	memset(l, 0, sizeof(*l));
	if (scry_mem_u64(mem, c->child->bias + c->child->layout.vm_root, &vm) < 0)
		return;
	scry_mem_read_some(mem, vm, l->at, sizeof(l->at));
	for (size_t i = 0; i < STRUCT_BYTES / 8; i++)
		if (!(l->at[i] & 7) && l->at[i] > 0x10000 && !(l->at[i] >> 47))
			scry_mem_read_some(mem, l->at[i], l->words[i], sizeof(l->words[i]));
}

/* The one word of struct `i` that went from `from` to `to`, or was `slack` more at most both times:
 * answering makes some objects. 0: none, or two. */
static uint32_t find_word(const struct look looks[2], size_t i, const uint64_t values[2],
			  uint64_t slack)
{
	uint32_t found = 0;

	for (uint32_t k = 1; k < STRUCT_BYTES / 8; k++) {
		uint64_t x = looks[0].words[i][k], y = looks[1].words[i][k];

		if (x < values[0] || x - values[0] > slack || y - x != values[1] - values[0])
			continue;
		if (found)
			return 0;
		found = 8 * k;
	}
	return found;
}

static void compare_structs(struct counting *c, const struct look looks[2],
			    const struct told told[2])
{
	struct scry_ruby_makers *m = &c->ruby->layout.makers;

	for (uint32_t i = 0; i < STRUCT_BYTES / 8; i++) {
		uint32_t made, freed, gcs;

		if (looks[0].at[i] != looks[1].at[i])
			continue;
		made = find_word(looks, i, (uint64_t[]){told[0].made, told[1].made}, ANSWER);
		freed = find_word(looks, i, (uint64_t[]){told[0].freed, told[1].freed}, 0);
		gcs = find_word(looks, i, (uint64_t[]){told[0].gcs, told[1].gcs}, 0);
		/* what lies before it in memory shows the same words, further away */
		if (!gcs || !freed || (m->vm_objspace && gcs > m->objspace_gcs))
			continue;
		m->vm_objspace = 8 * i;
		m->objspace_made = made;
		m->objspace_freed = freed;
		m->objspace_gcs = gcs;
	}
}

/* Not found is no refusal: ages are then not known. */
static int find_counters(struct counting *c)
{
	struct look *looks = malloc(2 * sizeof(*looks));
	struct told told[2];
	int r = looks ? 0 : scry_fail(-ENOMEM, "not enough memory for the VM's counters");

	/* collections of both kinds, then objects: counts of one thing differ from those of others
	 */
	for (int i = 0; i < 2 && r == 0; i++) {
		for (unsigned k = 0; k < 7 && r == 0; k++)
			r = ask(c, k % 3 ? "drop" : "minor", 100 + k, NULL);
		if (r == 0)
			r = ask(c, "strings", 10 * ANSWER, NULL);
		read_structs(c, &looks[i]);
		told[i] = c->told;
	}
	if (r == 0)
		compare_structs(c, looks, told);
	free(looks);
	return r;
}

/* --- the result
 * --------------------------------------------------------------------------------- */

static int take_set(struct counting *c, const bool *set)
{
	struct scry_ruby_makers *m = &c->ruby->layout.makers;

	m->count = m->called = 0;
	for (size_t i = 0; i < c->count; i++) {
		uint64_t sum = 0;

		if (!set[i])
			continue;
		if (m->count == SCRY_RUBY_MAKERS_MAX)
			return not_proven(c, "too many functions make objects");
		for (size_t k = 0; k < KINDS; k++)
			sum += c->off[k].calls[i];
		m->make[m->count++] = c->addresses[i];
		m->called += sum != 0;
	}
	return 0;
}

/* The one set whose functions return the objects, and the one function that is given them. */
static int choose_set(struct counting *c)
{
	struct scry_ruby_makers *m = &c->ruby->layout.makers, right = *m;
	struct scry_agent_probe *p = calloc(1, sizeof(*p));
	size_t found = 0;
	int r = p ? 0 : scry_fail(-ENOMEM, "not enough memory for makers");

	for (size_t i = 0; i < c->set_count * c->freer_count && r >= 0; i++) {
		r = take_set(c, c->sets[i / c->freer_count]);
		m->end = c->freers[i % c->freer_count];
		if (r == 0)
			r = try_set(c, p);
		if (r > 0)
			right = *m;
		found += r > 0;
	}
	free(p);
	if (r >= 0 && found != 1)
		r = not_proven(c, found ? "more than one set of functions makes and frees objects"
					: "what is called for each object does not show it");
	if (r >= 0)
		*m = right;
	return r < 0 ? r : 0;
}

static int keep_addresses(struct counting *c)
{
	c->count = c->hooks.count;
	c->addresses = calloc(c->count + 1, sizeof(*c->addresses));
	if (!c->addresses)
		return scry_fail(-ENOMEM, "not enough memory for makers");
	for (size_t i = 0; i < c->count; i++)
		c->addresses[i] = c->hooks.rows[i].address - c->child->bias;
	return 0;
}

static int count_all(struct counting *c)
{
	int r = hook_all(c);

	if (r == 0)
		r = keep_addresses(c);
	if (r == 0)
		r = find_counters(c);
	if (r == 0)
		r = run_all(c);
	if (r == 0)
		r = find_sets(c);
	if (r == 0)
		r = find_freers(c);
	return r < 0 ? r : choose_set(c);
}

static void close_all(struct counting *c)
{
	for (size_t k = 0; k < KINDS; k++) {
		free(c->off[k].calls);
		free(c->on[k].calls);
	}
	for (size_t k = 0; k < FREES; k++)
		free(c->free[k].calls);
	for (size_t i = 0; i < c->set_count; i++)
		free(c->sets[i]);
	free(c->addresses);
	scry_text_free(c->text);
	scry_hooks_close(&c->hooks);
	scry_calib_close(&c->talk);
	scry_inject_done(&c->inj);
	scry_proc_close(&c->proc);
	scry_ruby_free(c->child);
	free(c);
}

static void tell(struct scry_ruby *ruby)
{
	const struct scry_ruby_makers *m = &ruby->layout.makers;
	struct scry_ruby_check check = {.item = "makers of objects", .ok = true};

	snprintf(check.how, sizeof(check.how), "calls of all functions counted in a child");
	if (m->is_proven) {
		snprintf(check.value, sizeof(check.value), "%u functions, 1 frees", m->count);
		snprintf(check.proof, sizeof(check.proof),
			 "%u called %u times made %u objects; %u freed", m->called, m->objects,
			 m->objects, m->freed);
	} else {
		snprintf(check.value, sizeof(check.value), "not proven");
		snprintf(check.proof, sizeof(check.proof), "%.90s", m->why);
	}
	scry_ruby_add_check(ruby, &check);
}

int scry_makers_find(struct scry_ruby *ruby, const struct scry_proc *proc)
{
	struct scry_ruby_makers *m = &ruby->layout.makers;
	struct counting *c;
	int r;

	if (m->is_known) {
		tell(ruby);
		return 0;
	}
	if (!ruby->is_driver)
		return scry_fail(
			-ENOTSUP,
			"process %d embeds Ruby; who makes its objects can only be found out in "
			"the ruby command itself; fix: scry doctor -p PID of a ruby that uses "
			"the same library",
			ruby->pid);
	c = calloc(1, sizeof(*c));
	if (!c)
		return scry_fail(-ENOMEM, "not enough memory to count calls");
	*m = (struct scry_ruby_makers){0};
	c->ruby = ruby;
	c->talk = (struct scry_calib_talk){.in = -1, .out = -1, .err = -1};
	c->inj = (struct scry_inject){.lock = -1, .mem.fd = -1};
	c->hooks.mem.fd = -1;
	c->proc.pidfd = -1;
	r = open_child(c, proc);
	if (r == 0)
		r = count_all(c);
	close_all(c);
	if (r < 0 && !m->why[0])
		return r;
	m->is_known = true;
	m->is_proven = r == 0;
	scry_error_clear();
	scry_ruby_keep(ruby);
	tell(ruby);
	return 0;
}
