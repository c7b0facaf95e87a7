/*
 * One record of one thread (wire/malloc_ring.h) -> calls for the packer: follows addresses to
 * blocks, makes one call of a realloc's two records, mends what does not fit. The order is the
 * caller's (name/malloc).
 */
#ifndef SCRY_NAME_MALLOC_CALLS_H
#define SCRY_NAME_MALLOC_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "name/malloc.h"
#include "name/malloc_addresses.h"
#include "name/malloc_callers.h"
#include "rec/malloc_pack.h"
#include "wire/malloc_ring.h"

struct scry_malloc_calls {
	struct scry_malloc_pack *pack;
	struct scry_malloc_addresses addresses;
	struct scry_malloc_callers *callers;
	struct scry_malloc_stats stats;
	uint64_t ns; /* of the last call: time never goes back */
	bool has_stacks;
};

struct scry_malloc_reallocating { /* a thread's realloc that has not returned */
	bool is_on;
	uint32_t function, flags, block, caller;
	uint64_t address;
};

struct scry_malloc_record {
	uint64_t ns;
	uint64_t words[3]; /* the third is 0 where there is none */
	uint64_t stack;	   /* 0: none */
	uint32_t thread;   /* number */
	struct scry_malloc_reallocating *realloc;
};

/* Words in the record that begins with `word`; with stacks a beginning's last one is its stack. */
static inline unsigned int scry_malloc_record_words(uint64_t word, bool has_stacks)
{
	/* bits of ops that always have a third */
	const unsigned int three = 1u << SCRY_MALLOC_OP_ALLOC | 1u << SCRY_MALLOC_OP_FREE_BY |
				   1u << SCRY_MALLOC_OP_TOUCHED;

	if ((word & 15) == SCRY_MALLOC_OP_LINE)
		return scry_malloc_line_words(word);
	if ((word & 15) == SCRY_MALLOC_OP_STACK)
		return scry_malloc_stack_words(word);
	return 2 + (has_stacks & (SCRY_MALLOC_STACKED >> (word & 15) & 1)) +
	       ((three >> (word & 15) & 1) | (word >> 48 == SCRY_MALLOC_SIZE_LONG));
}

/* 0, or an error with a sentence: then the call was not packed. */
int scry_malloc_calls_add(struct scry_malloc_calls *c, const struct scry_malloc_record *record);

/* What the recorder itself has to say: OLDER, THREAD_END. */
int scry_malloc_calls_older(struct scry_malloc_calls *c, uint64_t address, uint64_t usable);
int scry_malloc_calls_thread_end(struct scry_malloc_calls *c, uint32_t thread);

#endif
