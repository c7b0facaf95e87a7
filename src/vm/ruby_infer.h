/*
 * Learning the layout from the calibration child; private to src/vm.
 *
 * `child` is a half-filled scry_ruby of the calibration child: its layout is completed step by
 * step, and each step may use what the earlier ones learned, by the same readers that later work on
 * the target. Each step tries all places and demands exactly one that explains all the facts.
 */
#ifndef SCRY_VM_RUBY_INFER_H
#define SCRY_VM_RUBY_INFER_H

#include <stdbool.h>

#include "vm/ruby.h"
#include "vm/ruby_calib.h"
#include "vm/ruby_iseq.h"
#include "vm/ruby_still.h"
#include "vm/ruby_value.h"

#define SCRY_INFER_PIECES 128

/* A piece of code that the child reported. */
struct scry_infer_piece {
	const struct scry_fact *fact; /* "iseq"; its "insn" facts follow */
	size_t insn_count;
	uint64_t wrapper, iseq, body, encoded;
	uint32_t size, first_line;
	char label[64], path[64];
};

/* A thread that the child reported: its VALUE, its th, and the facts of its frames that follow.
 */
struct scry_infer_thread {
	const struct scry_fact *fact;
	size_t frame_count;
	uint64_t value, th, ec;
	uint32_t tid; /* 0: unknown */
};

#define SCRY_INFER_THREADS 16

struct scry_infer {
	const struct scry_calib *calib;
	struct scry_still *still;
	struct scry_ruby *child;  /* mem reads through `still` */
	struct scry_ruby *target; /* gets the checks */
	struct scry_infer_piece pieces[SCRY_INFER_PIECES];
	size_t piece_count;
	struct scry_infer_thread threads[SCRY_INFER_THREADS];
	size_t thread_count; /* without main and other ractors' */
	struct scry_infer_thread main,
		other; /* other: of a second ractor, value 0 when there is none */
	uint64_t ractor, other_ractor, vm;
	uint32_t data_offset;	     /* of the pointer in a T_DATA */
	const char *words_name[512]; /* instruction names, and their handler words */
	uint64_t words[512];
	size_t word_count;
};

/* Steps, in this order. 0, or -ENOTSUP with a sentence that names the item. */
int scry_infer_strings(struct scry_infer *infer);
int scry_infer_arrays(struct scry_infer *infer);
int scry_infer_slots(struct scry_infer *infer);
int scry_infer_pages(struct scry_infer *infer);
int scry_infer_pieces(struct scry_infer *infer);
int scry_infer_code(struct scry_infer *infer);
int scry_infer_lines(struct scry_infer *infer);
int scry_infer_threads(struct scry_infer *infer);
int scry_infer_frames(struct scry_infer *infer);
int scry_infer_vm(struct scry_infer *infer);
int scry_infer_tids(struct scry_infer *infer);
int scry_infer_locks(struct scry_infer *infer); /* 0 always: what is not known says so */
int scry_infer_methods(struct scry_infer *infer);
int scry_infer_owners(struct scry_infer *infer); /* after classes */
int scry_infer_classes(struct scry_infer *infer);
int scry_infer_shapes(struct scry_infer *infer); /* part of it: names as ivars placed by shapes */
int scry_infer_allocators(struct scry_infer *infer);
int scry_infer_trace(struct scry_infer *infer);
/* Sizes: 0 always; a type that is not learned stays unknown, and its row says so. */
int scry_infer_sizes(struct scry_infer *infer);

/* Is mapping `i` the module's data: the file's writable part, or the anonymous rest (bss) right
 * after it?
 */
bool scry_infer_is_data(const struct scry_ruby *ruby, size_t i);

/* Reads a word of the child. */
static inline bool scry_infer_word(struct scry_infer *infer, uint64_t addr, uint64_t *ret)
{
	return scry_still_word(infer->still, addr, ret);
}
/* Is VALUE `value` a String with this text? */
bool scry_infer_is_string(struct scry_infer *infer, uint64_t value, const char *text);

/* Counts candidates: remembers the first, so that "exactly one" can be demanded. */
struct scry_pick {
	uint64_t value;
	unsigned int hits;
	int parts; /* value holds 2 offsets (upper, lower half) or 3 (upper half, two quarters) */
};
static inline void scry_pick_add(struct scry_pick *pick, uint64_t value)
{
	if (pick->hits && pick->value == value)
		return;
	if (pick->hits++ == 0)
		pick->value = value;
}

/* Writes a check row; returns 0 when hits is 1, else -ENOTSUP with the sentence. `fmt` is the
 * proof. */
int scry_infer_item(struct scry_infer *infer, const char *item, const struct scry_pick *pick,
		    const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* The same for what may be missing: the row then says `without`, and what that means. Returns
 * whether it is known. */
bool scry_infer_optional(struct scry_infer *infer, const char *item, const struct scry_pick *pick,
			 const char *proof, const char *without);

/* Compares what was learned with debug information and decoded functions; adds to the rows of
 * `rows`. 0, or -ENOTSUP with a sentence that has both values. */
int scry_ruby_cross_check(struct scry_ruby *ruby, struct scry_ruby *rows);

/* Finds the Ruby module of learn->child: maps, elf, bias, module. 0 or -errno with a sentence. */
int scry_infer_module(struct scry_infer *infer);
/* All steps and the validator, on a child whose module is known. The layout is in learn->child.
 * Works on a saved image (pid 0) as on a process. */
int scry_infer_all(struct scry_infer *infer);

/* Infers everything for `target` into target->layout. */
int scry_ruby_infer(struct scry_ruby *target, const struct scry_proc *proc);

#endif
