/*
 * From the registers of a suspended context to its frames: by CFI up to where the context was
 * entered, or not at all. Known entries: a frame that the unwind tables or a return address of 0
 * mark as the outermost; glibc's __start_context; what Boost's make_fcontext pushes.
 *
 * Registers and stacks are foreign: any content gives a verdict, within limits.
 */
#ifndef SCRY_NAME_FIBER_WALK_H
#define SCRY_NAME_FIBER_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/unwinder.h"

enum scry_fiber_site {				/* what the instruction before an address calls */
		       SCRY_FIBER_SITE_UNKNOWN, /* by a register: it is not known */
		       SCRY_FIBER_SITE_NONE,	/* it is not a call */
		       SCRY_FIBER_SITE_OTHER,	/* not a switch that stores control words */
		       SCRY_FIBER_SITE_JUMP,	/* Boost's jump_fcontext, or the like */
		       SCRY_FIBER_SITE_ONTOP,	/* its ontop_fcontext: the way out of a context that
						   has ended */
};

enum scry_fiber_entry {
	SCRY_FIBER_ENTRY_NONE,	 /* the walk did not get there */
	SCRY_FIBER_ENTRY_TABLES, /* unwind tables, or a return address of 0 */
	SCRY_FIBER_ENTRY_UCONTEXT,
	SCRY_FIBER_ENTRY_UCONTEXT_LEFT, /* its function has returned: it has ended */
	SCRY_FIBER_ENTRY_BOOST,
	SCRY_FIBER_ENTRY_DEEP, /* more frames than a walk takes; all of them fit */
};

struct scry_fiber_walker {
	const struct scry_maps *maps;
	const struct scry_mem *mem;
	struct scry_unwinder *unwinder;
	struct scry_map codes; /* address -> what was found there */
	/* of the last walk, the newest first, without the entry's own code: */
	struct scry_native_frame frames[SCRY_UNWINDER_FRAMES_MAX];
	size_t count;
	size_t walked;	    /* the same with the entry's */
	uint64_t entry_sp;  /* at the entry; of a walk that got there */
	uint64_t window_at; /* of a stack, as it is after a walk */
	size_t window_size;
	uint8_t window[32768];
};

/* What is given is borrowed. */
void scry_fiber_walker_init(struct scry_fiber_walker *w, const struct scry_maps *maps,
			    const struct scry_mem *mem, struct scry_unwinder *unwinder);
void scry_fiber_walker_done(struct scry_fiber_walker *w);

struct scry_fiber_bounds { /* of a stack: [low, top) */
	uint64_t low, top;
};

/* Walks from `at`. Frames outside of the bounds are none. */
enum scry_fiber_entry scry_fiber_walk(struct scry_fiber_walker *w, struct scry_unwind_state at,
				      struct scry_fiber_bounds bounds);

/* Is what the last walk went by no longer there? A walk takes its time, and the registers that it
 * began with may be the same again after the stack has been another one. */
bool scry_fiber_has_changed(struct scry_fiber_walker *w);

/* What is called right before `pc`. */
enum scry_fiber_site scry_fiber_site(struct scry_fiber_walker *w, uint64_t pc);

/* Is it the code by which a context of Boost's that was never entered begins? */
bool scry_fiber_is_boost_begin(struct scry_fiber_walker *w, uint64_t pc);

/* Is it where the function of a ucontext returns to? */
bool scry_fiber_is_ucontext_entry(struct scry_fiber_walker *w, uint64_t pc);

/* Is it the address of code? */
bool scry_fiber_is_code(const struct scry_fiber_walker *w, uint64_t address);

#endif
