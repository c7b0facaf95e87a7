/*
 * The objects stream of one process: ring words in, counters per named place out.
 *
 * A DEF record of the agent carries path, label, lines and class name, copied while they were
 * alive, so nothing is read from the target for names. What is read from it, by
 * scry_objects_measure, are the sizes of living objects. Memory is bounded: see scry_objects_new.
 */
#ifndef SCRY_NAME_OBJECTS_H
#define SCRY_NAME_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/writer.h"
#include "vm/ruby.h"

struct scry_objects;

struct scry_objects_setup {
	const struct scry_ruby *ruby; /* borrowed; NULL: instructions and sizes are unknown */
	size_t limit_bytes;	      /* of the table of living objects */
	double sample_mean;	      /* one object (or unit of slot bytes) in so many; 0: all */
	uint32_t sample_unit;	      /* bytes; 0: objects are counted */
	/* ids of SITE and STACK events are taken from here: one pair for a recording */
	uint32_t *next_site;
	size_t *live_bytes; /* several processes under one limit_bytes: in use by all; NULL: alone
			     */
};

struct scry_objects_totals {
	uint64_t allocs, frees; /* words seen */
	uint64_t frees_older;	/* of objects born before the watch */
	uint64_t replaced;	/* born at an address that was thought alive: its free was lost */
	uint64_t untracked;	/* objects whose end is not followed: memory limit */
	uint64_t ractors;	/* objects of class Ractor, made */
	uint64_t unnamed; /* objects of code or classes that died before they could be named */
	uint64_t nowhere; /* made at places beyond the limit of one million */
	uint64_t damaged; /* words that make no sense */
	uint64_t defs;
	uint64_t gcs, full_gcs;
	uint64_t compactions, moved;
	uint64_t out_of_sight;		    /* objects lost sight of in a compaction */
	uint64_t found_free;		    /* live as far as is known, and free when measured */
	uint64_t unfollowed;		    /* samples of which nothing more is reported */
	uint64_t estimated, estimated_live; /* made; of them alive: scaled up when sampled */
	size_t places;			    /* distinct raw places */
};

/* Places are bounded at one million. NULL: out of memory. */
struct scry_objects *scry_objects_new(const struct scry_objects_setup *setup);
void scry_objects_free(struct scry_objects *o);

/* Takes complete records: `words[0..count)`. */
void scry_objects_feed(struct scry_objects *o, const uint64_t *words, size_t count);

/*
 * Looks at all living objects: their sizes, their ages, which of them survived the last full mark.
 * For the next scry_objects_write. Without it, or when the
 * target is gone (`is_gone`), sizes are slots.
 */
void scry_objects_measure(struct scry_objects *o, bool is_gone);

/*
 * Adds the counters of `from`, as measured, to `into`: for processes that are reported as a sum.
 * `into` is fed no words of its own.
 */
void scry_objects_merge(struct scry_objects *into, struct scry_objects *from);
/* Only what scry_objects_totals says: the counters of `from` have been written themselves. */
void scry_objects_merge_totals(struct scry_objects *into, const struct scry_objects *from);

/* A compaction moved objects and it is not known where to: the living are not followed any more. */
void scry_objects_lose_sight(struct scry_objects *o);

/* Writes SITE and OBJECTS events for all places so far. 0 or the writer's error. */
int scry_objects_write(struct scry_objects *o, struct scry_writer *w, uint32_t pid, uint32_t slice);

/*
 * For --raw: feeds the words of `batch`, and writes them as a packed chunk whose codes are site
 * ids, with SITE events for new ones before it. The batch says producer and times too.
 */
int scry_objects_raw(struct scry_objects *o, const struct scry_objects_run *batch,
		     struct scry_writer *w);

void scry_objects_totals(const struct scry_objects *o, struct scry_objects_totals *ret);

#endif
