/*
 * BLAKE2b-256 (RFC 7693): a name for bytes that cannot be given to other bytes. For files of
 * strangers, which could make two with one checksum, or write any build-id into theirs.
 */
#ifndef SCRY_BASE_DIGEST_H
#define SCRY_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define SCRY_DIGEST_BYTES 32u
#define SCRY_DIGEST_BLOCK 128u

struct scry_digest {
	uint64_t state[8];
	uint64_t total; /* bytes mixed in */
	uint8_t block[SCRY_DIGEST_BLOCK];
	size_t used; /* of the block */
};

void scry_digest_init(struct scry_digest *d);
void scry_digest_add(struct scry_digest *d, const void *bytes, size_t size);
void scry_digest_end(struct scry_digest *d, uint8_t ret[SCRY_DIGEST_BYTES]);

#endif
