/*
 * Chunks that glibc keeps for the next call: they look used. See glibc_arenas.h.
 *
 * Since 2.32 a link is stored as (its own address >> 12) ^ the next one (PROTECT_PTR). Which way it
 * is, the first list tells whose last link says "none" one way only.
 */
#include "name/glibc_heap.h"

#include <errno.h>
#include <string.h>

#define TCACHE_LISTS 64
#define FASTBIN_LENGTH_MAX 1000000

/* struct tcache_perthread_struct: counts, then lists of memory, not chunks */
struct tcache {
	uint64_t size; /* of its chunk */
	unsigned int count_bytes;
};
static const struct tcache tcaches[] = {{0x290, 2}, {0x250, 1}};

static uint64_t link_of(uint64_t at, uint64_t stored, bool is_protected)
{
	return is_protected ? at >> 12 ^ stored : stored;
}

/* A list of `count` chunks of `size` from memory address `first`; they are noted when `note`. */
static bool is_list(struct scry_glibc_heap *h, uint64_t first, const uint64_t shape[2],
		    bool is_protected, bool note)
{
	uint64_t at = first;

	for (uint64_t n = 0; n < shape[0]; n++) {
		uint64_t size, stored;

		if (!at || at % 16 || scry_glibc_word(&h->window, at - 8, &size) < 0 ||
		    scry_glibc_word(&h->window, at, &stored) < 0 ||
		    (size & ~(uint64_t)CHUNK_FLAGS) != shape[1])
			return false;
		if (note && scry_map_put(&h->cached, at - 16, 1) < 0)
			return false;
		at = link_of(at, stored, is_protected);
	}
	return at == 0;
}

/* Is it one, and with lists? Its lists are noted then. */
static bool is_tcache(struct scry_glibc_heap *h, uint64_t chunk, const struct tcache *shape,
		      bool is_protected)
{
	uint64_t words[0x280 / 8];
	const uint8_t *counts = (const uint8_t *)words;
	const uint64_t *lists = words + TCACHE_LISTS * shape->count_bytes / 8;
	bool has_some = false;

	if (scry_mem_read(h->window.mem, chunk + 16, words, shape->size - 16) < 0)
		return false;
	for (int note = 0; note < 2; note++)
		for (unsigned int i = 0; i < TCACHE_LISTS; i++) {
			uint16_t count = counts[i];
			const uint64_t list[2] = {0, CHUNK_MIN + 16 * i};
			uint64_t of[2];

			if (shape->count_bytes == 2)
				memcpy(&count, counts + 2 * i, 2);
			of[0] = count;
			of[1] = list[1];
			if (!is_list(h, lists[i], of, is_protected, note))
				return false;
			has_some |= count != 0;
		}
	return has_some;
}

static int look_for_tcaches(struct scry_glibc_heap *h)
{
	int is_protected = -1;

	for (size_t i = 0; i < h->suspect_count; i++) {
		uint64_t size;

		if (scry_glibc_word(&h->window, h->suspects[i] + 8, &size) < 0)
			continue;
		for (size_t k = 0; k < 2; k++)
			for (int way = 1; way >= 0; way--) {
				if ((size & ~(uint64_t)CHUNK_FLAGS) != tcaches[k].size ||
				    (is_protected >= 0 && is_protected != way) ||
				    !is_tcache(h, h->suspects[i], &tcaches[k], way))
					continue;
				is_protected = way;
				h->ret->tcaches++;
				if (scry_map_put(&h->cached, h->suspects[i], 1) < 0)
					return -ENOMEM;
				break;
			}
	}
	return is_protected;
}

/* A fastbin's list has no count. Without a tcache that showed how links are stored, the way that
 * leads to an end through chunks is the right one. */
static bool follow_fastbin(struct scry_glibc_heap *h, uint64_t chunk, bool is_protected, bool note)
{
	uint64_t shape = 0;

	for (uint64_t n = 0; chunk; n++) {
		uint64_t size, stored;

		if (n == FASTBIN_LENGTH_MAX || chunk % 16 ||
		    scry_glibc_word(&h->window, chunk + 8, &size) < 0 ||
		    scry_glibc_word(&h->window, chunk + 16, &stored) < 0)
			return false;
		size &= ~(uint64_t)CHUNK_FLAGS;
		if (shape && size != shape)
			return false;
		shape = size;
		if (note && scry_map_put(&h->cached, chunk, 1) < 0)
			return false;
		chunk = link_of(chunk + 16, stored, is_protected);
	}
	return true;
}

int scry_glibc_caches(struct scry_glibc_heap *h)
{
	int is_protected = look_for_tcaches(h);

	if (is_protected == -ENOMEM)
		return is_protected;
	for (size_t i = 0; i < h->fast_count; i++)
		for (int way = 1; way >= 0; way--)
			if ((is_protected < 0 || is_protected == way) &&
			    follow_fastbin(h, h->fast[i], way, false)) {
				follow_fastbin(h, h->fast[i], way, true);
				break;
			}
	h->ret->cached = h->cached.count - h->ret->tcaches;
	return 0;
}
