/*
 * See malloc_addresses.h. The hash is 44 bits and one to one: with `bits` of home, an entry's low
 * 36 bits hold the low bits - 8 of its home, and so its distance from there; two that are equal in
 * them cannot be in reach of one home.
 */
#include "name/malloc_addresses.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define BITS_FIRST 12u
#define BITS_MAX 30u
#define HASH_LOW 0xfffffffffull /* 36 bits */
#define HUGE (2u << 20)

static int map_slots(struct scry_malloc_addresses *a, unsigned int bits)
{
	size_t bytes = (size_t)8 << bits;
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return -ENOMEM;
	if (bytes >= HUGE)
		madvise(p, bytes, MADV_HUGEPAGE);
	a->slots = p;
	a->bits = bits;
	a->mask = ((size_t)1 << bits) - 1;
	return 0;
}

int scry_malloc_addresses_init(struct scry_malloc_addresses *a, uint64_t limit)
{
	*a = (struct scry_malloc_addresses){.limit = limit};
	return map_slots(a, BITS_FIRST);
}

void scry_malloc_addresses_done(struct scry_malloc_addresses *a)
{
	if (a->slots)
		munmap(a->slots, (size_t)8 << a->bits);
	*a = (struct scry_malloc_addresses){0};
}

int scry_malloc_addresses_copy(const struct scry_malloc_addresses *a,
			       struct scry_malloc_addresses *ret)
{
	struct scry_malloc_addresses copy = *a;

	if (map_slots(&copy, a->bits) < 0)
		return -ENOMEM;
	memcpy(copy.slots, a->slots, (size_t)8 << a->bits);
	*ret = copy;
	return 0;
}

uint64_t scry_malloc_addresses_bytes(const struct scry_malloc_addresses *a)
{
	return (uint64_t)8 << a->bits;
}

static size_t reach(const struct scry_malloc_addresses *a)
{
	return (size_t)1 << (a->bits - 8);
}

/* How far the entry in slot `i` is behind its home. */
static size_t distance(const struct scry_malloc_addresses *a, size_t i)
{
	uint64_t low = a->slots[i] >> 28 >> (44 - a->bits);

	return (size_t)(i - low) & (reach(a) - 1);
}

uint64_t *scry_malloc_addresses_find(const struct scry_malloc_addresses *a, uint64_t address)
{
	uint64_t hash = scry_malloc_address_hash(address);
	size_t i = hash >> (44 - a->bits);

	for (size_t n = reach(a); n; n--, i = (i + 1) & a->mask) {
		if (!a->slots[i])
			return NULL;
		if (a->slots[i] >> 28 == (hash & HASH_LOW))
			return &a->slots[i];
	}
	return NULL;
}

/* NULL: no room within reach of its home. */
static uint64_t *place(struct scry_malloc_addresses *a, uint64_t hash, bool *ret_is_new)
{
	size_t i = hash >> (44 - a->bits);

	for (size_t n = reach(a); n; n--, i = (i + 1) & a->mask) {
		*ret_is_new = !a->slots[i];
		if (*ret_is_new)
			a->slots[i] = (hash & HASH_LOW) << 28;
		if (a->slots[i] >> 28 == (hash & HASH_LOW))
			return &a->slots[i];
	}
	return NULL;
}

/* All of `from` into the empty `to`. False: some found no room. */
static bool move_all(const struct scry_malloc_addresses *from, struct scry_malloc_addresses *to)
{
	for (size_t i = 0; i <= from->mask; i++) {
		size_t home = (i - distance(from, i)) & from->mask;
		uint64_t *slot;
		bool is_new;

		if (!from->slots[i])
			continue;
		slot = place(to, (uint64_t)(home >> (from->bits - 8)) << 36 | from->slots[i] >> 28,
			     &is_new);
		if (!slot)
			return false;
		*slot = from->slots[i];
	}
	return true;
}

static int grow(struct scry_malloc_addresses *a)
{
	struct scry_malloc_addresses grown = *a;

	for (unsigned int bits = a->bits + 1; bits <= BITS_MAX; bits++) {
		if (a->limit && (uint64_t)8 << bits > a->limit)
			return -ENOSPC;
		if (map_slots(&grown, bits) < 0)
			return -ENOMEM;
		if (move_all(a, &grown)) {
			munmap(a->slots, (size_t)8 << a->bits);
			*a = grown;
			return 0;
		}
		munmap(grown.slots, (size_t)8 << bits);
	}
	return -ENOSPC;
}

int scry_malloc_addresses_add(struct scry_malloc_addresses *a, uint64_t address,
			      uint64_t **ret_slot, bool *ret_is_new)
{
	uint64_t hash = scry_malloc_address_hash(address);
	uint64_t *slot = NULL;

	if (a->count <= a->mask / 8 * 5)
		slot = place(a, hash, ret_is_new);
	while (!slot) {
		int r = grow(a);

		if (r < 0)
			return r;
		slot = place(a, hash, ret_is_new);
	}
	a->count += *ret_is_new;
	*ret_slot = slot;
	return 0;
}

/* Each follower in the run that is not in its home or between there and the hole moves into it and
 * leaves a new hole. */
void scry_malloc_addresses_take(struct scry_malloc_addresses *a, uint64_t *slot)
{
	size_t hole = (size_t)(slot - a->slots), i = hole;

	for (;;) {
		i = (i + 1) & a->mask;
		if (!a->slots[i])
			break;
		if (distance(a, i) < ((i - hole) & a->mask))
			continue;
		a->slots[hole] = a->slots[i];
		hole = i;
	}
	a->slots[hole] = 0;
	a->count--;
}
