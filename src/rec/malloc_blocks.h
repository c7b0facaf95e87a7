/*
 * The blocks that live, and short names for one of them: packer and unpacker keep the same.
 *
 * A block's number is the one freed last, else a new one. All blocks that live hang in one list in
 * the order of their birth. Each thread has a stack of the blocks it made or resized last, and
 * remembers which neighbours in the list the block had that it ended last. A reference (`ref`) says
 * where a block is found from there, so that what a program does again is the same ref again.
 *
 * The rule that keeps both sides equal: a ref is resolved from state that both have, and what it
 * finds is only checked for being alive. So a stale stack is harmless, and hostile refs too.
 */
#ifndef SCRY_REC_MALLOC_BLOCKS_H
#define SCRY_REC_MALLOC_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCRY_MALLOC_STACK 1024u
#define SCRY_MALLOC_SLOTS 4096u /* threads beyond share the state of thread % slots */
#define SCRY_MALLOC_SKIPS 8u

/* A ref is 1 and up; 0 is none. */
enum scry_malloc_ref {
	SCRY_MALLOC_REF_NEXT = 1, /* ... SKIPS of them: born after the block ended last */
	SCRY_MALLOC_REF_PREV = SCRY_MALLOC_REF_NEXT + SCRY_MALLOC_SKIPS,    /* ... born before it */
	SCRY_MALLOC_REF_STACK = SCRY_MALLOC_REF_PREV + SCRY_MALLOC_SKIPS,   /* ... from the top */
	SCRY_MALLOC_REF_NUMBER = SCRY_MALLOC_REF_STACK + SCRY_MALLOC_STACK, /* ... zigzag of the
					number less that of the block that the thread ended last */
};

struct scry_malloc_links { /* of a block that lives: its neighbours; of others: next free number */
	uint32_t prev;	   /* the one born before; SCRY_MALLOC_DEAD */
	uint32_t next;
};

#define SCRY_MALLOC_DEAD 0xfffffffeu

struct scry_malloc_thread {	    /* what is guessed from; zero is its beginning */
	uint32_t codes[3];	    /* kinds of its last calls, newest first, from 1 */
	uint32_t ended, next, prev; /* the block it ended last, and its neighbours then */
	uint32_t top;
	uint32_t stack[SCRY_MALLOC_STACK];
};

struct scry_malloc_blocks {
	struct scry_malloc_links *links;
	uint32_t *births; /* packer only: slot << 20 | place in the stack, low bits */
	bool has_births;
	uint32_t cap, count; /* count: numbers given until now */
	uint32_t free;	     /* number freed last; SCRY_MALLOC_NO_BLOCK */
	uint32_t newest;
	uint32_t living;
	struct scry_malloc_thread **threads; /* [SCRY_MALLOC_SLOTS] */
	uint32_t thread_count;
};

/* 0 or -ENOMEM. */
int scry_malloc_blocks_init(struct scry_malloc_blocks *b, bool has_births);
void scry_malloc_blocks_done(struct scry_malloc_blocks *b);
/* `to` gets the same content; it must be done away with in either case. 0 or -ENOMEM. */
int scry_malloc_blocks_copy(struct scry_malloc_blocks *to, const struct scry_malloc_blocks *from);
size_t scry_malloc_blocks_bytes(const struct scry_malloc_blocks *b);

/* The state of a thread, made at its first use; NULL: no memory. */
struct scry_malloc_thread *scry_malloc_thread_new(struct scry_malloc_blocks *b, uint32_t thread);

static inline struct scry_malloc_thread *scry_malloc_thread_of(struct scry_malloc_blocks *b,
							       uint32_t thread)
{
	struct scry_malloc_thread *t = b->threads[thread % SCRY_MALLOC_SLOTS];

	return t ? t : scry_malloc_thread_new(b, thread);
}

/* A block begins. 0; -ENOSPC at SCRY_MALLOC_BLOCKS_MAX, -ENOMEM. */
int scry_malloc_blocks_begin(struct scry_malloc_blocks *b, struct scry_malloc_thread *t,
			     uint32_t *ret_block);
/* Of a block that lives: it ends; it was resized. */
void scry_malloc_blocks_end(struct scry_malloc_blocks *b, struct scry_malloc_thread *t,
			    uint32_t block);
void scry_malloc_blocks_again(struct scry_malloc_blocks *b, struct scry_malloc_thread *t,
			      uint32_t block);

static inline bool scry_malloc_block_lives(const struct scry_malloc_blocks *b, uint32_t block)
{
	return block < b->count && b->links[block].prev != SCRY_MALLOC_DEAD;
}

/* The block that `ref` names and that lives; SCRY_MALLOC_NO_BLOCK. */
uint32_t scry_malloc_ref_find(const struct scry_malloc_blocks *b,
			      const struct scry_malloc_thread *t, uint32_t ref);
/* The shortest ref of a block that lives. Needs births. */
uint32_t scry_malloc_ref_of(const struct scry_malloc_blocks *b, const struct scry_malloc_thread *t,
			    uint32_t block);

#endif
