/*
 * How glibc's malloc lies in memory (malloc/malloc.c, malloc/arena.c; 2.27 to 2.41, x86_64), and
 * a window through which it is read. Shared by the files of name/glibc_arenas.h.
 */
#ifndef SCRY_NAME_GLIBC_HEAP_H
#define SCRY_NAME_GLIBC_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "name/glibc_arenas.h"

/* struct malloc_state, in words */
#define ARENA_FASTBINS 2
#define ARENA_FASTBIN_COUNT 10
#define ARENA_TOP 12
#define ARENA_BINS 14 /* bin i, from 1: words 2i - 2 and 2i - 1 of these; its chunk is 2 before */
#define ARENA_BIN_COUNT 127
#define ARENA_NEXT 270
#define ARENA_SYSTEM 273 /* bytes that it has from the kernel */
#define ARENA_WORDS 275

/* A chunk: size of the one before (when that is free), its own size | flags, then memory. */
#define CHUNK_PREV_USED 1u
#define CHUNK_MAPPED 2u
#define CHUNK_FLAGS 7u
#define CHUNK_MIN 32u
#define CHUNK_FENCE 16u /* is at the end of a region: no block */

#define WINDOW_BYTES (256u << 10)
#define WINDOW_LEAST 4096u

struct scry_glibc_window {
	const struct scry_mem *mem;
	uint64_t start, end; /* read, and what is there of it */
	uint64_t reads;
	uint64_t words[WINDOW_BYTES / 8];
};

#define TCACHE_LISTS 64

struct scry_glibc_candidate { /* a chunk that may be a tcache: what it says */
	uint64_t chunk;
	uint16_t counts[TCACHE_LISTS];
	uint64_t lists[TCACHE_LISTS];
};

struct scry_glibc_region { /* rows, ascending by address */
	size_t first, end;
};

struct scry_glibc_heap {
	struct scry_glibc_window window;
	const struct scry_maps *maps;
	struct scry_glibc_arenas *ret;
	uint64_t deadline_ns;
	uint64_t main_arena;
	uint64_t *links; /* of each row, its first word: a link when it is cached */
	uint64_t *fast;	 /* first chunks of fastbins */
	struct scry_glibc_candidate *candidates;
	struct scry_glibc_region *regions;
	size_t fast_count, fast_room, candidate_count, candidate_room, region_count, region_room;
};

/* The word at `address`, a multiple of 8. 0 or -errno: it is not there. */
int scry_glibc_word(struct scry_glibc_window *w, uint64_t address, uint64_t *ret);

/* False once the deadline has passed, and ever after. */
bool scry_glibc_in_time(struct scry_glibc_heap *h);

/* Adds a block that looks used. 0, -ENOMEM, -ENOSPC. */
int scry_glibc_add(struct scry_glibc_heap *h, uint64_t address, uint64_t usable, uint64_t link);
/* Room for one more of `size` bytes in a list. 0 or -ENOMEM. */
int scry_glibc_room(void **list, size_t count, size_t *room, size_t size);

/* glibc_caches.c: notes a chunk that may be a tcache. 0 or -ENOMEM. */
int scry_glibc_candidate(struct scry_glibc_heap *h, uint64_t chunk, uint64_t size);
/* Takes rows out that are cached: reads what was noted, nothing of the target. */
void scry_glibc_drop_cached(struct scry_glibc_heap *h);
/* glibc_mapped.c: `data` are the words of libc's data. Adds blocks that are mappings. 0 or -errno.
 */
int scry_glibc_mapped(struct scry_glibc_heap *h, const uint64_t *data, size_t words);
/* Of sbrk_base there: bytes of blocks that are mappings. */
#define MP_MAPPED_BYTES (-2)
/* Where libc keeps its counters, an index into `data`: that of sbrk_base; -1: not found. */
ptrdiff_t scry_glibc_counters(const uint64_t *data, size_t words);

#endif
