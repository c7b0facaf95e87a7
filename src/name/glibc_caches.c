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
		uint64_t words[2]; /* its size, and the link; far from the one before */

		if (!at || at % 16 || scry_mem_read(h->window.mem, at - 8, words, 16) < 0 ||
		    (words[0] & ~(uint64_t)CHUNK_FLAGS) != shape[1])
			return false;
		if (note && scry_map_put(&h->cached, at - 16, 1) < 0)
			return false;
		at = link_of(at, words[1], is_protected);
	}
	return at == 0;
}

/* How many chunks the list `i` of the tcache `words` says it has. */
static uint64_t length_of(const uint64_t *words, const struct tcache *shape, unsigned int i)
{
	unsigned int bit = 8 * shape->count_bytes * i;

	return words[bit / 64] >> bit % 64 & (shape->count_bytes == 2 ? 0xffff : 0xff);
}

/* Is it one, and with lists? Its lists are noted then. */
static bool is_tcache(struct scry_glibc_heap *h, uint64_t chunk, const struct tcache *shape,
		      bool is_protected)
{
	uint64_t words[0x280 / 8] = {0};
	const uint64_t *lists = words + TCACHE_LISTS * shape->count_bytes / 8;
	uint64_t all = 0;

	if (scry_mem_read(h->window.mem, chunk + 16, words, shape->size - 16) < 0)
		return false;
	for (int note = 0; note < 2; note++)
		for (unsigned int i = 0; i < TCACHE_LISTS; i++) {
			const uint64_t list[2] = {length_of(words, shape, i), CHUNK_MIN + 16 * i};

			if (!is_list(h, lists[i], list, is_protected, note))
				return false;
			all += list[0];
		}
	return all != 0;
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
		uint64_t words[2], size;

		if (n == FASTBIN_LENGTH_MAX || chunk % 16 ||
		    (n % 1024 == 0 && scry_glibc_in_time(h) < 0) ||
		    scry_mem_read(h->window.mem, chunk + 8, words, 16) < 0)
			return false;
		size = words[0] & ~(uint64_t)CHUNK_FLAGS;
		if (shape && size != shape)
			return false;
		shape = size;
		if (note && scry_map_put(&h->cached, chunk, 1) < 0)
			return false;
		chunk = link_of(chunk + 16, words[1], is_protected);
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
			if (is_protected == way ||
			    (is_protected < 0 && follow_fastbin(h, h->fast[i], way, false))) {
				follow_fastbin(h, h->fast[i], way, true);
				break;
			}
	h->ret->cached = h->cached.count - h->ret->tcaches;
	return scry_glibc_in_time(h);
}
