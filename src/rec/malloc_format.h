/*
 * How a chunk of kind SCRY_CHUNK_MALLOC lies: for its packer and its unpacker.
 *
 *   struct scry_malloc_head | zstd frame of the columns, one behind the other | zeros up to 8
 *
 * Columns lie as rec/malloc_planes.h says; doc/FORMAT.md says what each of them means.
 */
#ifndef SCRY_REC_MALLOC_FORMAT_H
#define SCRY_REC_MALLOC_FORMAT_H

#include <stdint.h>

enum scry_malloc_column {
	SCRY_MALLOC_COLUMN_RUNS,    /* before each miss: right guesses << 1 | the ref's miss only */
	SCRY_MALLOC_COLUMN_CODES,   /* a miss of the kind: enum scry_malloc_code */
	SCRY_MALLOC_COLUMN_REFS,    /* which block */
	SCRY_MALLOC_COLUMN_KINDS,   /* definitions */
	SCRY_MALLOC_COLUMN_THREADS, /* events since the last switch, new thread */
	SCRY_MALLOC_COLUMN_TIMES,   /* events since the last stamp, ticks of SCRY_MALLOC_TICK_NS */
	SCRY_MALLOC_COLUMNS,
};

enum scry_malloc_code {
	SCRY_MALLOC_CODE_SIZE,	/* as guessed but for size and usable: defines a kind */
	SCRY_MALLOC_CODE_NEW,	/* defines a kind */
	SCRY_MALLOC_CODE_KINDS, /* and up: this less is the number of the kind */
};

struct scry_malloc_head {
	uint64_t before; /* calls of the process in chunks before this one */
	uint64_t parent_start;
	uint64_t parent_before; /* calls of the parent up to the fork */
	uint32_t parent_pid;	/* 0: no fork child's first chunk */
	uint32_t parent_ring;
	uint32_t flags;
	uint32_t packed;		       /* bytes of the frame */
	uint32_t columns[SCRY_MALLOC_COLUMNS]; /* bytes of each, unpacked */
};
_Static_assert(sizeof(struct scry_malloc_head) == 64, "the head is part of the format");

#define SCRY_MALLOC_CHUNK_FRESH 1u /* kinds and guesses are forgotten before it */

#define SCRY_MALLOC_RAW_MAX (16u << 20) /* bytes of all columns */
#define SCRY_MALLOC_CALLS_MAX (1u << 21)
#define SCRY_MALLOC_BLOCKS_MAX (1u << 28)
#define SCRY_MALLOC_KINDS_MAX (1u << 16)
#define SCRY_MALLOC_TICK_NS 1024u

static inline uint32_t scry_malloc_raw_bytes(const struct scry_malloc_head *head)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < SCRY_MALLOC_COLUMNS; i++)
		sum += head->columns[i];
	return sum > SCRY_MALLOC_RAW_MAX ? UINT32_MAX : (uint32_t)sum;
}

#endif
