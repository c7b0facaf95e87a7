/*
 * Which objects are alive: address of a heap slot -> u32, for tens of millions of slots.
 *
 * Not a hash per object: Ruby's slots have a fixed stride, so each 64 KiB of heap is one small
 * array. A set or clear costs a few ns. 4 bytes a slot, bounded by a limit: beyond it set fails,
 * and the caller counts.
 */
#ifndef SCRY_NAME_LIVE_H
#define SCRY_NAME_LIVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

struct scry_live {
	struct scry_map regions; /* address >> 16 -> u32 array */
	uint32_t slot_size;	 /* bytes, smallest distance of two objects */
	size_t per_region;	 /* entries */
	size_t bytes, limit;
	size_t *used;	   /* bytes of all that share the limit; NULL: of this one alone */
	uint64_t last_key; /* the region used last */
	uint32_t *last;
};

void scry_live_init(struct scry_live *live, uint32_t slot_size, size_t limit_bytes);
/* Several processes, one limit: `used` (of the caller, begins at 0) counts for all. While empty. */
void scry_live_share(struct scry_live *live, size_t *used);
void scry_live_done(struct scry_live *live);

/* The place for `address`, made when it is new and `make` is set; NULL: none, or at the limit. */
uint32_t *scry_live_at(struct scry_live *live, uint64_t address, int make);

#endif
