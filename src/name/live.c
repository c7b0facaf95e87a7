/* See live.h. Two addresses a slot or more apart never share an entry: index = (low 16 bits) /
 * slot_size. */
#include "name/live.h"

#include <stdlib.h>

void scry_live_init(struct scry_live *live, uint32_t slot_size, size_t limit_bytes)
{
	*live = (struct scry_live){.slot_size = slot_size >= 8 ? slot_size : 8,
				   .limit = limit_bytes};
	live->per_region = 65536 / live->slot_size + 1;
	scry_map_init(&live->regions, limit_bytes / (4 * live->per_region) + 16);
}

void scry_live_share(struct scry_live *live, size_t *used)
{
	live->used = used;
}

void scry_live_done(struct scry_live *live)
{
	struct scry_map_slot slot;
	size_t cursor = 0;

	if (live->used)
		*live->used -= live->bytes;

	while (scry_map_next(&live->regions, &cursor, &slot))
		free((void *)(uintptr_t)slot.value);
	scry_map_done(&live->regions);
}

static uint32_t *region(struct scry_live *live, uint64_t key, int make)
{
	size_t bytes = live->per_region * sizeof(uint32_t);
	uint64_t value;
	uint32_t *array;

	if (scry_map_get(&live->regions, key, &value))
		return (uint32_t *)(uintptr_t)value;
	if (!make || (live->used ? *live->used : live->bytes) + bytes > live->limit)
		return NULL;
	array = calloc(1, bytes);
	if (!array || scry_map_put(&live->regions, key, (uintptr_t)array) < 0) {
		free(array);
		return NULL;
	}
	live->bytes += bytes;
	if (live->used)
		*live->used += bytes;
	return array;
}

uint32_t *scry_live_at(struct scry_live *live, uint64_t address, int make)
{
	uint64_t key = address >> 16;

	if (!live->last || live->last_key != key) {
		uint32_t *found = region(live, key, make);

		if (!found)
			return NULL;
		live->last = found;
		live->last_key = key;
	}
	return &live->last[(address & 0xffff) / live->slot_size];
}
