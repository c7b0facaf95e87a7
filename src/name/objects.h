/*
 * The objects stream of one process: ring words in, counters per named place out.
 *
 * A DEF record of the agent carries path, label, lines and class name, copied while they were
 * alive, so nothing is read from the target here. What remains is to settle the line, to count, and
 * to follow objects to their end. Memory is bounded: see scry_objects_new.
 */
#ifndef SCRY_NAME_OBJECTS_H
#define SCRY_NAME_OBJECTS_H

#include <stddef.h>
#include <stdint.h>

#include "rec/writer.h"
#include "vm/ruby.h"

struct scry_objects;

struct scry_objects_totals {
	uint64_t allocs, frees; /* words seen */
	uint64_t frees_older;	/* of objects born before the watch */
	uint64_t replaced;	/* born at an address that was thought alive: its free was lost */
	uint64_t untracked;	/* objects whose end is not followed: memory limit */
	uint64_t unnamed; /* objects of code or classes that died before they could be named */
	uint64_t damaged; /* words that make no sense */
	uint64_t defs;
	size_t places; /* distinct raw places */
};

/*
 * `ruby` is borrowed and may be NULL (then classes are unknown). `limit_bytes` bounds the table of
 * live objects; places are bounded at one million. NULL: out of memory.
 */
struct scry_objects *scry_objects_new(const struct scry_ruby *ruby, size_t limit_bytes);
void scry_objects_free(struct scry_objects *o);

/*
 * Several processes in one recording: what they have in common, of the caller, zero at first. Right
 * after scry_objects_new, and to outlive them all.
 */
struct scry_objects_shared {
	uint32_t last_site; /* sites of all are numbered in one row */
	size_t live_bytes;  /* the limit of live objects is that of all */
};
void scry_objects_share(struct scry_objects *o, struct scry_objects_shared *shared);

/* Adds the counters of `from`, lines settled, to `into`: for processes that are reported as a sum.
 */
void scry_objects_merge(struct scry_objects *into, const struct scry_objects *from);

/* Takes complete records: `words[0..count)`. */
void scry_objects_feed(struct scry_objects *o, const uint64_t *words, size_t count);

/* Writes SITE and OBJECTS events for all places so far. 0 or the writer's error. */
int scry_objects_write(struct scry_objects *o, struct scry_writer *w, uint32_t pid);

/*
 * For --raw: feeds the words of `batch`, and writes them as a packed chunk whose codes are site
 * ids, with SITE events for new ones before it. The batch says producer and times too.
 */
int scry_objects_raw(struct scry_objects *o, const struct scry_objects_run *batch,
		     struct scry_writer *w);

void scry_objects_totals(const struct scry_objects *o, struct scry_objects_totals *ret);

#endif
