/* Sums processes: places of one become those of another by what they are called. See objects.h. */
#include <stdlib.h>
#include <string.h>

#include "name/objects_own.h"

#define SUM_GCS UINT32_MAX /* ages are counted back from here: each process had its own GCs */

static uint32_t name_in(struct scry_objects *into, const struct scry_objects *from, uint32_t name)
{
	size_t size;
	const char *bytes = name ? scry_intern_get(&from->places.names, name, &size) : NULL;

	return bytes ? scry_places_name(&into->places, bytes, size) : 0;
}

/* Frame numbers of `from` as those of `into`, by number; parents come first. NULL: no memory. */
static uint32_t *merge_stacks(struct scry_objects *into, const struct scry_objects *from)
{
	uint32_t count = from->stacks.frames.count;
	uint32_t *map = calloc(count + 1ul, sizeof(*map));
	struct scry_stack_frame frame;

	for (uint32_t i = 1; map && i <= count; i++) {
		if (scry_stacks_frame(&from->stacks, i, &frame) < 0)
			continue;
		frame.parent = frame.parent < i ? map[frame.parent] : 0;
		frame.path = name_in(into, from, frame.path);
		frame.label = name_in(into, from, frame.label);
		map[i] = scry_stacks_add(&into->stacks, &frame);
	}
	return map;
}

static void add_counters(struct scry_objects_counters *sum, const struct scry_objects_counters *c,
			 uint32_t gcs)
{
	uint64_t oldest = c->oldest ? SUM_GCS - (gcs - (c->oldest - 1)) + 1 : 0;

	sum->allocated += c->allocated;
	sum->freed += c->freed;
	sum->freed_bytes += c->freed_bytes;
	sum->unfollowed += c->unfollowed;
	sum->samples += c->samples;
	sum->freed_samples += c->freed_samples;
	sum->live_bytes += c->live_bytes;
	sum->old_live += c->old_live;
	sum->old_live_bytes += c->old_live_bytes;
	sum->freed_unsized += c->freed_unsized;
	sum->live_unsized += c->live_unsized;
	if (oldest && (!sum->oldest || oldest < sum->oldest))
		sum->oldest = oldest;
}

void scry_objects_merge_totals(struct scry_objects *into, const struct scry_objects *from)
{
	struct scry_objects_totals *sum = &into->totals;
	const struct scry_objects_totals *t = &from->totals;

	sum->allocs += t->allocs;
	sum->frees += t->frees;
	sum->frees_older += t->frees_older;
	sum->replaced += t->replaced;
	sum->untracked += t->untracked;
	sum->damaged += t->damaged;
	sum->defs += t->defs;
	sum->gcs += t->gcs;
	sum->full_gcs += t->full_gcs;
	sum->compactions += t->compactions;
	sum->moved += t->moved;
	sum->out_of_sight += t->out_of_sight;
	sum->unfollowed += t->unfollowed;
}

void scry_objects_merge(struct scry_objects *into, struct scry_objects *from)
{
	uint32_t *stacks = merge_stacks(into, from);

	into->gcs = SUM_GCS;
	into->live.slot_size = into->slot_sizes[0] = from->slot_sizes[0];
	for (uint32_t place = 1; place <= from->cap; place++) {
		struct scry_place_key key, is;
		struct scry_objects_counters *sum;
		uint32_t id;

		if (!from->counters[place - 1].samples)
			continue;
		scry_places_key(&from->places, place, &is);
		memset(&key, 0, sizeof(key));
		key.path = name_in(into, from, is.path);
		key.label = name_in(into, from, is.label);
		key.klass = name_in(into, from, is.klass);
		key.line_at = key.line_before = scry_places_line(&from->places, &is);
		key.stack = stacks ? stacks[is.stack] : 0;
		key.internal = is.internal;
		id = place == from->nowhere ? 0 : scry_places_add(&into->places, &key);
		sum = scry_objects_counters_of(into, id ? id : into->nowhere);
		if (sum)
			add_counters(sum, &from->counters[place - 1], from->gcs);
		else
			into->totals.damaged++;
	}
	scry_objects_merge_totals(into, from);
	free(stacks);
}
