/*
 * scry_stack: stacks for fibers, coroutines and contexts of any library: mapped, guarded, pooled.
 *
 *     scry_stack_pool_new(&(struct scry_stack_attr){.size_bytes = 256 << 10}, &pool);
 *     scry_stack_watch();              // overflows are reported, in this thread
 *     scry_stack_get(pool, &stack);    // run on it, from stack.top down to stack.low
 *     scry_stack_put(pool, &stack);
 *
 *     | guard, 64 KiB | low ... usable ... top | up to 2 KiB, so that tops share no cache set |
 *
 * - Memory is private, readable and writable, never executable, never of huge pages. Up to 1,024
 *   stacks are one mapping.
 * - From Linux 6.13 on a guard is not a mapping of its own: a million stacks fit under
 *   vm.max_map_count. On older kernels, and in memory that the program locks (mlockall), each guard
 *   takes two mappings, and at most vm.max_map_count / 2 - 1,000 stacks are given out. That is
 *   written to report_fd when it is first known, and scry_stack_pool_note says it.
 * - mlockall after the first get returns 0, but most of a slab stays out of memory until it is
 *   touched: lock first. Stacks that are opened after it have guards of the second kind.
 * - A frame no larger than the guard cannot step over it; a larger one is caught in code that is
 *   built with -fstack-clash-protection.
 * - A system call that is given an address in a guard returns EFAULT: no signal, no report.
 * - Environment: SCRY_STACK_SIZE (512K, 1M) is the default size, and the least of any pool.
 *   SCRY_STACK_GUARD=mprotect makes guards the older way.
 * - fork: the child has copies of all stacks. Calls return 0 or -errno.
 */
#ifndef SCRY_STACK_H
#define SCRY_STACK_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

struct scry_stack_pool;

struct scry_stack {
	void *low;   /* the lowest usable byte */
	void *top;   /* one past the highest, aligned to 64 bytes */
	uint32_t id; /* within its pool */
};

/* An overflow, as the callback sees it. Set resume_ip and resume_sp and return 1 to go on there. */
struct scry_stack_overflow {
	int signal;
	const char *name; /* as given to scry_stack_name, or NULL */
	const void *entry;
	uint32_t id;
	size_t size_bytes;
	uintptr_t address, ip, sp;
	const char *function; /* "name" or "module+0x1234"; what ran when the guard was hit */
	size_t frame_bytes;   /* of that function; 0: not known */
	uintptr_t top;	      /* of the stack */
	uintptr_t resume_ip, resume_sp,
		resume_argument; /* the argument is passed as to a function */
};

/*
 * Runs in the signal handler: async-signal-safe calls only, and it has to return. Locks that the
 * overflowing code holds stay locked. 0: the program ends by the signal, as without a callback.
 */
typedef int scry_stack_overflow_fn(struct scry_stack_overflow *overflow, void *arg);

/* All zero is a good choice. */
struct scry_stack_attr {
	size_t size_bytes;  /* rounded up to a power of two, 16 KiB to 1 GiB; 0: 256 KiB */
	size_t guard_bytes; /* rounded up to pages, at most 1 GiB; 0: 64 KiB */
	int is_shared;	 /* threads may get and put at the same time; else one thread at a time */
	int is_measured; /* each put measures the stack, for scry_stack_advise: some 3 us */
	int report_fd;	 /* where overflows are reported; 0: standard error, -1: nowhere */
	scry_stack_overflow_fn *on_overflow;
	void *arg; /* of on_overflow */
};

/* How much of a stack was used, in pages from its top. */
struct scry_stack_use {
	size_t bytes;
	int is_at_most; /* an earlier user of the stack may have used as much */
};

/* attr may be NULL. -EINVAL: a size out of bounds; -EAGAIN: 256 pools exist. Free it with
 * scry_stack_pool_free. */
int scry_stack_pool_new(const struct scry_stack_attr *attr, struct scry_stack_pool **ret_pool);

/* Unmaps all stacks of the pool, those in use as well: nothing may run on one. NULL is legal. */
void scry_stack_pool_free(struct scry_stack_pool *pool);

/*
 * The stack that was put last, or a fresh one. -EAGAIN: the ceiling of mappings is reached,
 * -ENOMEM: no memory; scry_stack_pool_note says which knob to turn.
 */
int scry_stack_get(struct scry_stack_pool *pool, struct scry_stack *ret_stack);

/* The stack of the pool that an address lies in. -ENOENT: none. */
int scry_stack_find(struct scry_stack_pool *pool, const void *address,
		    struct scry_stack *ret_stack);

/* Gives a stack back, on which nothing may run any more; twice is an assertion that fails. Its
 * memory stays with the pool until it is idle. */
void scry_stack_put(struct scry_stack_pool *pool, const struct scry_stack *stack);

/* What a report calls the user of a stack, from get to put. The name is not copied; both may be
 * NULL. */
void scry_stack_name(struct scry_stack_pool *pool, const struct scry_stack *stack, const char *name,
		     const void *entry);

/*
 * Call it once in a while, as from an idle loop: the memory of stacks that were not needed since
 * the call before goes back to the kernel, in batches. Returns how many stacks that were. A
 * scheduler of scry_fiber does so itself.
 */
size_t scry_stack_pool_tick(struct scry_stack_pool *pool);

/* The high-water mark of a stack in use, by mincore: swapped-out pages are not seen. */
int scry_stack_measure(struct scry_stack_pool *pool, const struct scry_stack *stack,
		       struct scry_stack_use *ret_use);

/*
 * Prints, for each entry function of a measured pool, how many stacks were measured, the deepest
 * use, and the smallest size that is safe: the next power of two above half as much again.
 * -ENODATA: the pool is not measured, or nothing was put yet. */
int scry_stack_advise(struct scry_stack_pool *pool, FILE *out);

/* One sentence: how guards are made, the ceiling if there is one, or why the last get failed. Valid
 * until the next call on the pool. */
const char *scry_stack_pool_note(struct scry_stack_pool *pool);

/* The size of each stack, after rounding and environment; and how many are given out now. */
size_t scry_stack_pool_size(const struct scry_stack_pool *pool);
size_t scry_stack_pool_used(const struct scry_stack_pool *pool);

/*
 * Reports overflows of the calling thread from now on: installs handlers of SIGSEGV and SIGBUS for
 * the process (once) and a signal stack for this thread, unless it has one. Faults that are not an
 * overflow go to the handler that was there before. A handler that the program installs later
 * replaces this one: watch after it.
 */
int scry_stack_watch(void);

/* As often as scry_stack_watch: the last takes its signal stack away. Not by a fiber. */
void scry_stack_unwatch(void);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
