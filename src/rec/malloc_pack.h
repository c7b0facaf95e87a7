/*
 * Calls of the malloc family, packed into chunks of kind SCRY_CHUNK_MALLOC, and out of them again.
 *
 * The packer gives blocks their numbers: the one freed last is used again first (LIFO), so they
 * stay dense, and the unpacker finds them again without reading them. A chunk holds what happened
 * in one process, in its order (wire/payload_malloc.h), compressed by zstd. Chunks of a process
 * follow each other: numbers of blocks live on.
 *
 * doc/FORMAT.md says how the bytes lie. Events in memory: struct scry_ev_malloc. One thread.
 */
#ifndef SCRY_REC_MALLOC_PACK_H
#define SCRY_REC_MALLOC_PACK_H

#include "rec/writer.h"
#include "wire/event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scry_malloc_pack;

/* -ENOMEM with a sentence. `producer` stands in each chunk's head. */
int scry_malloc_pack_new(const struct scry_producer *producer, struct scry_malloc_pack **ret_pack);
void scry_malloc_pack_free(struct scry_malloc_pack *p); /* NULL is legal */

/*
 * Adds a call made at `time_ns`, not before the one added last. `call->block` says which block is
 * meant and must be one that lives; where a block begins it is ignored, and its number is written
 * to *ret_block (may be NULL). 0 or -ENOMEM.
 */
int scry_malloc_pack_add(struct scry_malloc_pack *p, uint64_t time_ns,
			 const struct scry_ev_malloc *call, uint32_t *ret_block);

/* Bytes waiting to be written, before compression: write at the latest at SCRY_MALLOC_PACK_BYTES.
 */
#define SCRY_MALLOC_PACK_BYTES (1u << 20)
size_t scry_malloc_pack_pending(const struct scry_malloc_pack *p);

/* Compresses what is pending and writes it as one chunk; nothing when there is nothing. CALLER and
 * THREAD events it names must have been given to the writer before. 0 or the writer's error. */
int scry_malloc_pack_write(struct scry_malloc_pack *p, struct scry_writer *w);

/* A fork child's: as `parent` is now, with its living blocks under their numbers. Nothing pending
 * is taken over. */
int scry_malloc_pack_fork(const struct scry_malloc_pack *parent,
			  const struct scry_producer *producer, struct scry_malloc_pack **ret_pack);

/* The other direction, used by the reader. Memory: 9 bytes for each block that lives at once. */
struct scry_malloc_unpack;
int scry_malloc_unpack_new(struct scry_malloc_unpack **ret_unpack);
void scry_malloc_unpack_free(struct scry_malloc_unpack *u);
/* Takes a chunk's payload, which stays the caller's until the next. 0; -EINVAL: not what a packer
 * writes; -ENOMEM. */
int scry_malloc_unpack_chunk(struct scry_malloc_unpack *u, const struct scry_chunk *chunk,
			     const void *payload);
/* The next call of it: 1, 0 at its end, -EINVAL when it is damaged: the rest of it is left out. */
int scry_malloc_unpack_next(struct scry_malloc_unpack *u, uint64_t *ret_time_ns,
			    struct scry_ev_malloc *ret_call);

#endif
