/*
 * The objects stream of one process: ring words in, counters per named place out.
 *
 * Names are resolved for each drained batch while the target lives. Code is named by the agent itself (a DEF
 * record carries path, label and lines); classes are named here, by reading the target, and a class that
 * died meanwhile is called unknown, never guessed. Memory is bounded: see scry_objects_new.
 */
#ifndef SCRY_NAME_OBJECTS_H
#define SCRY_NAME_OBJECTS_H

#include <stddef.h>
#include <stdint.h>

#include "rec/writer.h"
#include "vm/ruby.h"

struct scry_objects;

struct scry_objects_totals {
	uint64_t allocs, frees;	 /* words seen */
	uint64_t frees_older;	 /* of objects born before the watch */
	uint64_t replaced;	 /* born at an address that was thought alive: its free was lost */
	uint64_t untracked;	 /* objects whose end is not followed: memory limit */
	uint64_t unnamed;	 /* objects of code or classes that died before they could be named */
	uint64_t damaged;	 /* words that make no sense */
	uint64_t defs;
	size_t places;		 /* distinct raw places */
};

/*
 * `ruby` is borrowed and may be NULL (then classes are unknown). `limit_bytes` bounds the table of live objects;
 * places are bounded at one million. NULL: out of memory.
 */
struct scry_objects *scry_objects_new(const struct scry_ruby *ruby, size_t limit_bytes);
void scry_objects_free(struct scry_objects *o);

/*
 * Takes complete records: `words[0..count)`. `later` looks at what came into the ring after them, and is called
 * only when new classes were named: it returns words (valid until the next call) or 0.
 */
struct scry_objects_batch {
	const uint64_t *words;
	size_t count;
	size_t (*later)(void *arg, const uint64_t **ret_words);
	void *arg;
};
void scry_objects_feed(struct scry_objects *o, const struct scry_objects_batch *batch);

/* Writes SITE and OBJECTS events for all places so far. 0 or the writer's error. */
int scry_objects_write(struct scry_objects *o, struct scry_writer *w, uint32_t pid);

/*
 * For --raw: feeds the batch, and writes its words as a packed chunk whose codes are site ids, with SITE events
 * for new ones before it. `head` says producer and times. A class defined in the batch is named when its turn comes.
 */
int scry_objects_raw(struct scry_objects *o, const struct scry_objects_batch *batch,
		     struct scry_writer *w, const struct scry_objects_run *head);

void scry_objects_totals(const struct scry_objects *o, struct scry_objects_totals *ret);

#endif
