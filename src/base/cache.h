/*
 * Small files that one run keeps for the next, in $XDG_CACHE_HOME/scry or ~/.cache/scry: hints,
 * never truths. What they mean, and whether they hold, is the caller's.
 *
 * Directory and file must belong to the caller and be closed to everybody else; links are not
 * followed; root reads no other user's. SCRY_NO_CACHE, set and not empty, means there is none.
 */
#ifndef SCRY_BASE_CACHE_H
#define SCRY_BASE_CACHE_H

#include <stddef.h>
#include <stdint.h>

#define SCRY_CACHE_NAME_MAX 160u

struct scry_cache_id {
	const uint8_t *bytes;
	size_t size;
};

/* "KIND-ID", the id in hex. */
void scry_cache_name(const char *kind, const struct scry_cache_id *id,
		     char ret[SCRY_CACHE_NAME_MAX]);

/* The file's bytes, malloc'ed; NULL without a sentence: there is none that may be read, or it has
 * more than `max`. */
void *scry_cache_read_file(const char *name, size_t max, size_t *ret_size);
/* Writes it, atomically; makes the directories. 0 or -errno without a sentence: a cache that cannot
 * be written is not a failure. */
int scry_cache_write_file(const char *name, const void *bytes, size_t size);
void scry_cache_remove_file(const char *name);

#endif
