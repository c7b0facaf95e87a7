/* Fork children that were born while code was changed, and have a copy of it. */
#ifndef SCRY_WATCH_HOOKED_CHILDREN_H
#define SCRY_WATCH_HOOKED_CHILDREN_H

#include <sys/types.h>

#include "watch/watch.h"
#include "wire/header.h"

struct scry_hooked_children {
	size_t count;
	pid_t first; /* one of them; 0: there is none */
};

/* Those of the agent `of` in the process of `w`, which has been left; without -f nothing else looks
 * for them. Not those that the session has yet to leave; none for a fork child that is watched.
 * Reads the maps of each process that was born since the watch began. */
struct scry_hooked_children scry_hooked_children_find(const struct scry_watch *w,
						      const struct scry_agent_header *of);

#endif
