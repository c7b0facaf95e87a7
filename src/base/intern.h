/*
 * Byte strings to dense ids: 1, 2, 3... in the order of first sight. 0 is never an id.
 *
 * Limits on count and on bytes are stated at init; at a limit a new string is refused and the
 * caller counts it. Stored bytes never move, and are NUL terminated for printing. Strings come from
 * foreign processes, so the hash is seeded: strings that collide cannot be chosen from outside.
 *
 * Life cycle: scry_intern_init, calls, scry_intern_done. One thread at a time.
 */
#ifndef SCRY_BASE_INTERN_H
#define SCRY_BASE_INTERN_H

#include <stddef.h>
#include <stdint.h>

struct scry_intern_entry {
	const char *bytes;
	uint32_t length;
	uint32_t hash;
};

struct scry_intern_block;

struct scry_intern {
	struct scry_intern_entry *entries; /* [id - 1] */
	uint32_t count;
	uint32_t entries_cap;
	uint32_t *slots; /* open addressing: ids, 0 empty */
	uint32_t slots_mask;
	uint32_t limit; /* of ids */
	size_t bytes;	/* stored, NULs included */
	size_t bytes_limit;
	struct scry_intern_block *block; /* newest first */
	uint64_t seed;
};

/* An empty table for at most `limit` strings (below 2^31) of `bytes_limit` bytes together. */
void scry_intern_init(struct scry_intern *in, uint32_t limit, size_t bytes_limit);

/* Frees all strings; the table is then empty. */
void scry_intern_done(struct scry_intern *in);

/*
 * The id of the string, new or known. 0; -ENOSPC at a limit, -ENOMEM: then nothing is stored.
 * Whether it was new shows in in->count.
 */
int scry_intern_put(struct scry_intern *in, const char *bytes, size_t len, uint32_t *ret_id);

/* The id of the string, 0 when it was never put. */
uint32_t scry_intern_find(const struct scry_intern *in, const char *bytes, size_t len);

/*
 * The bytes of `id` and their length (ret_len may be NULL); NULL for an id that was never given.
 * Valid until scry_intern_done.
 */
const char *scry_intern_get(const struct scry_intern *in, uint32_t id, size_t *ret_len);

#endif
