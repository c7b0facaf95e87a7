/*
 * What makes and frees objects, from calls counted in a child: see alloc_functions.h.
 */
#include "instrument/objects/alloc_functions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bisect.h"
#include "base/err.h"
#include "instrument/objects/alloc_counts.h"

#define SUBSET_MAX 12 /* callers of one function that are called */

static ssize_t index_of(const struct scry_alloc_counts *c, uint64_t address)
{
	const size_t low = scry_bisect(c->hooks.count, i, c->hooks.rows[i].address < address);

	return low < c->hooks.count && c->hooks.rows[low].address == address ? (ssize_t)low : -1;
}

/* Is function `i` called no more often than objects are made, with events on? */
static bool may_make(const struct scry_alloc_counts *c, size_t i)
{
	uint64_t all = 0;

	for (size_t k = 0; k < SCRY_ALLOC_COUNTS_KINDS; k++) {
		if (c->on[k].calls[i] > c->on[k].made)
			return false;
		all += c->on[k].calls[i];
	}
	return all > SCRY_ALLOC_COUNTS_ROUNDS;
}

/* Do two functions (or one, twice given) together make all objects of each phase? */
static bool make_all(const struct scry_alloc_counts_phase *p, size_t a, size_t b)
{
	for (size_t k = 0; k < SCRY_ALLOC_COUNTS_KINDS; k++)
		if (p[k].calls[a] + (a == b ? 0 : p[k].calls[b]) != p[k].made)
			return false;
	return true;
}

