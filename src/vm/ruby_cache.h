/*
 * Layouts that were learned before, on disk: a hint, never a truth.
 *
 * One file of base/cache per Ruby module, by the digest of its loaded segments (sys/elf_digest).
 * What is read has a format version, the sizes of its structs, the digest of the learners that made
 * it and a checksum; whatever does not match is not an entry. The caller validates the layout on
 * the live target before it is used, every time.
 *
 * Only what holds for all processes of a build belongs into a layout. An offset of thread-local
 * storage does not for a shared libruby: it depends on what else was loaded.
 */
#ifndef SCRY_VM_RUBY_CACHE_H
#define SCRY_VM_RUBY_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vm/ruby.h"

#define SCRY_CACHE_ID_MAX 64
#define SCRY_CACHE_CHECKS_MAX 256u
#define SCRY_CACHE_FILE_MAX (256u << 10)

struct scry_cache_key {
	uint8_t id[SCRY_CACHE_ID_MAX]; /* the digest */
	uint32_t id_size;	       /* 1.. */
	uint64_t learners; /* digest of the learners' source: another scry learns differently */
};

struct scry_cached {
	struct scry_ruby_layout layout;
	int64_t learned_s; /* seconds since the epoch */
	struct scry_ruby_check *checks;
	size_t check_count;
};

/* The entry of `key`. 0, or -ENOENT without a sentence: none that may be used. Ends with
 * scry_cached_done(). */
int scry_cache_load(const struct scry_cache_key *key, struct scry_cached *ret);
/* Writes it, atomically; makes the directories. 0 or -errno without a sentence: a cache that cannot
 * be written is not a failure. */
int scry_cache_store(const struct scry_cache_key *key, const struct scry_cached *cached);
/* `layout` (the bytes of a struct scry_ruby_layout) was learned in this run, and fitted; the newest
 * of a few are known. So it is not a hint for any file any more: may it serve a process that cannot
 * say yet? */
void scry_cache_learned(const struct scry_cache_key *key, const void *layout);
bool scry_cache_is_learned(const struct scry_cache_key *key, const void *layout);
/* There is none any more, and none was learned: it did not hold. */
void scry_cache_drop(const struct scry_cache_key *key);
void scry_cached_done(struct scry_cached *cached);

/* What a rehearsal along `layout` (the bytes of a struct scry_ruby_layout) is bound to: its bytes,
 * but for the rehearsals, and the allocation functions only where it was done by `hooks`. An entry
 * with a rehearsal that is bound to another is none. */
uint64_t scry_cache_stamp(const void *layout, bool hooks);

/* The reader of bytes behind scry_cache_load(). 0 or -ENOENT. */
int scry_cache_parse(const struct scry_cache_key *key, const void *bytes, size_t size,
		     struct scry_cached *ret);
/* The writer's bytes, malloc'ed; NULL when it does not fit. */
void *scry_cache_format(const struct scry_cache_key *key, const struct scry_cached *cached,
			size_t *ret_size);
/* Makes the checksum of `bytes` hold: for the fuzzer. */
void scry_cache_seal(void *bytes, size_t size);

#endif
