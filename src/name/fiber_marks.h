/*
 * One look through the private memory that a process may write: where stacks are that the kernel
 * does not know of, and marks of contexts that wait on them.
 *
 *   ucontext_t     its pointer to floating-point state leads into itself (glibc, ucontext_t)
 *   control words  MXCSR and x87 control word as programs have them, 56 or 64 bytes below an
 *                  address of code: what Boost.Context leaves at the lowest live address of a stack
 *   threads        a descriptor of glibc's names itself twice (struct pthread, tcbhead_t): its
 *                  mapping is a thread's own stack, or keeps one
 *   ecs            execution contexts that name one of a Ruby's threads
 *   registries     libscryfiber's (fiber/registry.h), by its magic
 *
 * Marks are found in live and in dead memory alike: each is a guess, for the caller to judge. An
 * *area* is a piece of anonymous memory between guards, or a whole mapping.
 *
 * Only pages that are in memory are read, and no thread is stopped.
 */
#ifndef SCRY_NAME_FIBER_MARKS_H
#define SCRY_NAME_FIBER_MARKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "name/fiber_budget.h"
#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/pages.h"

#define SCRY_FIBER_REGISTRY_MAGIC 0x7265626966797263ull /* fiber/registry.h: "cryfiber" */
#define SCRY_FIBER_MARKS_MAX (4u << 20)			/* of each kind */
#define SCRY_FIBER_THREADS_MAX (1u << 17)		/* of threads' descriptors */

struct scry_fiber_area {
	uint64_t low, top;
	uint64_t guard_bytes;	  /* below it; 0: none */
	uint64_t lowest, highest; /* of its pages with contents, [lowest, highest); 0: none has */
	uint64_t there_bytes;	  /* of these, in memory */
	bool is_thread;		  /* a thread's own stack, or kept for one */
	bool is_taken;		  /* the caller's: a fiber's is in it */
	bool has_changed;	  /* the caller's: marks in it were gone when they were judged */
};

struct scry_fiber_list {
	uint64_t *at; /* ascending */
	size_t count, room;
};

struct scry_fiber_marks {
	const struct scry_maps *maps; /* borrowed, as long as the marks */
	struct scry_fiber_list contexts, blocks, selves, ecs, registries;
	struct scry_fiber_area *areas; /* ascending */
	size_t area_count, area_room;
	uint64_t read_bytes, swapped_bytes; /* searched; left where they are */
	uint64_t unread_bytes;		    /* were gone when they were read */
	uint64_t lost; /* marks and areas beyond the limits, or without memory */
};

struct scry_fiber_look { /* what to look through; all borrowed */
	const struct scry_maps *maps;
	const struct scry_mem *mem;
	const struct scry_pages *pages;
	const uint64_t *threads; /* Ruby's, ascending */
	size_t thread_count;
	uint32_t ec_thread; /* in an execution context: the thread's address */
	struct scry_fiber_budget *budget;
};

/* 0 or -errno with a sentence. `ret` is to be freed in any case. */
int scry_fiber_marks_look(const struct scry_fiber_look *look, struct scry_fiber_marks *ret);
void scry_fiber_marks_done(struct scry_fiber_marks *m);

/* The area that holds `address`; NULL: none. */
struct scry_fiber_area *scry_fiber_area_at(const struct scry_fiber_marks *m, uint64_t address);

/* The same, where a guard is part of the area above it. */
struct scry_fiber_area *scry_fiber_area_with_guard(const struct scry_fiber_marks *m,
						   uint64_t address);

/* Is it nothing but one stack, by its guard? Guarded are arenas of malloc, too, by what they have
 * reserved: these begin at multiples of 64 MiB. */
bool scry_fiber_has_own_area(const struct scry_fiber_area *area);

/* Do these eight bytes look like MXCSR and x87 control word? */
bool scry_fiber_is_control(uint64_t word);

#endif
