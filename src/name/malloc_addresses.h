/*
 * Which block lives at which address: a hash table of 8 bytes a slot, for tens of millions.
 *
 * base/map has 16 bytes a slot: at some million calls a second each of them is a cache line from
 * memory, so half the bytes is half the time. An entry holds 28 bits of block and 36 bits of the
 * address's hash; the 8 bits that lack are where it is: an entry is never further from its home
 * than a 256th of the table, else the table grows. Removal moves followers back. Addresses are
 * multiples of 8 below 2^47 and not 0. One thread.
 */
#ifndef SCRY_NAME_MALLOC_ADDRESSES_H
#define SCRY_NAME_MALLOC_ADDRESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCRY_MALLOC_BLOCK_MAX ((1u << 28) - 2)

struct scry_malloc_addresses {
	uint64_t *slots; /* 0: empty; hash << 28 | block + 1 */
	unsigned int bits;
	size_t mask, count;
	uint64_t limit; /* bytes; 0: none */
};

/* 0 or -ENOMEM. Takes 32 KiB. */
int scry_malloc_addresses_init(struct scry_malloc_addresses *a, uint64_t limit);
void scry_malloc_addresses_done(struct scry_malloc_addresses *a);
/* 0 or -ENOMEM. */
int scry_malloc_addresses_copy(const struct scry_malloc_addresses *a,
			       struct scry_malloc_addresses *ret);
uint64_t scry_malloc_addresses_bytes(const struct scry_malloc_addresses *a);

/* Where `address` is, added when it was not there (then *ret_is_new). Valid until the next add or
 * take. -ENOSPC: the limit; -ENOMEM. */
int scry_malloc_addresses_add(struct scry_malloc_addresses *a, uint64_t address,
			      uint64_t **ret_slot, bool *ret_is_new);

static inline uint32_t scry_malloc_slot_block(const uint64_t *slot)
{
	return (uint32_t)(*slot & 0xfffffff) - 1;
}
static inline void scry_malloc_slot_set(uint64_t *slot, uint32_t block)
{
	*slot = (*slot & ~0xfffffffull) | (block + 1);
}

/* The slot of an address, or NULL. */
uint64_t *scry_malloc_addresses_find(const struct scry_malloc_addresses *a, uint64_t address);
/* Removes what is in a slot that was found. */
void scry_malloc_addresses_take(struct scry_malloc_addresses *a, uint64_t *slot);

static inline uint64_t scry_malloc_address_hash(uint64_t address)
{
	return (address >> 3) * 0x9e3779b97f5ull & 0xfffffffffffull; /* 44 bits, one to one */
}
/* Soon asked for: fetches its line. */
static inline void scry_malloc_addresses_prefetch(const struct scry_malloc_addresses *a,
						  uint64_t address)
{
	__builtin_prefetch(&a->slots[scry_malloc_address_hash(address) >> (44 - a->bits)], 1);
}

#endif
