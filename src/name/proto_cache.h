/*
 * Prototypes, and lines (name/native_lines), that were read from debug information before, on disk:
 * to read them again takes some 40 ms for a C library, whose debug information is packed.
 *
 * One file of base/cache per object, by a key that says which bytes and which debug information it
 * is. A file that is torn, or of another key or scry, is none; all sizes are checked again after
 * reading. What it holds is text, which is read as carefully as what a user writes.
 */
#ifndef SCRY_NAME_PROTO_CACHE_H
#define SCRY_NAME_PROTO_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/map.h"

#define SCRY_PROTO_CACHE_MAX (1u << 20) /* bytes of a file; more functions are not kept */

struct scry_proto_cache { /* life: init, key, load; get, put; store, done */
	uint8_t key[SCRY_DIGEST_BYTES];
	uint64_t reader; /* which scry reads prototypes so */
	struct scry_buf rows;
	struct scry_map places; /* address -> where its row is */
	uint32_t count;
	bool is_changed;
};

/* Empty, of no key. */
void scry_proto_cache_init(struct scry_proto_cache *cache, uint64_t reader);
/* What its file has, if there is one that may be used. */
void scry_proto_cache_load(struct scry_proto_cache *cache);
/* Writes it if something was put in. A cache that cannot be written is not a failure. */
void scry_proto_cache_store(const struct scry_proto_cache *cache);
void scry_proto_cache_done(struct scry_proto_cache *cache);

/* Is it known what was read of the function at the link-time `address`? *ret: what, owned by the
 * cache until something is put in; of 0 bytes: that it has no prototype. */
bool scry_proto_cache_get(const struct scry_proto_cache *cache, uint64_t address, const char **ret,
			  size_t *ret_size);
/* Of one that is not known yet. What is not printable ASCII is not kept: no file of it is read. */
void scry_proto_cache_put(struct scry_proto_cache *cache, uint64_t address, const char *text,
			  size_t size);

/* The reader and writer of bytes behind load and store. 0 or -ENOENT; 0 or -ENOMEM. */
int scry_proto_cache_parse(struct scry_proto_cache *cache, const void *bytes, size_t size);
int scry_proto_cache_format(const struct scry_proto_cache *cache, struct scry_buf *ret);
/* Makes the checksum of `bytes` hold: for the fuzzer. */
void scry_proto_cache_seal(void *bytes, size_t size);

#endif
