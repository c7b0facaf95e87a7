/*
 * Which objects are alive: address of a heap slot -> the place that made it and when, for tens of
 * millions of slots.
 *
 * Not a hash per object: Ruby's slots have a fixed stride, so each 64 KiB of heap is one small
 * array. A set or clear costs a few ns. 8 bytes a slot, bounded by a limit: beyond it set fails,
 * and the caller counts.
 */
#ifndef SCRY_NAME_LIVE_H
#define SCRY_NAME_LIVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

struct scry_live_entry {
	uint32_t place : 20; /* 0: none */
	uint32_t slot : 4;   /* its slot's size, by a number that the caller gives; 0: not known */
	uint32_t offset : 8; /* of the address within its entry's stretch, / 8 */
	uint32_t birth;	     /* GCs begun when it was made */
};

struct scry_live_region { /* 64 KiB of addresses */
	uint64_t base;
	uint64_t count; /* living objects in it */
	struct scry_live_entry at[];
};

struct scry_live {
	struct scry_map regions; /* address >> 16 -> struct scry_live_region * */
	uint32_t slot_size;	 /* bytes, smallest distance of two objects */
	size_t per_region;	 /* entries */
	size_t bytes, limit;
	size_t *used; /* bytes of all that share the limit; NULL: of this one alone */
	struct scry_live_region *last; /* the one used last */
};

void scry_live_init(struct scry_live *live, uint32_t slot_size, size_t limit_bytes);
/* Several processes, one limit: `used` (of the caller, begins at 0) counts for all. While empty. */
void scry_live_share(struct scry_live *live, size_t *used);
void scry_live_done(struct scry_live *live);

/* The region of `address`, made when it is new and `make` is set; NULL: none, or at the limit. */
struct scry_live_region *scry_live_region(struct scry_live *live, uint64_t address, int make);

/* The entry of `address` in its region, and the offset to set with it. */
static inline struct scry_live_entry *
scry_live_entry(const struct scry_live *live, struct scry_live_region *region, uint64_t address)
{
	return &region->at[(address & 0xffff) / live->slot_size];
}

static inline uint32_t scry_live_offset(const struct scry_live *live, uint64_t address)
{
	return (address & 0xffff) % live->slot_size / 8 & 0xff;
}

/* The address that entry `i` is of. */
static inline uint64_t scry_live_address(const struct scry_live *live,
					 const struct scry_live_region *region, size_t i)
{
	return region->base + i * live->slot_size + 8u * region->at[i].offset;
}

/* Walks the regions in no order: start with *cursor 0, NULL at the end. */
struct scry_live_region *scry_live_next(const struct scry_live *live, size_t *cursor);

#endif
