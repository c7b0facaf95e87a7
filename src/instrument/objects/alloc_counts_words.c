/*
 * Where the VM counts: words of its structs that go as GC.stat does. See alloc_counts.h.
 */
#include "instrument/objects/alloc_counts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "base/err.h"

#define STRUCT_BYTES 4096u /* of the VM's structs that are searched */

struct look { /* at all structs that the VM struct points to */
	uint64_t at[STRUCT_BYTES / 8];
	uint64_t words[STRUCT_BYTES / 8][STRUCT_BYTES / 8];
};

static void read_structs(const struct scry_alloc_counts *c, struct look *l)
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

static void compare_structs(struct scry_alloc_counts *c, const struct look looks[2],
			    const struct scry_alloc_counts_reported reported[2])
{
	struct scry_ruby_alloc_functions *m = &c->ruby->layout.alloc_functions;

	for (uint32_t i = 0; i < STRUCT_BYTES / 8; i++) {
		uint32_t made, freed, gcs;

		if (looks[0].at[i] != looks[1].at[i])
			continue;
		made = find_word(looks, i, (uint64_t[]){reported[0].made, reported[1].made},
				 SCRY_ALLOC_COUNTS_ANSWER);
		freed = find_word(looks, i, (uint64_t[]){reported[0].freed, reported[1].freed}, 0);
		gcs = find_word(looks, i, (uint64_t[]){reported[0].gcs, reported[1].gcs}, 0);
		/* what lies before it in memory shows the same words, further away */
		if (!gcs || !freed || (m->vm_objspace && gcs > m->objspace_gcs))
			continue;
		m->vm_objspace = 8 * i;
		m->objspace_made = made;
		m->objspace_freed = freed;
		m->objspace_gcs = gcs;
	}
}

/* Not found is not a refusal: ages are then not known. */
int scry_alloc_counts_find_words(struct scry_alloc_counts *c)
{
	struct look *looks = malloc(2 * sizeof(*looks));
	struct scry_alloc_counts_reported reported[2];
	int r = looks ? 0 : scry_no_memory("the VM's counters");

	/* collections of both kinds, then objects: counts of one thing differ from those of others
	 */
	for (int i = 0; i < 2 && r == 0; i++) {
		for (unsigned k = 0; k < 7 && r == 0; k++)
			r = scry_alloc_counts_ask(c, k % 3 ? "drop" : "minor", 100 + k, NULL);
		if (r == 0)
			r = scry_alloc_counts_ask(c, "strings", 10 * SCRY_ALLOC_COUNTS_ANSWER,
						  NULL);
		read_structs(c, &looks[i]);
		reported[i] = c->reported;
	}
	if (r == 0)
		compare_structs(c, looks, reported);
	free(looks);
	return r;
}
