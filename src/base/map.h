/*
 * A hash from u64 to u64, made for tens of millions of addresses.
 *
 * Open addressing, a power of two of slots, linear probing, multiplicative hash. Removal moves the
 * followers back instead of leaving tombstones, so a map that lives long under put and remove stays
 * as fast as a new one. Any key is legal, 0 included. The hash is seeded, so a program that chooses
 * the keys (addresses in it) cannot make the map slow; the order of a walk differs from run to run.
 * 16 bytes a slot, at most 5/8 of the slots are in use.
 *
 * Life cycle: scry_map_init, calls, scry_map_done. One thread at a time.
 */
#ifndef SCRY_BASE_MAP_H
#define SCRY_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scry_map_slot {
	uint64_t key; /* 0: empty; the key 0 itself is kept beside the table */
	uint64_t value;
};

struct scry_map {
	struct scry_map_slot *slots;
	unsigned int shift; /* 64 - log2(slots) */
	size_t mask;	    /* slots - 1 */
	size_t count;	    /* keys stored, key 0 included */
	size_t limit;
	uint64_t seed;
	bool has_zero;
	uint64_t zero_value;
};

/* An empty map that refuses to hold more than `limit` keys. Allocates nothing; one system call, for
 * its seed. */
void scry_map_init(struct scry_map *map, size_t limit);

/* Frees the memory; the map is then empty and may be used again. */
void scry_map_done(struct scry_map *map);

/* Looks up `key`; true and *ret_value when it is there. */
bool scry_map_get(const struct scry_map *map, uint64_t key, uint64_t *ret_value);

/* Stores or replaces. 0; -ENOSPC at the limit, -ENOMEM: then the map is as before. */
int scry_map_put(struct scry_map *map, uint64_t key, uint64_t value);

/*
 * The value's place, made with value 0 when the key is new: for counters. NULL at the limit or out
 * of memory. Valid until the next put, ref or remove.
 */
uint64_t *scry_map_ref(struct scry_map *map, uint64_t key);

/* Removes `key`; true and its value in *ret_value (may be NULL) when it was there. */
bool scry_map_remove(struct scry_map *map, uint64_t key, uint64_t *ret_value);

/*
 * Walks the map in no order: start with *cursor 0, false at the end. The map must not be changed by
 * put or remove meanwhile.
 */
bool scry_map_next(const struct scry_map *map, size_t *cursor, struct scry_map_slot *ret_slot);

#endif
