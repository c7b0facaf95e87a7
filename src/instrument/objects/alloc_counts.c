/* Runs the child and counts: see alloc_counts.h. */
#include "instrument/objects/alloc_counts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "base/err.h"
#include "instrument/alloc_functions_script.h" /* made by meson from alloc_functions.rb */

#define PAUSE_NS 1000000000ull

const char *const scry_alloc_counts_kinds[SCRY_ALLOC_COUNTS_KINDS] = {
	"strings",    "dups",	   "slices",   "built",	     "arrays",	"splats",      "hashes",
	"objects",    "allocated", "plain",    "structs",    "procs",	"lambdas",     "times",
	"ranges",     "floats",	   "bignums",  "symbols",    "matches", "regexps",     "rationals",
	"complexes",  "classes",   "modules",  "singletons", "methods", "enumerators", "mapped",
	"exceptions", "evals",	   "bindings", "fibers",     "mutexes", "queues",      "randoms",
	"stats",      "maps",	   "formats",  "gsubs",	     "packs",
};
const char *const scry_alloc_counts_frees[SCRY_ALLOC_COUNTS_FREES] = {"collect", "drop", "drop",
								      "collect", "drop"};

int scry_alloc_counts_ask(struct scry_alloc_counts *c, const char *name, unsigned n,
			  struct scry_calib *ret)
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
		r = scry_fail(-EPROTO, "the child does not say what it made");
	else
		c->reported = (struct scry_alloc_counts_reported){
			(uint64_t)scry_fact_number(f, 1), (uint64_t)scry_fact_number(f, 2),
			(uint64_t)scry_fact_number(f, 3), (uint64_t)scry_fact_number(f, 5)};
	if (r == 0 && ret)
		*ret = answer;
	else
		scry_calib_stop(&answer);
	return r;
}

int scry_alloc_counts_start(struct scry_alloc_counts *c, const struct scry_proc *target)
{
	int r = scry_calib_open(target, alloc_functions_script, &c->talk);

	if (r == 0)
		r = scry_alloc_counts_ask(c, "nothing", 0, NULL);
	if (r == 0)
		r = scry_proc_open(&c->proc, c->talk.pid);
	return r < 0 ? r : scry_calib_ruby(c->ruby, c->talk.pid, &c->child);
}

static int open_child(struct scry_alloc_counts *c, const struct scry_proc *target)
{
	int r = scry_alloc_counts_start(c, target);

	if (r == 0)
		r = scry_text_read(c->child->elf, &c->text);
	if (r == 0)
		r = scry_inject_lock(&c->inj, &c->proc);
	c->inj.max_pause_ns = PAUSE_NS;
	c->inj.purpose = "counting";
	c->inj.parts = SCRY_PART_VM | SCRY_PART_OBJECTS;
	return r < 0 ? r : scry_inject_enter(&c->inj, c->child->bias, NULL);
}

int scry_alloc_counts_want(struct scry_alloc_counts *c, uint64_t address,
			   const struct scry_hook_to *to)
{
	char request[32];

	snprintf(request, sizeof(request), "%#" PRIx64, c->child->bias + address);
	return scry_hooks_want(&c->hooks, request, to);
}

static int hook_all(struct scry_alloc_counts *c)
{
	const struct scry_hook_to to = {.kind = SCRY_HOOK_COUNT, .way = SCRY_WAY_ENTRY};
	int r = scry_hooks_open(&c->hooks, &c->proc);

	for (size_t i = 0; i < scry_text_range_count(c->text) && r == 0; i++)
		if (scry_text_range(c->text, i)->kind == SCRY_TEXT_FUNCTION)
			r = scry_alloc_counts_want(c, scry_text_range(c->text, i)->start, &to);
	if (r == 0)
		r = scry_hooks_plan(&c->hooks);
	return r < 0 ? r : scry_hooks_on(&c->hooks, &c->inj, NULL);
}

