/*
 * Within the library: how pools lie in memory. Tools outside find it by registry.h.
 *
 * Invariants: pools are never unmapped, only used again, so that a signal handler may walk them at
 * any time. pool->slabs[i] is published after the slab's head is filled in and withdrawn before the
 * slab is unmapped.
 */
#ifndef SCRY_FIBER_STACK_H
#define SCRY_FIBER_STACK_H

#include "fiber/scry_stack.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define SCRY_SLAB_SLOTS 1024
#define SCRY_POOL_SLABS 4096
#define SCRY_POOLS 256
#define SCRY_ENTRIES 256 /* entry functions that are measured apart */
#define SCRY_COLOURS 32
#define SCRY_COLOUR_BYTES 64
#define SCRY_DIRTY_UNKNOWN UINT32_MAX

/* What is known of one stack. */
struct scry_stack_slot {
	uint32_t dirty_pages; /* from its end down, that earlier users may have touched */
	uint32_t is_used;
	const char *name;
	const void *entry;
};

/* At the low end of each slab, within its mapping; the guard of the first stack follows. */
struct scry_stack_slab {
	uint32_t slots_open;		/* have a guard and are accessible */
	uint32_t slots_fresh;		/* of these, were handed out once */
	uint32_t mapped_guards;		/* and these have guards by mprotect */
	uint32_t free[SCRY_SLAB_SLOTS]; /* a part of the pool's array of free ids */
	struct scry_stack_slot slots[SCRY_SLAB_SLOTS];
};

#define SCRY_SLAB_EXTRA ((sizeof(struct scry_stack_slab) + 63) & ~(size_t)63)

enum scry_guard_kind {
	SCRY_GUARD_UNKNOWN,
	SCRY_GUARD_MADVISE,
	SCRY_GUARD_MPROTECT,
};

struct scry_advice {
	const void *entry;
	uint64_t count;
	size_t most_bytes;
};

struct scry_stack_pool {
	_Atomic uint32_t is_live;
	bool is_forking;		  /* its lock is held for a fork */
	uint32_t slab_slots;		  /* per slab; a power of two */
	size_t size, guard, stride, head; /* bytes; stride = guard + size */
	size_t extra; /* bytes per stack for its user, in the head behind struct scry_stack_slab */
	_Atomic(struct scry_stack_slab *) slabs[SCRY_POOL_SLABS];
	_Atomic uint32_t slab_count;
	uint32_t batch;		/* stacks that are opened at once */
	uint32_t free_count;	/* ids in the array of free ones */
	uint32_t free_least;	/* the fewest since the last tick */
	uint32_t free_released; /* at the bottom of the array: without memory */
	size_t used;
	uint32_t slab_kind[SCRY_POOL_SLABS]; /* enum scry_guard_kind */
	struct scry_stack_attr attr;
	pthread_mutex_t lock;
	struct scry_advice advice[SCRY_ENTRIES];
	uint64_t advice_lost; /* measured, but of more entries than fit */
	bool is_note_written;
	char note[240];
};

/* Where a slot of a slab begins: its guard. */
static inline char *scry_slot_guard(const struct scry_stack_pool *pool,
				    const struct scry_stack_slab *slab, uint32_t slot)
{
	return (char *)slab + pool->head + slot * pool->stride;
}

/* A slot by the stack's id. */
static inline struct scry_stack_slot *scry_slot_of(struct scry_stack_pool *pool, uint32_t id)
{
	struct scry_stack_slab *slab =
		atomic_load_explicit(&pool->slabs[id / pool->slab_slots], memory_order_relaxed);

	return &slab->slots[id % pool->slab_slots];
}

/* What the stack's user has in the head of its slab: pool->extra bytes, side by side with those of
 * its neighbours. */
static inline void *scry_slot_extra(struct scry_stack_pool *pool, uint32_t id)
{
	struct scry_stack_slab *slab =
		atomic_load_explicit(&pool->slabs[id / pool->slab_slots], memory_order_relaxed);

	return (char *)slab + SCRY_SLAB_EXTRA + id % pool->slab_slots * pool->extra;
}

/* scry_stack_pool_new, with room for the user of each stack: a multiple of 64 bytes, aligned so. */
int scry_stack_pool_make(const struct scry_stack_attr *attr, size_t extra,
			 struct scry_stack_pool **ret_pool);

/* Pools that live or lived, for the handler: NULL past the last. */
struct scry_stack_pool *scry_stack_pools(uint32_t index);

/* Held while pools are made, and over a fork: a child may make some, too. */
extern pthread_mutex_t scry_stack_pools_lock;
/* From now on all locks of pools and reports are taken around a fork, so that a child has them
 * anew. */
void scry_stack_handle_fork(void);
void scry_overflow_before_fork(void);
void scry_overflow_after_fork(bool is_child);

/* The default size: SCRY_STACK_SIZE, or 0. */
size_t scry_stack_environment(void);

/* Gives `count` stacks of a slab from `first` on their guards and opens them; returns how many have
 * one. */
uint32_t scry_guard_open(struct scry_stack_pool *pool, uint32_t slab_index, uint32_t first,
			 uint32_t count);

/* Maps a slab: NULL and errno. Its kind of guard is probed on it. */
struct scry_stack_slab *scry_guard_map_slab(struct scry_stack_pool *pool, uint32_t slab_index);
void scry_guard_unmap_slab(struct scry_stack_pool *pool, uint32_t slab_index);

/* Gives back the memory of free stacks, from `first` to `end` of the array of free ones. */
void scry_guard_release(struct scry_stack_pool *pool, uint32_t first, uint32_t end);

/* At put, in a measured pool: takes the mark into the advice and makes the stack clean. */
void scry_use_note(struct scry_stack_pool *pool, const struct scry_stack *stack);

/* The id that lies at a place of the array of free ones. */
static inline uint32_t *scry_free_id(struct scry_stack_pool *pool, uint32_t place)
{
	struct scry_stack_slab *slab =
		atomic_load_explicit(&pool->slabs[place / pool->slab_slots], memory_order_relaxed);

	return &slab->free[place % pool->slab_slots];
}

#endif
