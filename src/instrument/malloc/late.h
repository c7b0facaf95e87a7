/*
 * Allocators that come later: a library that is loaded by dlopen may bring a malloc of its own, for
 * itself (RTLD_DEEPBIND) or for code that looks it up there. What that serves is not recorded, and
 * said.
 */
#ifndef SCRY_INSTRUMENT_MALLOC_LATE_H
#define SCRY_INSTRUMENT_MALLOC_LATE_H

#include "hook/hooks.h"
#include "watch/watch.h"

struct scry_malloc_late { /* zeros at first */
	uint64_t next_ns, every_ns;
	uint64_t last; /* of the loader's list when it was looked at: count and last entry */
	const char *serving;
	uint64_t reported[8]; /* link maps */
	uint32_t reported_count;
};

/* Now and then, while the process lives: looks at what has been loaded since `hooks` were opened.
 * `serving`: the path of what serves malloc. */
void scry_malloc_late_look(struct scry_malloc_late *l, struct scry_watch *w,
			   const struct scry_hooks *hooks, const char *serving);

#endif
