/*
 * Calls of malloc functions, packed into chunks of kind SCRY_CHUNK_MALLOC, and out of them again.
 *
 * The packer gives blocks their numbers: the one freed last is used again first (LIFO), so they
 * stay dense, and the unpacker finds them again without reading them. A chunk holds what happened
 * in one process, in its order (wire/payload_malloc.h), compressed by zstd. Chunks of a process
 * follow each other: numbers of blocks live on.
 *
 * doc/FORMAT.md says how the bytes lie. Events in memory: struct scry_ev_malloc. One thread.
 *
 * Memory: 12 bytes for each block of the most that lived at once (the unpacker: 8), 4 KiB a thread,
 * up to 4 MiB of kinds and guesses, and what is pending.
 */
#ifndef SCRY_REC_MALLOC_PACK_H
#define SCRY_REC_MALLOC_PACK_H

#include "rec/writer.h"
#include "wire/event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scry_malloc_pack;

/* -ENOMEM with a sentence. `producer` is in each chunk's head. */
int scry_malloc_pack_new(const struct scry_producer *producer, struct scry_malloc_pack **ret_pack);
void scry_malloc_pack_free(struct scry_malloc_pack *p); /* NULL is legal */

/*
 * Adds a call made at `time_ns`, not before the one added last (an earlier time is taken for its).
 * `call->block` says which block is meant and must be one that lives; where a block begins it is
 * ignored, and its number is written to *ret_block (may be NULL). rec/malloc_effect.h says which
 * calls begin, name or end one. `call->pid` is ignored.
 * 0; -EINVAL: no such function, or no such block: nothing is added; -ENOBUFS: write first; -ENOSPC:
 * 2^28 blocks live; -ENOMEM: the packer can do no more.
 */
int scry_malloc_pack_add(struct scry_malloc_pack *p, uint64_t time_ns,
			 const struct scry_ev_malloc *call, uint32_t *ret_block);

/* What waits to be written, in bytes before compression or in calls, whichever is more: write at
 * the latest at SCRY_MALLOC_PACK_BYTES. */
#define SCRY_MALLOC_PACK_BYTES (1u << 20)
size_t scry_malloc_pack_pending(const struct scry_malloc_pack *p);

size_t
scry_malloc_pack_bytes(const struct scry_malloc_pack *p); /* of memory, but what is pending */

/* Compresses what is pending and writes it as one chunk; nothing when there is nothing. CALLER and
 * THREAD events it names must have been given to the writer before. 0 or the writer's error. */
int scry_malloc_pack_write(struct scry_malloc_pack *p, struct scry_writer *w);

/*
 * A fork child's: as `parent` is now, with its living blocks under their numbers. Write what the
 * parent has pending before, and the child's first chunk at once (it may be empty): a reader copies
 * the parent's blocks when it meets that chunk, so no other of the parent may come between.
 */
int scry_malloc_pack_fork(const struct scry_malloc_pack *parent,
			  const struct scry_producer *producer, struct scry_malloc_pack **ret_pack);

/* The other direction, used by the reader (rec/malloc_chunks.h). */
struct scry_malloc_unpack;
int scry_malloc_unpack_new(struct scry_malloc_unpack **ret_unpack);
void scry_malloc_unpack_free(struct scry_malloc_unpack *u);

/*
 * Takes a chunk's payload; nothing of it is needed afterwards. The one before must have been read
 * to its end. 0; -EINVAL: not what a packer writes, or not the one that follows: then none that
 * follow can be read; -ENOMEM, the same.
 */
int scry_malloc_unpack_chunk(struct scry_malloc_unpack *u, const struct scry_chunk *chunk,
			     const void *payload);

/* The next call of it, its pid 0: 1; 0 at its end. Before the first of a fork child come the blocks
 * that it has of its parent, as OLDER; -EINVAL when it is damaged: the rest of it and
 * all that follow are left out. */
int scry_malloc_unpack_next(struct scry_malloc_unpack *u, uint64_t *ret_time_ns,
			    struct scry_ev_malloc *ret_call);

/* 1 when the chunk is the first of a fork child: of which parent, after how many of its calls. */
int scry_malloc_unpack_parent(const struct scry_chunk *chunk, const void *payload,
			      struct scry_producer *ret_parent, uint64_t *ret_total);
int scry_malloc_unpack_fork(const struct scry_malloc_unpack *parent,
			    struct scry_malloc_unpack **ret_unpack);
uint64_t scry_malloc_unpack_total(const struct scry_malloc_unpack *u); /* calls yielded */
size_t scry_malloc_unpack_bytes(const struct scry_malloc_unpack *u);   /* of memory */

#endif
