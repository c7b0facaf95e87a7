/*
 * What the finders of scry_fibers_open are given, and how they say what they have found: one for
 * each kind, called in this order, as each leaves out what one before has taken.
 */
#ifndef SCRY_NAME_FIBER_FINDERS_H
#define SCRY_NAME_FIBER_FINDERS_H

#include "name/fibers.h"

struct scry_fiber_task { /* a thread, as it was seen before the finders ran */
	int32_t tid;
	bool is_running; /* where it is is not known */
	bool is_midway;	 /* it was stopped in its own code, not in a system call */
	uint64_t sp;	 /* 0: not known */
	struct scry_unwind_state at;
	uint64_t switches; /* on and off processors, so far */
};

struct scry_fiber_stand { /* a place of a stack where a thread is */
	uint64_t sp;
	const struct scry_fiber_task *task;
	bool is_interrupted; /* by a signal, whose handler it is in: perhaps on another stack */
};

struct scry_fiber_add {
	enum scry_fiber_kind kind;
	enum scry_fiber_state state;
	struct scry_fiber_bounds bounds; /* low 0: not known */
	/* where its machine stack lies within them, where a part is something else: of a Ruby's.
	 * 0, 0: all of it */
	struct scry_fiber_bounds machine;
	const char *name, *word; /* NULL: none */
	int32_t tid;
	size_t frame_count; /* of f->frames */
	bool is_cut;
};
/* Takes it into its group. What there is no memory for is counted. */
void scry_fibers_add(struct scry_fibers *f, const struct scry_fiber_add *add);

/* The walker's frames as f->frames: their count. */
size_t scry_fibers_take_walk(struct scry_fibers *f);

/* A text of the target's, at most 63 bytes, into `ret`; "" when it cannot be read. */
void scry_fibers_text(const struct scry_fibers *f, uint64_t address, char ret[64]);

/* Is a fiber already known whose stack has this address? Marks the area that it lies in. */
bool scry_fibers_claim(struct scry_fibers *f, uint64_t address);

void scry_fibers_find_registries(struct scry_fibers *f);
void scry_fibers_find_ruby(struct scry_fibers *f);
void scry_fibers_find_contexts(struct scry_fibers *f);
void scry_fibers_find_blocks(struct scry_fibers *f);

/* Does a thread wait on this stack? Then the fiber runs: into add->state, add->tid and its frames.
 */
bool scry_fibers_take_running(struct scry_fibers *f, struct scry_fiber_add *add);

/* Did a thread run since the look began, as far as is known now? */
bool scry_fibers_has_run(struct scry_fibers *f);

#endif
