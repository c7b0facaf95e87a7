/*
 * Stacks of callers: frames by content, a tree that grows with the program and not with its age.
 * The one tree for all stacks, and the one writer of STACK events.
 *
 * Frames are named by ids of the caller's table of names, or, native ones that are named later, by
 * an address, which the caller names when the frame is written.
 */
#ifndef SCRY_NAME_STACKS_H
#define SCRY_NAME_STACKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/intern.h"
#include "rec/writer.h"
#include "wire/ruby_ring.h"

#define SCRY_STACKS_MAX (1u << 20) /* frames; native stacks have more */

struct scry_stack_frame {     /* hashed as bytes: no padding */
	uint32_t parent;      /* frame number, 0: the outermost */
	uint32_t path, label; /* ids in the caller's table of names */
	uint32_t line;	/* NATIVE: of a function without a symbol, where it begins in its object */
	uint32_t flags; /* SCRY_STACK_* */
	uint32_t code;	/* number of its address; 0: it has its names */
};

struct scry_stack_code { /* what a frame that has a `code` is called */
	uint64_t address, offset;
	const char *module, *symbol; /* NULL: none */
};

struct scry_stacks {
	struct scry_intern frames; /* struct scry_stack_frame -> number, from 1 */
	uint32_t
		*nodes; /* what the agent's nodes mean now; 0: nothing; NULL: it has emitted none */
	uint32_t *written; /* STACK ids of frames by number; 0: not written */
	size_t written_cap;
	struct scry_stack_code (*name_code)(const void *arg, uint32_t code);
	const void *arg;
};

/* For at most `limit` frames. */
void scry_stacks_init(struct scry_stacks *s, uint32_t limit);
void scry_stacks_done(struct scry_stacks *s);

/* A NODE record of the ring: node `node` means this frame, whose `parent` is the number of a node.
 */
void scry_stacks_define(struct scry_stacks *s, uint32_t node, struct scry_stack_frame frame);

/* The number of the frame that node `node` means; 0: the agent has emitted none. Any node is legal.
 */
uint32_t scry_stacks_node(const struct scry_stacks *s, uint32_t node);

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
