/*
 * What a recording has of each site. See sites.h.
 */
#include "view/sites.h"

#include "base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SITES_MAX (4u << 20)
#define LIVE_MAX (16u << 20)
#define PIDS_MAX (1u << 20)
#define ADDRESS_BITS 44 /* address >> 3, below 2^47 */

int scry_sites_init(struct scry_sites *sites)
{
	*sites = (struct scry_sites){.count = 1, .cap = 1024};
	scry_map_init(&sites->ids, SITES_MAX);
	scry_map_init(&sites->pids, PIDS_MAX - 1);
	scry_map_init(&sites->live, LIVE_MAX);
	sites->rows = calloc(sites->cap, sizeof(*sites->rows));
	if (!sites->rows)
		return scry_no_memory("the table of sites");
	sites->rows[0].place.flags = SCRY_SITE_UNNAMED;
	return 0;
}

void scry_sites_done(struct scry_sites *sites)
{
	scry_map_done(&sites->ids);
	scry_map_done(&sites->pids);
	scry_map_done(&sites->live);
	free(sites->rows);
	sites->rows = NULL;
}

static int sites_grow(struct scry_sites *sites)
{
	size_t cap = sites->cap * 2;
	struct scry_site *rows = reallocarray(sites->rows, cap, sizeof(*rows));

	if (!rows)
		return scry_no_memory("%zu sites", cap);
	memset(rows + sites->cap, 0, (cap - sites->cap) * sizeof(*rows));
	sites->rows = rows;
	sites->cap = cap;
	return 0;
}

/* A site may come again, better named: counters stay. */
static int on_site(struct scry_sites *sites, const struct scry_ev_site *place)
{
	uint64_t index;

	if (!scry_map_get(&sites->ids, place->site, &index)) {
		if (sites->count == sites->cap && sites_grow(sites))
			return -ENOMEM;
		index = sites->count;
		if (scry_map_put(&sites->ids, place->site, index)) {
			sites->dropped++;
			return 0;
		}
		sites->count++;
	}
	sites->rows[index].place = *place;
	return 0;
}

static uint64_t sites_index(const struct scry_sites *sites, uint32_t site)
{
	uint64_t index = 0;

	scry_map_get(&sites->ids, site, &index);
	return index;
}

static void on_slice(struct scry_sites *sites, const struct scry_ev_slice *slice)
{
	sites->slice = slice->slice;
	sites->slice_end_ns = slice->end_ns;
}

/* Whether these counters are of the moment asked for, or before it. */
static bool is_asked(const struct scry_sites *sites, const struct scry_ev_objects *objects)
{
	if (!sites->until_ns)
		return true;
	return objects->slice && objects->slice == sites->slice &&
	       sites->slice_end_ns <= sites->until_ns;
}

static void on_objects(struct scry_sites *sites, const struct scry_ev_objects *objects)
{
	struct scry_site *row = &sites->rows[sites_index(sites, objects->site)];
	struct scry_ev_objects *counts = &row->counts;

	sites->events++;
	if (!is_asked(sites, objects))
		return;
	sites->has_final |= !objects->slice;
	row->is_final |= !objects->slice;
	row->has_counters = true;
	if (row > sites->rows) {
		*counts = *objects;
		return;
	}
	if (objects->slice) /* many sites that are not known share this row: written once, at the
			     * end
			     */
		return;
	counts->allocated += objects->allocated;
	counts->freed += objects->freed < objects->allocated ? objects->freed : 0;
	counts->unfollowed += objects->unfollowed;
	counts->bytes += objects->bytes;
	counts->live_bytes += objects->live_bytes;
	counts->freed_bytes += objects->freed_bytes;
	counts->unsized += objects->unsized;
	counts->live_unsized += objects->live_unsized;
	counts->flags |= objects->flags;
}

/* The key of an object in `live`. */
static uint64_t sites_key(struct scry_sites *sites, uint32_t pid, uint64_t address)
{
	uint64_t *number = scry_map_ref(&sites->pids, pid);

	if (number && !*number)
		*number = sites->pids.count;
	return (number ? *number : 0) << ADDRESS_BITS | address >> 3;
}

static void on_alloc(struct scry_sites *sites, uint32_t pid, const struct scry_ev_alloc *alloc)
{
	uint64_t index = sites_index(sites, alloc->site);

	sites->events++;
	sites->rows[index].seen_allocated++;
	if (scry_map_put(&sites->live, sites_key(sites, pid, alloc->address), index))
		sites->dropped++;
}

static void on_free(struct scry_sites *sites, uint32_t pid, const struct scry_ev_free *gone)
{
	uint64_t index;

	sites->events++;
	if (scry_map_remove(&sites->live, sites_key(sites, pid, gone->address), &index))
		sites->rows[index].seen_freed++;
	else
		sites->frees_older++;
}

int scry_sites_event(struct scry_sites *sites, const struct scry_reader *reader,
		     const struct scry_event *event)
{
	const void *payload = event + 1;
	uint32_t pid = scry_reader_chunk(reader)->producer_pid;

	switch (event->type) {
	case SCRY_EVENT_SITE:
		return on_site(sites, payload);
	case SCRY_EVENT_SLICE:
		on_slice(sites, payload);
		return 0;
	case SCRY_EVENT_OBJECTS:
		on_objects(sites, payload);
		return 0;
	case SCRY_EVENT_ALLOC:
		on_alloc(sites, pid, payload);
		return 0;
	case SCRY_EVENT_FREE:
		on_free(sites, pid, payload);
		return 0;
	}
	return 0;
}

/* What a stranger's file says is made to hold together. */
static void settle(struct scry_ev_objects *c)
{
	uint64_t live;

	if (c->freed > c->allocated)
		c->freed = c->allocated;
	if (c->unfollowed > c->allocated - c->freed)
		c->unfollowed = c->allocated - c->freed;
	live = c->allocated - c->freed - c->unfollowed;
	if (!c->live_bytes && !c->freed_bytes && c->bytes) {
		c->live_bytes = (uint64_t)((unsigned __int128)c->bytes * live /
					   (c->allocated ? c->allocated : 1));
		c->freed_bytes = c->bytes - c->live_bytes;
		c->flags |= SCRY_OBJECTS_SLOTS;
	}
	if (c->flags & SCRY_OBJECTS_SLOTS && !c->unsized) { /* how many is not said: any */
		c->unsized = c->allocated;
		c->live_unsized = live;
	}
	if (c->unsized > c->allocated)
		c->unsized = c->allocated;
	if (c->live_unsized > live)
		c->live_unsized = live;
	if (c->old_live > live)
		c->old_live = live;
	if (c->old_live_bytes > c->live_bytes)
		c->old_live_bytes = c->live_bytes;
	if (c->samples > c->allocated)
		c->samples = c->allocated;
	if (c->live_samples > live)
		c->live_samples = live;
}

void scry_sites_close(struct scry_sites *sites)
{
	size_t i;

	for (i = 0; i < sites->count; i++) {
		struct scry_site *row = &sites->rows[i];
		bool has_newer = row->seen_allocated && !row->is_final; /* than a slice */

		if (!sites->until_ns && (!row->has_counters || has_newer))
			row->counts = (struct scry_ev_objects){
				.allocated = row->seen_allocated,
				.freed = row->seen_freed,
				.bytes = row->seen_allocated * row->place.slot_bytes,
			};
		settle(&row->counts);
	}
}
