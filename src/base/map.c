/*
 * Open addressing without tombstones. See map.h.
 *
 * The one trick: a key's home is the top bits of (key ^ seed) * golden ratio, both halves of the
 * product folded, so keys that differ only in low or only in high bits (aligned addresses) spread
 * alike; and home order lets a removal decide which of the followers may move back into the hole.
 * What chooses the keys does not know the seed, so it cannot make them share a home.
 */
#include "base/map.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#define MAP_FIRST_BITS 4

static size_t map_home(const struct scry_map *map, uint64_t key)
{
	unsigned __int128 product =
		(unsigned __int128)(key ^ map->seed) * UINT64_C(0x9e3779b97f4a7c15);

	return (size_t)(((uint64_t)product ^ (uint64_t)(product >> 64)) >> map->shift);
}

static struct scry_map_slot *map_find(const struct scry_map *map, uint64_t key)
{
	size_t i = map_home(map, key);

	while (map->slots[i].key && map->slots[i].key != key)
		i = (i + 1) & map->mask;
	return &map->slots[i];
}

/* True when one more key would make the table too full: more than 5/8. */
static bool map_is_full(const struct scry_map *map)
{
	size_t slots = map->mask + 1;

	return !map->slots || map->count + 1 > slots / 2 + slots / 8;
}

static int map_grow(struct scry_map *map)
{
	struct scry_map grown = *map;
	unsigned int bits = map->slots ? 64 - map->shift + 1 : MAP_FIRST_BITS;
	size_t i;

	grown.shift = 64 - bits;
	grown.mask = ((size_t)1 << bits) - 1;
	grown.slots = calloc(grown.mask + 1, sizeof(*grown.slots));
	if (!grown.slots)
		return -ENOMEM;
	for (i = 0; map->slots && i <= map->mask; i++)
		if (map->slots[i].key)
			*map_find(&grown, map->slots[i].key) = map->slots[i];
	free(map->slots);
	*map = grown;
	return 0;
}

void scry_map_init(struct scry_map *map, size_t limit)
{
	*map = (struct scry_map){.limit = limit};
	/* Without entropy the seed stays 0: slower under attack, still right. */
	if (getrandom(&map->seed, sizeof(map->seed), GRND_NONBLOCK) != sizeof(map->seed))
		map->seed = 0;
}

void scry_map_done(struct scry_map *map)
{
	free(map->slots);
	*map = (struct scry_map){.limit = map->limit, .seed = map->seed};
}

bool scry_map_get(const struct scry_map *map, uint64_t key, uint64_t *ret_value)
{
	const struct scry_map_slot *slot;

	if (!key) {
		if (map->has_zero)
			*ret_value = map->zero_value;
		return map->has_zero;
	}
	if (!map->slots)
		return false;
	slot = map_find(map, key);
	if (!slot->key)
		return false;
	*ret_value = slot->value;
	return true;
}

static uint64_t *map_ref_zero(struct scry_map *map)
{
	if (!map->has_zero) {
		if (map->count >= map->limit)
			return NULL;
		map->has_zero = true;
		map->zero_value = 0;
		map->count++;
	}
	return &map->zero_value;
}

uint64_t *scry_map_ref(struct scry_map *map, uint64_t key)
{
	struct scry_map_slot *slot = NULL;

	if (!key)
		return map_ref_zero(map);
	if (map->slots) {
		slot = map_find(map, key);
		if (slot->key)
			return &slot->value;
	}
	if (map->count >= map->limit)
		return NULL;
	if (map_is_full(map)) {
		if (map_grow(map))
			return NULL;
		slot = map_find(map, key);
	}
	slot->key = key;
	slot->value = 0;
	map->count++;
	return &slot->value;
}

int scry_map_put(struct scry_map *map, uint64_t key, uint64_t value)
{
	uint64_t *place = scry_map_ref(map, key);

	if (!place)
		return map->count >= map->limit ? -ENOSPC : -ENOMEM;
	*place = value;
	return 0;
}

/*
 * Closes the hole at `hole`: each follower in the run whose home does not lie cyclically after the
 * hole moves into it and leaves a new hole.
 */
static void map_close_hole(struct scry_map *map, size_t hole)
{
	size_t i = hole;

	for (;;) {
		size_t home;

		i = (i + 1) & map->mask;
		if (!map->slots[i].key)
			break;
		home = map_home(map, map->slots[i].key);
		if (((i - home) & map->mask) < ((i - hole) & map->mask))
			continue;
		map->slots[hole] = map->slots[i];
		hole = i;
	}
	map->slots[hole] = (struct scry_map_slot){0};
}

bool scry_map_remove(struct scry_map *map, uint64_t key, uint64_t *ret_value)
{
	struct scry_map_slot *slot;
	uint64_t value;

	if (!key) {
		if (!map->has_zero)
			return false;
		value = map->zero_value;
		map->has_zero = false;
	} else {
		if (!map->slots)
			return false;
		slot = map_find(map, key);
		if (!slot->key)
			return false;
		value = slot->value;
		map_close_hole(map, (size_t)(slot - map->slots));
	}
	map->count--;
	if (ret_value)
		*ret_value = value;
	return true;
}

bool scry_map_next(const struct scry_map *map, size_t *cursor, struct scry_map_slot *ret_slot)
{
	size_t slots = map->slots ? map->mask + 1 : 0;

	while (*cursor < slots) {
		const struct scry_map_slot *slot = &map->slots[(*cursor)++];

		if (slot->key) {
			*ret_slot = *slot;
			return true;
		}
	}
	if (*cursor == slots && map->has_zero) {
		(*cursor)++;
		*ret_slot = (struct scry_map_slot){.key = 0, .value = map->zero_value};
		return true;
	}
	return false;
}
