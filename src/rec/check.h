/*
 * The checksum of a chunk: head and payload, so that no flipped bit goes unseen.
 *
 * For writer, reader, and the tests and fuzzers that forge recordings.
 */
#ifndef SCRY_REC_CHECK_H
#define SCRY_REC_CHECK_H

#include "wire/file.h"

#include <stddef.h>
#include <xxhash.h>

/* What `chunk->check` must be; `payload` holds chunk->bytes bytes. */
static inline uint64_t scry_chunk_check(const struct scry_chunk *chunk, const void *payload)
{
	uint64_t seed = XXH3_64bits(chunk, offsetof(struct scry_chunk, check));

	return XXH3_64bits_withSeed(payload, chunk->bytes, seed);
}

#endif