/* Adds the functions that call function `i` directly. */
static int add_callers(struct scry_alloc_counts *c, size_t i, bool *set)
{
	uint64_t bias = c->child->bias;
	struct scry_transfers sites = {0};

	sites.room = scry_text_sites(c->text, c->hooks.rows[i].address - bias, &sites);
	sites.rows = calloc(sites.room + 1, sizeof(*sites.rows));
	if (!sites.rows)
		return scry_no_memory("call sites");
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

static bool are_alloc_functions(const struct scry_alloc_counts *c, const bool *set)
{
	for (size_t k = 0; k < SCRY_ALLOC_COUNTS_KINDS; k++) {
		uint64_t sum = 0;

		for (size_t i = 0; i < c->hooks.count; i++)
			sum += set[i] ? c->off[k].calls[i] : 0;
		if (sum != c->off[k].made)
			return false;
	}
	return true;
}

/* Is it object events that bring function `i` about? */
static bool is_slow(const struct scry_alloc_counts *c, size_t i)
{
	uint64_t on = 0, off = 0;

	for (size_t k = 0; k < SCRY_ALLOC_COUNTS_KINDS; k++) {
		on += c->on[k].calls[i];
		off += c->off[k].calls[i];
	}
	return on > 8 * off;
}

/*
 * What makes the objects when events are off, `way` being how they come when events are on: its
 * callers; and, when it is called all the same, `hooked` has it itself. It may be called by
 * functions that make other objects without it, which are then seen to return its objects again.
 */
static int add_alloc_functions(struct scry_alloc_counts *c, size_t way, bool *counted, bool *hooked)
{
	int r = add_callers(c, way, counted);

	if (r == 0 && is_slow(c, way))
		return add_callers(c, way, hooked);
	hooked[way] = true;
	return r;
}

static int keep_set(struct scry_alloc_counts *c, const bool *set)
{
	for (size_t i = 0; i < c->set_count; i++)
		if (!memcmp(set, c->sets[i], c->hooks.count))
			return 0;
	if (c->set_count == SCRY_ALLOC_COUNTS_SETS)
		return scry_alloc_counts_no(c,
					    "too many sets of functions explain the objects made");
	c->sets[c->set_count] = malloc(c->hooks.count + 1);
	if (!c->sets[c->set_count])
		return scry_no_memory("allocation functions");
	memcpy(c->sets[c->set_count++], set, c->hooks.count + 1);
	return 0;
}

static bool is_called(const struct scry_alloc_counts *c, size_t i)
{
	for (size_t k = 0; k < SCRY_ALLOC_COUNTS_KINDS; k++)
		if (c->off[k].calls[i])
			return true;
	return false;
}

/*
 * Where the VM's slow way is the function that reports events, its callers are allocation functions
 * and parts of the collector. Those of them that are called at all: the subset that makes the
 * objects stays, forty sums say so. False: there is none.
 */
static bool trim(const struct scry_alloc_counts *c, bool *counted, bool *hooked)
{
	size_t called[SUBSET_MAX], n = 0;

	for (size_t i = 0; i < c->hooks.count; i++) {
		if (!counted[i] || !is_called(c, i))
			continue;
		if (n == SUBSET_MAX)
			return are_alloc_functions(c, counted);
		called[n++] = i;
	}
	for (uint32_t left_out = 0; left_out < 1u << n; left_out++) {
		for (size_t i = 0; i < n; i++)
			counted[called[i]] = !(left_out >> i & 1);
		if (!are_alloc_functions(c, counted))
			continue;
		for (size_t i = 0; i < n; i++)
			hooked[called[i]] &= !(left_out >> i & 1);
		return true;
	}
	return false;
}

/* Functions that were not called prove nothing: only those stay of which ruby.h says what they do.
 */
static void drop_uncalled(const struct scry_alloc_counts *c, bool *hooked)
{
	static const char *const alloc_functions[] = {
		"rb_newobj",
		"rb_newobj_of",
		"rb_wb_protected_newobj_of",
		"rb_wb_unprotected_newobj_of",
		"rb_data_object_wrap",
		"rb_data_object_zalloc",
		"rb_data_typed_object_wrap",
		"rb_data_typed_object_zalloc",
	};

	for (size_t i = 0; i < c->hooks.count; i++) {
		struct scry_sym sym;
		bool stays = !hooked[i] || is_called(c, i);

		for (size_t k = 0;
		     !stays && k < sizeof(alloc_functions) / sizeof(alloc_functions[0]); k++)
			stays = scry_elf_symbol(c->child->elf, alloc_functions[k], &sym) == 0 &&
				sym.value == c->addresses[i];
		hooked[i] &= stays;
	}
}

/* Keeps the functions that stand for the ways `a` and `b`, if they explain the counts with events
 * off. `sets` has room for two. */
static int try_ways(struct scry_alloc_counts *c, size_t a, size_t b, bool *sets)
{
	bool *counted = sets, *hooked = sets + c->hooks.count + 1;
	int r;

	memset(sets, 0, 2 * (c->hooks.count + 1));
	r = add_alloc_functions(c, a, counted, hooked);
	if (r == 0)
		r = add_alloc_functions(c, b, counted, hooked);
	if (r < 0 || (!are_alloc_functions(c, hooked) && !trim(c, counted, hooked)))
		return r;
	drop_uncalled(c, hooked);
	return keep_set(c, hooked);
}

/* All sets that explain the counts: what they return decides between them. */
static int find_sets(struct scry_alloc_counts *c)
{
	bool *set = malloc(2 * (c->hooks.count + 1));
	size_t *may = calloc(c->hooks.count + 1, sizeof(*may)), n = 0;
	int r = set && may ? 0 : scry_no_memory("allocation functions");

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
		r = scry_alloc_counts_no(c,
					 "no functions were called as often as objects were made");
	return r;
}

/* Called only when objects are freed; then by as many calls as objects, or one for up to 64. */
static bool may_free(const struct scry_alloc_counts *c, size_t i)
{
	for (size_t k = 0; k < SCRY_ALLOC_COUNTS_KINDS; k++)
		if (c->off[k].calls[i])
			return false;
	for (size_t k = 0; k < SCRY_ALLOC_COUNTS_FREES; k++)
		if (c->free[k].freed > 20 * SCRY_ALLOC_COUNTS_ROUNDS &&
		    (c->free[k].calls[i] * 64 < c->free[k].freed ||
		     c->free[k].calls[i] > c->free[k].freed))
			return false;
	return true;
}

/* Called once for each object that is freed, and never else? */
static bool frees_each(const struct scry_alloc_counts *c, size_t i)
{
	for (size_t k = 0; k < SCRY_ALLOC_COUNTS_FREES; k++)
		if (c->free[k].calls[i] != c->free[k].freed)
			return false;
	return !is_called(c, i);
}

/*
 * The VM reports births and ends through one function, which with events on is called for each
 * object made: what calls it too, and only in a GC, may be what frees; and so may what is called
 * for each object that is freed.
 */
static int find_freers(struct scry_alloc_counts *c)
{
	bool *set = calloc(c->hooks.count + 1, 1);
	int r = set ? 0 : scry_no_memory("allocation functions");

	for (size_t i = 0; i < c->hooks.count && r == 0; i++)
		if (make_all(c->on, i, i))
			r = add_callers(c, i, set);
	for (size_t i = 0; i < c->hooks.count && r == 0; i++)
		if ((set[i] ? may_free(c, i) : frees_each(c, i)) &&
		    c->freer_count < SCRY_ALLOC_COUNTS_SETS)
			c->freers[c->freer_count++] = c->addresses[i];
	free(set);
	if (r == 0 && !c->freer_count)
		r = scry_alloc_counts_no(c, "no function was called as objects were freed");
	return r;
}

static int take_set(struct scry_alloc_counts *c, const bool *set)
{
	struct scry_ruby_alloc_functions *m = &c->ruby->layout.alloc_functions;

	m->count = m->called = 0;
	for (size_t i = 0; i < c->count; i++) {
		uint64_t sum = 0;

		if (!set[i])
			continue;
		if (m->count == SCRY_RUBY_ALLOC_FUNCTIONS_MAX)
			return scry_alloc_counts_no(c, "too many functions make objects");
		for (size_t k = 0; k < SCRY_ALLOC_COUNTS_KINDS; k++)
			sum += c->off[k].calls[i];
		m->make[m->count++] = c->addresses[i];
		m->called += sum != 0;
	}
	return 0;
}

/* Does the set come out even with one of the functions that may free? Several that are called for
 * each object one after the other do equally well. 1, 0, or -errno. */
static int try_freers(struct scry_alloc_counts *c, const bool *set, struct scry_agent_probe *p)
{
	int r = take_set(c, set);

	for (size_t i = 0; i < c->freer_count && r == 0; i++) {
		c->ruby->layout.alloc_functions.end = c->freers[i];
		r = scry_alloc_functions_probe(c, p);
	}
	return r;
}

/* The one set whose functions return the objects, and the one function that is given them. */
static int choose_set(struct scry_alloc_counts *c)
{
	struct scry_ruby_alloc_functions *m = &c->ruby->layout.alloc_functions, right = *m;
	struct scry_agent_probe *p = calloc(1, sizeof(*p));
	size_t found = 0;
	int r = p ? 0 : scry_no_memory("allocation functions");

	for (size_t i = 0; i < c->set_count && r >= 0; i++) {
		r = try_freers(c, c->sets[i], p);
		if (r > 0)
			right = *m;
		found += r > 0;
	}
	free(p);
	if (r >= 0 && found != 1)
		r = scry_alloc_counts_no(
			c, found ? "more than one set of functions makes and frees objects"
				 : "what is called for each object does not show it");
	if (r >= 0)
		*m = right;
	return r < 0 ? r : 0;
}

static int count_all(struct scry_alloc_counts *c)
{
	int r = scry_alloc_counts_find_words(c);

	if (r == 0)
		r = scry_alloc_counts_find_ec(c);
	if (r == 0)
		r = scry_alloc_counts_run(c);
	if (r == 0)
		r = find_sets(c);
	if (r == 0)
		r = find_freers(c);
	return r < 0 ? r : choose_set(c);
}

static void report(struct scry_ruby *ruby)
{
	const struct scry_ruby_alloc_functions *m = &ruby->layout.alloc_functions;
	struct scry_ruby_check check = {.item = "allocation functions", .ok = true};

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

/* The child's end has reasons of its own, and what mends them there does not help here. */
static int not_tried(const struct scry_ruby *ruby, int err)
{
	char why[256];
	char *fix;

	snprintf(why, sizeof(why), "%s", scry_error());
	fix = strstr(why, "; fix:");
	if (fix)
		*fix = '\0';
	return scry_fail(
		err == -ENOMEM ? err : -ENOTSUP,
		"which functions of the Ruby in process %d make its objects cannot be found "
		"out: %s; fix: --source event",
		ruby->pid, why);
}

int scry_alloc_functions_find(struct scry_ruby *ruby, const struct scry_proc *proc)
{
	struct scry_ruby_alloc_functions *m = &ruby->layout.alloc_functions;
	struct scry_alloc_counts *c;
	int r;

	if (m->is_known) {
		report(ruby);
		return 0;
	}
	if (!ruby->is_driver)
		return scry_fail(-ENOTSUP,
				 "process %d embeds Ruby; which functions make its objects can "
				 "only be found out in the ruby command itself; fix: run scry "
				 "doctor -p PID once on a ruby that uses the same library; then "
				 "try again",
				 ruby->pid);
	c = scry_alloc_counts_new(ruby);
	if (!c)
		return -ENOMEM;
	*m = (struct scry_ruby_alloc_functions){0};
	r = scry_alloc_counts_open(c, proc);
	if (r == 0)
		r = count_all(c);
	scry_alloc_counts_free(c);
	if (r < 0 && !m->why[0])
		return not_tried(ruby, r);
	m->is_known = true;
	m->is_proven = r == 0;
	scry_error_clear();
	scry_ruby_keep(ruby);
	report(ruby);
	return 0;
}
