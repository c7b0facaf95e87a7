/*
 * Chunks that glibc keeps for the next call: they look used. See glibc_arenas.h.
 *
 * Since 2.32 a link is stored as (its own address >> 12) ^ the next one (PROTECT_PTR). Which way it
 * is, the first tcache shows which lists end the one way only. The lowest bit of a row's size marks
 * it as cached: sizes are 8 more than a multiple of 16.
 */
#include "name/glibc_heap.h"

#include <sys/types.h>

#include <errno.h>
#include <stdbool.h>

#include "base/bisect.h"

#define CANDIDATES_MAX 65536u
#define CACHED 1u

/* struct tcache_perthread_struct: counts of 2 bytes (1 before 2.30), then lists of memory. */
#define TCACHE_CHUNK 0x290u
#define TCACHE_CHUNK_OLD 0x250u

int scry_glibc_candidate(struct scry_glibc_heap *h, uint64_t chunk, uint64_t size)
{
	const unsigned int bits = size == TCACHE_CHUNK ? 16 : 8;
	struct scry_glibc_candidate s = {.chunk = chunk};
	bool has_some = false;

	if (size != TCACHE_CHUNK && size != TCACHE_CHUNK_OLD)
		return 0;
	for (unsigned int i = 0; i < TCACHE_LISTS; i++) {
		uint64_t counts, list;

		if (scry_glibc_word(&h->window, chunk + 16 + i * bits / 64 * 8, &counts) < 0 ||
		    scry_glibc_word(&h->window, chunk + 16 + TCACHE_LISTS * bits / 8 + 8 * i,
				    &list) < 0)
			return 0;
		s.counts[i] = (uint16_t)(counts >> i * bits % 64 & ((1u << bits) - 1));
		s.lists[i] = list;
		if (!s.counts[i] != !list || list % 16)
			return 0;
		has_some |= list != 0;
	}
	if (!has_some || h->candidate_count == CANDIDATES_MAX)
		return 0;
	if (scry_glibc_room((void **)&h->candidates, h->candidate_count, &h->candidate_room,
			    sizeof(s)) < 0)
		return -ENOMEM;
	h->candidates[h->candidate_count++] = s;
	return 0;
}

/* The row of a block, -1: there is none. */
static ssize_t row_of(const struct scry_glibc_heap *h, uint64_t address)
{
	const struct scry_glibc_block *rows = h->ret->rows;

	for (size_t i = 0; i < h->region_count; i++) {
		size_t low = h->regions[i].first, high = h->regions[i].end;

		if (low == high || address < rows[low].address || address > rows[high - 1].address)
			continue;
		low += scry_bisect(high - low, row, rows[low + row].address < address);
		return rows[low].address == address ? (ssize_t)low : -1;
	}
	return -1;
}

struct list {
	uint64_t first; /* memory; 0: it is empty */
	uint64_t head;	/* what its links point to is this much before memory */
	uint64_t size;	/* of its chunks; 0: that of the first */
	uint64_t count; /* UINT64_MAX: not known */
	bool is_protected;
};

/* How many blocks it leads through to its end, all of its size and in no other list; -1: it is not
 * a list. Marks them when `marks`; a list that comes back to itself ends there. */
static int64_t follow(struct scry_glibc_heap *h, struct list list, bool marks)
{
	uint64_t at = list.first, n;

	for (n = 0; at && n < list.count && n <= h->ret->count; n++) {
		ssize_t row = row_of(h, at);
		struct scry_glibc_block *b;

		if (row < 0) /* perhaps in a part of the heap that was not found */
			return h->ret->broken ? (int64_t)n : -1;
		b = &h->ret->rows[row];
		list.size = list.size ? list.size : b->usable + 8;
		if (b->usable & CACHED || b->usable + 8 != list.size)
			return -1;
		b->usable |= marks ? CACHED : 0;
		at = list.is_protected ? at >> 12 ^ h->links[row] : h->links[row];
		at += at ? list.head : 0;
	}
	return at == 0 && (list.count == UINT64_MAX || n == list.count) ? (int64_t)n : -1;
}

/* Are all of its lists lists, with blocks in them? */
static bool follow_all(struct scry_glibc_heap *h, const struct scry_glibc_candidate *s,
		       bool is_protected, bool marks)
{
	int64_t all = 0;

	for (unsigned int i = 0; i < TCACHE_LISTS; i++) {
		int64_t n = follow(h,
				   (struct list){.first = s->lists[i],
						 .size = CHUNK_MIN + 16 * i,
						 .count = s->counts[i],
						 .is_protected = is_protected},
				   marks);

		if (n < 0)
			return false;
		all += n;
	}
	return all > 0;
}

/* Returns how links are stored: 1 protected, 0 plain, -1 not known. */
static int drop_tcaches(struct scry_glibc_heap *h)
{
	int is_protected = -1;

	for (size_t i = 0; i < h->candidate_count; i++)
		for (int way = 1; way >= 0; way--) {
			const struct scry_glibc_candidate *s = &h->candidates[i];
			ssize_t row = row_of(h, s->chunk + 16);

			if (row < 0 || (is_protected >= 0 && is_protected != way) ||
			    !follow_all(h, s, way, false))
				continue;
			follow_all(h, s, way, true);
			h->ret->rows[row].usable |= CACHED;
			is_protected = way;
			h->ret->tcaches++;
			break;
		}
	return is_protected;
}

void scry_glibc_drop_cached(struct scry_glibc_heap *h)
{
	struct scry_glibc_arenas *r = h->ret;
	int is_protected = drop_tcaches(h);
	size_t kept = 0;

	for (size_t i = 0; i < h->fast_count; i++)
		for (int way = 1; way >= 0; way--) {
			struct list list = {.first = h->fast[i] + 16,
					    .head = 16,
					    .count = UINT64_MAX,
					    .is_protected = way};

			if (is_protected == way ||
			    (is_protected < 0 && follow(h, list, false) >= 0)) {
				follow(h, list, true);
				break;
			}
		}
	for (size_t i = 0; i < r->count; i++) {
		if (!(r->rows[i].usable & CACHED)) {
			r->rows[kept++] = r->rows[i];
			continue;
		}
		r->bytes -= r->rows[i].usable & ~(uint64_t)CACHED;
		r->cached_bytes += r->rows[i].usable & ~(uint64_t)CACHED;
	}
	r->cached = r->count - kept - r->tcaches;
	r->count = kept;
}
