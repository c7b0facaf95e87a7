/*
 * What `scry malloc replay` (replan/feed) and scry-replay share: one memory, in which calls of the
 * malloc functions are words, one stream for each thread.
 *
 *   head | streams: a first block each | words, in blocks of 512
 *
 * A *stream* is a place for one thread of the replay, a *slot* a place for one living block, a
 * *batch* what is in the memory at a time: a piece of the recording. The two sides take turns:
 * while a batch is replayed the feeder sleeps, and the other way round (`turn`, a futex).
 *
 *   word 0   op : 6 | slot : 26 | size : 16 | tag : 16      fields from the low bits up
 *   word 1   size : 42 | x : 6 | tag : 16                   only behind an op with LONG;
 *            then word 0's size is how much of the block was touched, in 65535ths
 *            x: log2 of the alignment; REALLOC: from which 64th of that on it is to be touched
 *
 * Order across threads. A stream that ends a block, or asks about it, must come after those that
 * had it before. Three ways lead there, by what the feeder knows of the one that had it last:
 *   - the same thread in the same batch: program order;
 *   - any stream in an earlier batch: all threads end a batch before the next begins;
 *   - another thread in this batch: the last word that had it gets a *tag* by which it publishes
 *     the block in its cell, and the new one waits for that tag. (The tag is in word 1 for an op
 *     that both waits and publishes, else in word 0.)
 * A free slot belongs to the thread that freed it until the batch ends. Tags of a slot grow within
 * a batch and are not a tag that it has from before; so none can be mistaken for another.
 *
 * No stream runs ahead. A program's queues are bounded; here a stream that only begins blocks would
 * begin them all before others end one. So a batch is cut into *epochs* of some bytes begun,
 * streams mark the ends of their parts, and none enters an epoch before all have marked the last
 * but one. Streams that hand no blocks over have no queue that would hold them: their epochs are of
 * time, and long. Streams that take what others hand over enter when they like: tags hold them, and
 * a stream that is slow in taking when it is recorded need not be so when it is replayed. So do
 * those that take as many as they give, in a short life: a thread that waits gives its processor to
 * the next one.
 *
 * No stream can wait for ever. The recording is one sequence, streams are parts of it in its order,
 * and a word waits only for words before it in the sequence: the first that is not done can always
 * be done. scry-replay does not believe that: it plays each batch first as one thread, and refuses
 * one in which a rule is broken or a stream waits for ever (replay/check.c).
 *
 * Freestanding.
 */
#ifndef SCRY_WIRE_REPLAY_H
#define SCRY_WIRE_REPLAY_H

#include <stdint.h>

#define SCRY_REPLAY_MAGIC UINT64_C(0x79616c7065722079)
#define SCRY_REPLAY_VERSION 4u

#define SCRY_REPLAY_STREAMS 8192u
#define SCRY_REPLAY_SLOTS (1u << 26)
#define SCRY_REPLAY_BLOCK 512u	  /* words */
#define SCRY_REPLAY_BLOCKS 32768u /* 128 MiB: all memory that a recording of any length takes */
#define SCRY_REPLAY_EPOCHS 65536u /* in a batch */
#define SCRY_REPLAY_NONE 0xffffffffu
#define SCRY_REPLAY_SIZE_MAX ((UINT64_C(1) << 42) - 1) /* bytes, of one block */
#define SCRY_REPLAY_ALIGN_MAX 30		       /* log2 */
#define SCRY_REPLAY_THINK_MAX UINT64_C(2000000000)     /* ns */
#define SCRY_REPLAY_US_MAX ((UINT64_C(1) << 42) - 1)   /* 50 days */

enum scry_replay_op {
	SCRY_REPLAY_END,   /* of the stream in this batch */
	SCRY_REPLAY_LINK,  /* goes on in block `slot` */
	SCRY_REPLAY_SPAWN, /* begins stream `slot`, once as many threads as bits 32.. say have ended
			    */
	SCRY_REPLAY_JOIN,  /* goes on once as many threads as bits 32.. say have ended */
	SCRY_REPLAY_STOP,  /* this thread ends; the last of its stream */
	SCRY_REPLAY_MARK,  /* this stream's part of epoch `slot` is done */
	SCRY_REPLAY_AT,	   /* not before as many us, bits 6.., after the first batch began */
	SCRY_REPLAY_THINK, /* the thread works for as many ns, bits 6.., on something else */
	SCRY_REPLAY_GATE,  /* as many streams as bits 32.. say must have marked `slot` */
	/* a block begins; tag: publishes */
	SCRY_REPLAY_MALLOC,
	SCRY_REPLAY_CALLOC,
	SCRY_REPLAY_REALLOC_NULL,
	SCRY_REPLAY_NEW,
	SCRY_REPLAY_NEW_ARRAY,
	SCRY_REPLAY_POSIX_MEMALIGN, /* these five always LONG */
	SCRY_REPLAY_ALIGNED_ALLOC,
	SCRY_REPLAY_MEMALIGN,
	SCRY_REPLAY_VALLOC,
	SCRY_REPLAY_PVALLOC,
	/* it goes on; tag: waits, tag of word 1: publishes; always LONG */
	SCRY_REPLAY_REALLOC,
	SCRY_REPLAY_REALLOCARRAY,
	SCRY_REPLAY_USABLE,
	/* it ends; tag: waits */
	SCRY_REPLAY_FREE,
	SCRY_REPLAY_DELETE,
	SCRY_REPLAY_DELETE_ARRAY,
	SCRY_REPLAY_OPS,
	SCRY_REPLAY_LONG = 32, /* a bit of the op */
};

#define SCRY_REPLAY_SLOT(word) ((uint32_t)((word) >> 6) & (SCRY_REPLAY_SLOTS - 1))
#define SCRY_REPLAY_SHORT(word) ((uint32_t)((word) >> 32) & 0xffffu)
#define SCRY_REPLAY_TAG(word) ((uint32_t)((word) >> 48))
#define SCRY_REPLAY_SIZE(word1) ((word1)&SCRY_REPLAY_SIZE_MAX)
#define SCRY_REPLAY_X(word1) ((uint32_t)((word1) >> 42) & 63u)

#endif
