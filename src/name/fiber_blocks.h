/*
 * Is the memory of a stack, or of a saved context, a block of malloc that lives? What was given
 * back and not used since looks as if a fiber still waited there; glibc knows better.
 *
 * The heaps are read at the first question (name/glibc_arenas), without holding a thread: what they
 * say counts only if no thread has run since the look began, and all of them could be read.
 */
#ifndef SCRY_NAME_FIBER_BLOCKS_H
#define SCRY_NAME_FIBER_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct scry_fibers;

struct scry_fiber_blocks {
	struct scry_glibc_arenas *arenas; /* its blocks ascending; NULL: not read */
	bool is_read, is_whole;
};

enum scry_fiber_block {
	SCRY_FIBER_BLOCK_OTHER,	  /* it is not in a heap of glibc's */
	SCRY_FIBER_BLOCK_LIVES,	  /* in a block that was not given back */
	SCRY_FIBER_BLOCK_FREE,	  /* in none */
	SCRY_FIBER_BLOCK_UNKNOWN, /* in a heap that cannot be judged */
};

enum scry_fiber_block scry_fiber_block_at(struct scry_fibers *f, uint64_t address);
void scry_fiber_blocks_done(struct scry_fiber_blocks *b);

#endif
