/*
 * What the agent writes into thread buffers (wire/thread_buffers.h) while it records malloc
 * functions. One thread's words, two a call and a third for what is rare:
 *
 *   word 0   op : 4 | address / 8 : 44 | size : 16        size 0xffff: it is in the third word
 *   word 1   tsc : 36 (low bits) | slack : 8 | caller : 20
 *   word 2   function : 8 | log2 of the alignment : 8 | size : 48      fields from the low bits up
 *
 * An end (FREE, REALLOC_BEGIN) is stamped and published before the allocator is called, a beginning
 * after it has returned, and a realloc twice: so an address is never given out, in the order of the
 * stamps, before it has come back.
 * A thread's stamp is never more than 2^35 ticks after the one before: a TIME record comes between.
 *
 * Freestanding.
 */
#ifndef SCRY_WIRE_MALLOC_RING_H
#define SCRY_WIRE_MALLOC_RING_H

#include <stdint.h>

enum scry_malloc_op {
	SCRY_MALLOC_OP_NONE,
	SCRY_MALLOC_OP_MALLOC,	      /* address 0: it failed */
	SCRY_MALLOC_OP_CALLOC,	      /* the same */
	SCRY_MALLOC_OP_ALLOC,	      /* any other: word 2 always */
	SCRY_MALLOC_OP_REALLOC_BEGIN, /* the old address, 0: NULL; size is 1 for reallocarray */
	SCRY_MALLOC_OP_REALLOC_END, /* the new address and size; the thread's next call after BEGIN,
				       or it never returned */
	SCRY_MALLOC_OP_FREE,	    /* address 0: free(NULL) */
	SCRY_MALLOC_OP_FREE_BY,	    /* delete...: word 2 always */
	SCRY_MALLOC_OP_USABLE,	    /* malloc_usable_size of the address; size is the answer */
	SCRY_MALLOC_OP_TOUCHED,	    /* before its FREE: word 2's size are its resident bytes */
	SCRY_MALLOC_OP_TIME,	    /* word 1 is the whole TSC */
	SCRY_MALLOC_OP_CALLER,	    /* `size` is a caller's code, word 1 its return address: holds
				       for the process, comes before its first use in stamp order */
	SCRY_MALLOC_OP_LINE, /* the same where a VM ran code: the top 20 bits are the code, from
				SCRY_MALLOC_LINES on, bits 4..13 the words of the record; words
				1..3 are the return address, the pc (bit 0: its frame was the
				newest) and the iseq of the frame. Then, where the agent could read
				it: struct scry_ring_def, path, label */
	SCRY_MALLOC_OP_FORK, /* it is about to fork: what is stamped up to here the child has too */
	SCRY_MALLOC_OP_FORKED, /* it has: the address is the child's pid times 8, 0: it failed */
	SCRY_MALLOC_OP_STACK,  /* bits 4..13 the words of the record; word 1 the number of a stack;
				  then its return addresses, the innermost first, 0 at the end: what
				  lies below is not known. Holds and comes as CALLER does */
};

/* Where stacks are recorded (a watch does or does not), these have a word more: a stack's number,
 * 0 none. With a stack the caller is a line, or 0. */
#define SCRY_MALLOC_STACKED                                                                       \
	(1u << SCRY_MALLOC_OP_MALLOC | 1u << SCRY_MALLOC_OP_CALLOC | 1u << SCRY_MALLOC_OP_ALLOC | \
	 1u << SCRY_MALLOC_OP_REALLOC_END)
#define SCRY_MALLOC_STACK_HEAD 2u
#define SCRY_MALLOC_STACK_FRAMES 64u
static inline unsigned int scry_malloc_stack_words(uint64_t word)
{
	unsigned int words = word >> 4 & 0x3ff;

	return words <= SCRY_MALLOC_STACK_HEAD ? SCRY_MALLOC_STACK_HEAD + 1 : words;
}

#define SCRY_MALLOC_SIZE_LONG 0xffffu
#define SCRY_MALLOC_SLACK_UNKNOWN 0xffu /* usable size less size; or more than that */
#define SCRY_MALLOC_TSC_BITS 36
#define SCRY_MALLOC_CODE_AT (SCRY_MALLOC_TSC_BITS + 8) /* the lowest bit of a caller's code */
static inline uint64_t scry_malloc_word1(uint64_t tsc, uint64_t slack, uint64_t caller)
{
	return (tsc & ((1ull << SCRY_MALLOC_TSC_BITS) - 1)) | slack << SCRY_MALLOC_TSC_BITS |
	       caller << SCRY_MALLOC_CODE_AT;
}
#define SCRY_MALLOC_CALLERS 32768u /* codes from 1; 0: the table is full */
#define SCRY_MALLOC_LINES (SCRY_MALLOC_CALLERS + 1)
#define SCRY_MALLOC_CODES 163840u
#define SCRY_MALLOC_LINE_TOP 1ull
#define SCRY_MALLOC_LINE_HEAD 4u
static inline unsigned int scry_malloc_line_words(uint64_t word)
{
	unsigned int words = word >> 4 & 0x3ff;

	return words < SCRY_MALLOC_LINE_HEAD ? SCRY_MALLOC_LINE_HEAD : words;
}

#endif
