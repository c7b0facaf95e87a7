/*
 * Is what the allocator gives right? Aligned, zeroed where asked, kept by realloc, big enough, and
 * not in another block: each block is filled with a pattern of its own, which must be there at its
 * end.
 *
 * Of a huge block the first FILL bytes are filled and the last page's worth, not what lies between:
 * a program may ask for more than the machine has.
 */
#include "replay/replay.h"

#include <string.h>

#define FILL (UINT64_C(1) << 20)
#define TAIL 4096u

static void wrong(uint32_t slot, const void *p, const char *what)
{
	__atomic_fetch_add(&replay.head->wrong, 1, __ATOMIC_RELAXED);
	replay_refuse("block %x of %u bytes, slot %u: %s", (uint32_t)(uintptr_t)p,
		      (uint32_t)replay.sizes[slot], slot, what);
}

static unsigned char pattern(uint32_t slot, uint64_t at)
{
	return (unsigned char)((slot * 2654435761u >> 24) + at * 31 + (at >> 8) + 1);
}

/* Bytes [from, to) of a block of `size`, those that are filled. */
#define EACH(at, from, to, size)              \
	for (uint64_t at = (from); at < (to); \
	     at = at + 1 == FILL && (size) > FILL + TAIL ? (size)-TAIL : at + 1)

static void fill(uint32_t slot, unsigned char *p, uint64_t from, uint64_t size)
{
	EACH(at, from, size, size)
	p[at] = pattern(slot, at);
}

/* The first `kept` bytes of a block that was filled as one of `size`. */
static bool is_filled(uint32_t slot, const unsigned char *p, uint64_t kept, uint64_t size)
{
	EACH(at, 0, kept, size)
	if (p[at] != pattern(slot, at))
		return false;
	return true;
}

void verify_begin(struct stream *l, uint32_t slot, void *p, uint64_t size, uint64_t align)
{
	uint64_t least = 1;

	(void)l;
	/* C: aligned for any object that fits into it. */
	while (least < 16 && least * 2 <= size)
		least *= 2;
	replay.sizes[slot] = size;
	if ((uintptr_t)p % (align > least ? align : least))
		wrong(slot, p, "it is not aligned as asked");
	if ((uint64_t)(uintptr_t)p > REPLAY_ADDRESS)
		wrong(slot, p, "its address has more than 48 bits");
	fill(slot, p, 0, size);
}

void verify_zero(struct stream *l, uint32_t slot, const void *p, uint64_t size)
{
	(void)l;
	EACH(at, 0, size, size)
	if (((const unsigned char *)p)[at]) {
		wrong(slot, p, "calloc did not zero it");
		return;
	}
}

void verify_again(struct stream *l, uint32_t slot, void *p, uint64_t size)
{
	uint64_t old = replay.sizes[slot];

	(void)l;
	if (!is_filled(slot, p, old < size ? old : size, old))
		wrong(slot, p, "realloc did not keep its bytes, or they were another block's too");
	replay.sizes[slot] = size;
	fill(slot, p, 0, size);
}

void verify_end(struct stream *l, uint32_t slot, const void *p)
{
	(void)l;
	if (!is_filled(slot, p, replay.sizes[slot], replay.sizes[slot]))
		wrong(slot, p, "its bytes have changed: another block lies over it");
}

void verify_usable(struct stream *l, uint32_t slot, size_t usable)
{
	(void)l;
	if (replay.head->has_usable && usable < replay.sizes[slot])
		wrong(slot, NULL, "malloc_usable_size says less than was asked for");
}
