/*
 * Blocks of glibc's malloc that are mappings of their own. See glibc_arenas.h.
 *
 * A mapped chunk begins a page, with 0 and its size | CHUNK_MAPPED, a whole number of pages; the
 * kernel merges neighbours. libc counts them (struct malloc_par, mp_): when more are found than
 * that, none is believed.
 */
#include "name/glibc_heap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u
#define PAGES_IN_VAIN (1u << 18) /* looked at that begin no chunk: a GiB */

/* Words of mp_ from sbrk_base on, before and behind. */
enum {
	MP_MAX_MAPPED_BYTES = -1,
	MP_TCACHE_BINS = 1,
	MP_TCACHE_MAX = 2,
	MP_TCACHE_COUNT = 3,
};
/* Halves of words: n_mmaps, n_mmaps_max, max_n_mmaps; since 2.35 an int (hp_flags) comes before. */
static const int mp_counts[] = {-9, -8};

/* How many mappings there are by one way to read; -1: it is none. */
static int64_t mappings(const uint64_t *mp, int first)
{
	uint32_t n[3];

	memcpy(n, (const uint32_t *)mp + first, sizeof(n));
	return n[1] && n[0] <= n[1] && n[0] <= n[2] && n[2] <= n[1] &&
			       (n[0] != 0) == (mp[MP_MAPPED_BYTES] != 0) &&
			       (n[2] != 0) == (mp[MP_MAX_MAPPED_BYTES] != 0)
		       ? (int64_t)n[0]
		       : -1;
}

static bool is_mp(const uint64_t *mp)
{
	uint64_t bins = mp[MP_TCACHE_BINS];

	return mp[0] && mp[0] % 16 == 0 && !(mp[0] >> 47) && bins && bins <= 64 &&
	       mp[MP_TCACHE_MAX] > (bins - 1) * 16 && mp[MP_TCACHE_MAX] <= (bins - 1) * 16 + 24 &&
	       mp[MP_TCACHE_COUNT] <= UINT16_MAX &&
	       mp[MP_MAPPED_BYTES] <= mp[MP_MAX_MAPPED_BYTES] && mp[MP_MAPPED_BYTES] % PAGE == 0 &&
	       (mappings(mp, mp_counts[0]) >= 0 || mappings(mp, mp_counts[1]) >= 0);
}

ptrdiff_t scry_glibc_counters(const uint64_t *data, size_t words)
{
	ptrdiff_t found = -1;

	for (size_t i = 5; i + 4 < words; i++) {
		if (!is_mp(data + i))
			continue;
		if (found >= 0)
			return -1;
		found = (ptrdiff_t)i;
	}
	return found;
}

/*
 * The chunk in the mapping of `size` bytes at `at`: at its beginning, or, when memory of a larger
 * alignment was asked for, further on; then it says by how much.
 */
static uint64_t chunk_in(const struct scry_mem *mem, uint64_t at, uint64_t size)
{
	for (uint64_t align = 32; align < size; align *= 2) {
		uint64_t chunk = ((at + 16 + align - 1) & ~(align - 1)) - 16, head[2];

		if (chunk - at < CHUNK_MIN)
			chunk += align;
		if (chunk - at < size && scry_mem_read(mem, chunk, head, sizeof(head)) == 0 &&
		    head[0] == chunk - at && head[1] == ((size - head[0]) | CHUNK_MAPPED))
			return chunk;
	}
	return at;
}

/* Is this the head of a mapped chunk, with `room` bytes to the end of the mapping? */
static uint64_t mapped_size(const uint64_t head[2], uint64_t room)
{
	uint64_t size = head[1] & ~(uint64_t)CHUNK_FLAGS;

	return head[0] == 0 && (head[1] & CHUNK_FLAGS) == CHUNK_MAPPED && size % PAGE == 0 &&
			       size <= room
		       ? size
		       : 0;
}

static int found(struct scry_glibc_heap *h, uint64_t at, uint64_t size)
{
	uint64_t chunk = chunk_in(h->window.mem, at, size);

	h->ret->mapped_found++;
	h->ret->mapped_found_bytes += size;
	return scry_glibc_add(h, chunk + 16, size - (chunk - at) - 16, 0);
}

/* Blocks in one anonymous mapping. */
static int look_through(struct scry_glibc_heap *h, const struct scry_map_entry *m, uint64_t *pages)
{
	uint64_t heads[SCRY_MEM_HEADS][2], at = m->start;
	int r = 0;

	while (at < m->end && *pages && r == 0 && scry_glibc_in_time(h) &&
	       h->ret->mapped_found_bytes < h->ret->mapped_bytes) {
		uint64_t left = (m->end - at) / PAGE, next = at;
		ssize_t n = scry_mem_page_heads(
			h->window.mem, at, left < SCRY_MEM_HEADS ? left : SCRY_MEM_HEADS, heads);

		for (ssize_t i = 0; i < n && r == 0 && *pages; i++) {
			uint64_t here = at + (uint64_t)i * PAGE, size;

			if (here < next) /* inside the chunk that was found last */
				continue;
			size = mapped_size(heads[i], m->end - here);
			next = here + (size ? size : PAGE);
			if (size)
				r = found(h, here, size);
			else
				(*pages)--;
		}
		if (n <= 0)
			break;
		at = next > at + (uint64_t)n * PAGE ? next : at + (uint64_t)n * PAGE;
	}
	return r;
}

int scry_glibc_mapped(struct scry_glibc_heap *h, const uint64_t *data, size_t words)
{
	struct scry_glibc_arenas *ret = h->ret;
	const size_t count = ret->count;
	const uint64_t bytes = ret->bytes;
	ptrdiff_t mp = scry_glibc_counters(data, words);
	uint64_t pages = PAGES_IN_VAIN;
	int r = 0;

	if (mp < 0)
		return 0;
	ret->mapped =
		(uint64_t)mappings(data + mp, mp_counts[mappings(data + mp, mp_counts[0]) < 0]);
	ret->mapped_bytes = data[mp + MP_MAPPED_BYTES];
	for (size_t i = 0; i < h->maps->count && r == 0; i++) {
		const struct scry_map_entry *m = &h->maps->entries[i];

		if (m->r && m->w && !m->shared && !m->inode && m->path[0] != '[')
			r = look_through(h, m, &pages);
	}
	if (ret->mapped_found <= ret->mapped && ret->mapped_found_bytes <= ret->mapped_bytes)
		return r;
	ret->count = count;
	ret->bytes = bytes;
	ret->mapped_found = ret->mapped_found_bytes = 0;
	return r;
}
