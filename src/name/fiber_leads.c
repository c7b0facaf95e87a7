/* See fiber_leads.h. Nearly every word leads nowhere: a filter of one bit for each hash says so. */
#include "name/fiber_leads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bisect.h"
#include "base/err.h"

#define CHUNK_WORDS (32u << 10)
#define RUNS 256u
#define FILTER_BITS 19u

struct looker {
	const struct scry_fiber_look *look;
	struct scry_fiber_lead *leads;
	size_t count;
	uint64_t missed;
	uint64_t filter[(1u << FILTER_BITS) / 64];
	uint64_t words[CHUNK_WORDS];
	struct scry_page_run runs[RUNS];
};

static uint32_t hash_of(uint64_t word)
{
	return (uint32_t)(word * 0x9e3779b97f4a7c15ull >> (64 - FILTER_BITS));
}

static void see(struct looker *l, uint64_t at, uint64_t word)
{
	const size_t low = scry_bisect(l->count, i, l->leads[i].address < word);

	if (low == l->count || l->leads[low].address != word)
		return;
	if (at < l->leads[low].dead_low || at >= word)
		l->leads[low].count++;
}

static void look_through(struct looker *l, uint64_t start, uint64_t end)
{
	for (uint64_t at = start; at < end; at += sizeof(l->words)) {
		const uint64_t want = end - at < sizeof(l->words) ? end - at : sizeof(l->words);
		ssize_t n;

		if (!scry_fiber_has_time(l->look->budget)) {
			l->missed += end - at;
			return;
		}
		n = scry_mem_read_some(l->look->mem, at, l->words, want);
		n = n < 0 ? 0 : n;
		l->missed += want - (uint64_t)n;
		for (size_t i = 0; i < (size_t)n / 8; i++) {
			const uint32_t hash = hash_of(l->words[i]);

			if (l->filter[hash / 64] >> hash % 64 & 1)
				see(l, at + 8 * i, l->words[i]);
		}
	}
}

static int look_map(struct looker *l, const struct scry_map_entry *m)
{
	for (uint64_t at = m->start; at < m->end;) {
		ssize_t n;

		if (!scry_fiber_has_time(l->look->budget)) {
			l->missed += m->end - at;
			return 0;
		}
		n = scry_pages_runs(l->look->pages, at, m->end, l->runs, RUNS, &at);
		if (n < 0)
			return (int)n;
		for (ssize_t i = 0; i < n; i++) {
			if (l->runs[i].flags & SCRY_PAGE_FILES)
				continue; /* the process never wrote it */
			if (l->runs[i].flags & SCRY_PAGE_THERE)
				look_through(l, l->runs[i].start, l->runs[i].end);
			else if (!(l->runs[i].flags & SCRY_PAGE_GUARD))
				l->missed += l->runs[i].end - l->runs[i].start;
		}
	}
	return 0;
}

int scry_fiber_leads_look(const struct scry_fiber_look *look, struct scry_fiber_lead *leads,
			  size_t count, uint64_t *ret_missed)
{
	struct looker *l = calloc(1, sizeof(*l));
	int err = 0;

	if (!l)
		return scry_no_memory("looking through a process");
	l->look = look;
	l->leads = leads;
	l->count = count;
	for (size_t i = 0; i < count; i++) {
		const uint32_t hash = hash_of(leads[i].address);

		l->filter[hash / 64] |= 1ull << hash % 64;
	}
	for (size_t i = 0; i < look->maps->count && !err; i++) {
		const struct scry_map_entry *m = &look->maps->entries[i];

		if (m->r && m->w && !m->shared)
			err = look_map(l, m);
	}
	*ret_missed = l->missed;
	free(l);
	return err ? scry_fail(err, "cannot see which pages are in memory: %s", strerror(-err)) : 0;
}