static int keep_addresses(struct scry_alloc_counts *c)
{
	c->count = c->hooks.count;
	c->addresses = calloc(c->count + 1, sizeof(*c->addresses));
	if (!c->addresses)
		return scry_no_memory("allocation functions");
	for (size_t i = 0; i < c->count; i++)
		c->addresses[i] = c->hooks.rows[i].address - c->child->bias;
	return 0;
}

struct scry_alloc_counts *scry_alloc_counts_new(struct scry_ruby *ruby)
{
	struct scry_alloc_counts *c = calloc(1, sizeof(*c));

	if (!c) {
		scry_no_memory("counting calls");
		return NULL;
	}
	c->ruby = ruby;
	c->talk = (struct scry_calib_talk){.in = -1, .out = -1, .err = -1};
	c->inj = (struct scry_inject){.lock = -1, .mem.fd = -1};
	c->hooks.mem.fd = -1;
	c->proc.pidfd = -1;
	return c;
}

int scry_alloc_counts_open(struct scry_alloc_counts *c, const struct scry_proc *target)
{
	int r = open_child(c, target);

	if (r == 0)
		r = hook_all(c);
	return r < 0 ? r : keep_addresses(c);
}

void scry_alloc_counts_free(struct scry_alloc_counts *c)
{
	for (size_t k = 0; k < SCRY_ALLOC_COUNTS_KINDS; k++) {
		free(c->off[k].calls);
		free(c->on[k].calls);
	}
	for (size_t k = 0; k < SCRY_ALLOC_COUNTS_FREES; k++)
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

int scry_alloc_counts_no(struct scry_alloc_counts *c, const char *why)
{
	snprintf(c->ruby->layout.alloc_functions.why, sizeof(c->ruby->layout.alloc_functions.why),
		 "%s", why);
	return -ENOENT;
}

static uint64_t calls(const struct scry_alloc_counts *c, size_t i)
{
	return scry_hook_calls(&c->hooks.rows[i], &c->inj);
}

/* Twice, so that what is made once only (caches, names) is there; the second time is counted. What
 * the question itself costs is the same both times. */
static int run(struct scry_alloc_counts *c, const char *name, unsigned n,
	       struct scry_alloc_counts_phase *ret)
{
	struct scry_alloc_counts_reported before;
	int r = scry_alloc_counts_ask(c, name, n, NULL);

	ret->calls = malloc(8 * (c->hooks.count + 1));
	if (!ret->calls)
		return scry_no_memory("counting calls");
	for (size_t i = 0; i < c->hooks.count; i++)
		ret->calls[i] = calls(c, i);
	before = c->reported;
	if (r == 0)
		r = scry_alloc_counts_ask(c, name, n, NULL);
	for (size_t i = 0; i < c->hooks.count; i++)
		ret->calls[i] = calls(c, i) - ret->calls[i];
	ret->made = c->reported.made - before.made;
	ret->freed = c->reported.freed - before.freed;
	return r;
}

/* Different numbers, so that no two kinds look alike. */
static int run_kinds(struct scry_alloc_counts *c, struct scry_alloc_counts_phase *ret)
{
	int r = 0;

	for (size_t k = 0; k < SCRY_ALLOC_COUNTS_KINDS && r == 0; k++)
		r = run(c, scry_alloc_counts_kinds[k], SCRY_ALLOC_COUNTS_ROUNDS + (unsigned)k,
			&ret[k]);
	return r;
}

int scry_alloc_counts_run(struct scry_alloc_counts *c)
{
	int r = run_kinds(c, c->off);

	for (size_t k = 0; k < SCRY_ALLOC_COUNTS_FREES && r == 0; k++)
		r = run(c, scry_alloc_counts_frees[k], 10 * SCRY_ALLOC_COUNTS_ROUNDS + (unsigned)k,
			&c->free[k]);
	if (r == 0)
		r = scry_alloc_counts_ask(c, "events", 1, NULL);
	if (r == 0)
		r = run_kinds(c, c->on);
	return r < 0 ? r : scry_alloc_counts_ask(c, "events", 0, NULL);
}
