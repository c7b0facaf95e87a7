/*
 * The blocks that live in glibc's malloc, found from outside: for a recording that begins in
 * mid-life.
 *
 * Nothing is asked of symbols: main_arena is the one place in libc's data whose bins point to
 * themselves or to chunks that point back, whose `top` ends its heap; the other arenas hang in its
 * ring, their heaps in heap_info. Every chunk from a heap's first to its top is read by its size
 * (malloc/malloc.c and arena.c of glibc 2.27 to 2.41). Chunks in a thread's cache (tcache) and in
 * fastbins look used and are not: fastbins are followed; a tcache is a chunk of its size all of
 * whose lists are as long as it says. Large blocks that are mappings of their own are found among
 * the anonymous mappings, and compared with what libc counts.
 *
 * Only while all threads are held: sizes of chunks that change are not a chain. Hold them between
 * switching hooks on and letting them record, so that nothing comes between the two. A thread held
 * in the midst of a call may hold a heap that does not fit: such an arena is left out and counted.
 * Reads only. What is read is hostile: sizes and addresses are checked, loops and memory bounded.
 */
#ifndef SCRY_NAME_GLIBC_ARENAS_H
#define SCRY_NAME_GLIBC_ARENAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/maps.h"
#include "sys/mem.h"

#define SCRY_GLIBC_BLOCKS_MAX (1u << 27)

struct scry_glibc_block {
	uint64_t address, usable; /* as malloc returned it; malloc_usable_size, bytes */
};

struct scry_glibc_arenas {
	struct scry_glibc_block *rows; /* of one heap ascending; owned */
	size_t count, room;
	uint64_t bytes;		      /* usable, of all */
	struct scry_glibc_heap *heap; /* what settle needs */
	/* how well it went */
	bool is_late;		 /* the deadline passed: what was found until then is here */
	uint32_t arenas, broken; /* seen; of these, not read to their end */
	uint32_t tcaches; /* found; a thread that never freed a small block has an empty one, which
			     looks like a block */
	uint64_t cached, cached_bytes;	     /* chunks in them and in fastbins: free */
	uint64_t system_bytes, walked_bytes; /* of the arenas: as libc counts, as read */
	uint64_t mapped, mapped_bytes;	     /* blocks that are mappings, as libc counts: 0, 0 when
						its counters are not found ... */
	uint64_t mapped_found, mapped_found_bytes; /* ... and as found */
};

/*
 * While all are held. `maps` may be older than the hold. `deadline_ns` of CLOCK_MONOTONIC, 0: none:
 * how long the threads may be held. About 0.5 ms a MiB of heap. 0 (also when malloc was never
 * called: no rows), then settle; or with a sentence: -ENOTSUP: there is no glibc, or its heap is
 * not as known; -ENOMEM; -ENOSPC: too many; -ESRCH.
 */
int scry_glibc_arenas_read(const struct scry_mem *mem, const struct scry_maps *maps,
			   uint64_t deadline_ns, struct scry_glibc_arenas *ret);
/* Once they are released: takes out what is cached and so free. `arenas` must be where it was read
 * to. */
void scry_glibc_arenas_settle(struct scry_glibc_arenas *arenas);
void scry_glibc_arenas_done(struct scry_glibc_arenas *arenas);

/*
 * How much of the kernel's memory malloc holds, in blocks and between them: as libc counts. No
 * thread is held for it, so it may be looked for in vain.
 */
struct scry_glibc_held {
	uint64_t main_arena, mapped_bytes; /* where they are; 0: not found */
};
/* 0; -ENOTSUP, without a sentence: not found, as before the first call of malloc; or -ENOMEM. */
int scry_glibc_held_find(const struct scry_mem *mem, const struct scry_maps *maps,
			 struct scry_glibc_held *ret);
struct scry_glibc_holding {
	uint64_t bytes;	       /* of all arenas, and of blocks that are mappings */
	uint64_t thread_bytes; /* of these, in arenas but for the first */
	uint64_t arenas;
};
/* 0; -EFAULT: it is not as it was. */
int scry_glibc_held_read(const struct scry_mem *mem, const struct scry_glibc_held *held,
			 struct scry_glibc_holding *ret);

#endif
