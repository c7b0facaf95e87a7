/*
 * For debuggers and other tools outside: where all fibers are, in a process or its core, without
 * debug information. Everything is little-endian and naturally aligned; pointers are addresses of
 * the process. The symbol is scry_fiber_registry, which is exported.
 *
 * scheds[capacity] are schedulers or NULL. A scheduler's pools[classes] are pools or NULL. A pool's
 * slabs[slab_count] are slabs; its slab_slots stacks have each a fiber, fiber_bytes after the other
 * from slab + extra on. A fiber whose magic is right, whose sched is the scheduler, and whose
 * state's low byte is 1 (idle or running) to 5 (ended) is there; one with another sched was lost by
 * a fork: its stack stays in the child's pools. The one that runs on a thread is named by the word
 * at current_tls from that thread's FS base. Of others that did not end, sp leads to eight words:
 * control words, r15 to r12, rbx, rbp, and where it goes on.
 */
#ifndef SCRY_FIBER_REGISTRY_H
#define SCRY_FIBER_REGISTRY_H

#include <stdint.h>

#define SCRY_FIBER_REGISTRY_VERSION 3
#define SCRY_FIBER_MAGIC 0x7265626966797263ull /* "cryfiber" */

struct scry_fiber_registry {
	uint64_t magic;
	uint32_t version, capacity;
	void *scheds;
	int64_t current_tls; /* 0: no scheduler was opened yet */
	/* offsets in bytes, and counts */
	uint32_t sched_main, sched_tid, sched_pools, classes;
	uint32_t pool_slab_slots, pool_slab_count, pool_slabs, pool_size;
	uint32_t extra, fiber_bytes;
	uint32_t fiber_sp, fiber_state, fiber_name, fiber_entry, fiber_low, fiber_top, fiber_magic;
	uint32_t fiber_sched;
	uint32_t sched_is_lost, unused; /* a byte: its thread has ended, and nothing runs them */
};

#endif
