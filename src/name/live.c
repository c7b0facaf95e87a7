/* See live.h. Two addresses a slot or more apart never share an entry. */
#include "name/live.h"

#include <stdlib.h>

void scry_live_init(struct scry_live *live, uint32_t slot_size, size_t limit_bytes)
{
	*live = (struct scry_live){.slot_size = slot_size >= 8 ? slot_size : 8,
				   .limit = limit_bytes};
	live->per_region = 65536 / live->slot_size + 1;
	scry_map_init(&live->regions,
		      limit_bytes / (sizeof(struct scry_live_entry) * live->per_region) + 16);
}

void scry_live_share(struct scry_live *live, size_t *used)
{
	live->used = used;
}

void scry_live_done(struct scry_live *live)
{
	struct scry_live_region *region;
	size_t cursor = 0;

	while ((region = scry_live_next(live, &cursor)))
		free(region);
	if (live->used)
		*live->used -= live->bytes;
	scry_map_done(&live->regions);
	live->last = NULL;
}

struct scry_live_region *scry_live_next(const struct scry_live *live, size_t *cursor)
{
	struct scry_map_slot slot;

	return scry_map_next(&live->regions, cursor, &slot)
		       ? (struct scry_live_region *)(uintptr_t)slot.value
		       : NULL;
}

static struct scry_live_region *find(struct scry_live *live, uint64_t key, int make)
{
	size_t bytes =
		sizeof(struct scry_live_region) + live->per_region * sizeof(struct scry_live_entry);
	struct scry_live_region *region;
	uint64_t value;

	if (scry_map_get(&live->regions, key, &value))
		return (struct scry_live_region *)(uintptr_t)value;
	if (!make || (live->used ? *live->used : live->bytes) + bytes > live->limit)
		return NULL;
	region = calloc(1, bytes);
	if (!region || scry_map_put(&live->regions, key, (uintptr_t)region) < 0) {
		free(region);
		return NULL;
	}
	region->base = key << 16;
	live->bytes += bytes;
	if (live->used)
		*live->used += bytes;
	return region;
}

struct scry_live_region *scry_live_region(struct scry_live *live, uint64_t address, int make)
{
	if (!live->last || live->last->base >> 16 != address >> 16) {
		struct scry_live_region *found = find(live, address >> 16, make);

		if (!found)
			return NULL;
		live->last = found;
	}
	return live->last;
}
