/*
 * Stacks of callers: the agent's nodes -> frames by content, a tree that grows with the program and
 * not with its age.
 */
#ifndef SCRY_NAME_STACKS_H
#define SCRY_NAME_STACKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/intern.h"
#include "rec/writer.h"
#include "wire/ruby_ring.h"

struct scry_stack_frame {     /* hashed as bytes: no padding */
	uint32_t parent;      /* frame number, 0: the outermost */
	uint32_t path, label; /* ids in the caller's table of names */
	uint32_t line;	/* NATIVE: of a function without a symbol, where it begins in its object */
	uint32_t flags; /* SCRY_STACK_* */
};

struct scry_stacks {
	struct scry_intern frames;	  /* struct scry_stack_frame -> number, from 1 */
	uint32_t nodes[SCRY_STACK_NODES]; /* what the agent's nodes mean now; 0: nothing */
	uint32_t *written;		  /* STACK ids of frames by number; 0: not written */
	size_t written_cap;
};

void scry_stacks_init(struct scry_stacks *s);
void scry_stacks_done(struct scry_stacks *s);

/* A NODE record of the ring: node `node` means this frame, whose `parent` is the number of a node.
 */
void scry_stacks_define(struct scry_stacks *s, uint32_t node, struct scry_stack_frame frame);

/* The number of a frame whose parent is a frame number, not a node. 0 at the limit. */
uint32_t scry_stacks_add(struct scry_stacks *s, const struct scry_stack_frame *frame);
/* Frame `number` as it was added. 0, or -ENOENT. */
int scry_stacks_frame(const struct scry_stacks *s, uint32_t number, struct scry_stack_frame *ret);

/*
 * The STACK id of frame `frame`, writing it and its parents where they are new. `names` turns
 * frame.path and frame.label into text. 0: no frame, or it was not written.
 */
uint32_t scry_stacks_write(struct scry_stacks *s, uint32_t frame, const struct scry_intern *names,
			   struct scry_writer *w);

#endif
