/*
 * One stack of two: control frames of a Ruby thread and its native frames, merged.
 *
 * The interpreter is one native function, vm_exec_core or what the compiler has put it into: the
 * function that the instructions' handlers are in. One activation of it runs the control frames
 * from one with the flag FINISH up to the next newer one with it (vm_core.h, VM_FRAME_FLAG_FINISH):
 * so both stacks are cut there, and the parts are laid over each other from the newest on. Within a
 * part native frames are above the control frames: C is called by Ruby. Where there are control
 * frames of C methods in it, the native frame of each is that whose function the method's
 * definition names; what is newer is its own, or was called by it.
 *
 * Nothing is guessed: where the counts do not agree it says so.
 */
#ifndef SCRY_NAME_MIXED_MERGE_H
#define SCRY_NAME_MIXED_MERGE_H

#include "sys/unwinder.h"
#include "vm/ruby_walk.h"

struct scry_woven {
	bool is_native;
	uint32_t at; /* index in the frames of its kind */
};

enum scry_mixed_merge {
	SCRY_MIXED_MERGE_EXACT,
	SCRY_MIXED_MERGE_APART, /* they do not fit, or are not known: native frames come first */
};

struct scry_mixed_merger { /* what does not change from stack to stack */
	const struct scry_ruby *ruby;
	uint64_t interpreter; /* entry of that function; 0: not known */
};

/* `u`: of the ruby's process. */
void scry_mixed_merger_init(struct scry_mixed_merger *w, const struct scry_ruby *ruby,
			    struct scry_unwinder *u);

struct scry_native_stack {
	const struct scry_native_frame *frames; /* the newest first */
	size_t count;
	enum scry_native_end end;
};

/*
 * Merges all frames of both, but the interpreter's own, which control frames stand for. ret has
 * room for walk->count + native->count. Returns how many there are.
 */
size_t scry_mixed_merge(const struct scry_mixed_merger *w, const struct scry_walk *walk,
			const struct scry_native_stack *native, struct scry_woven *ret,
			enum scry_mixed_merge *ret_how);

#endif
