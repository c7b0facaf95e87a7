/*
 * All threads of a process held at once, for the one moment in which code is changed.
 *
 * Threads come and go: the list is read again until nothing new appears. A thread that cannot stop
 * (vfork in flight, D state) must not hold the others: after the deadline all are released. The
 * pause is measured from the first interrupt to the last release.
 */
#ifndef SCRY_SYS_WORLD_H
#define SCRY_SYS_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include "sys/tracee.h"

struct scry_world {
	pid_t pid;
	struct scry_tracee *threads;
	size_t count, capacity;
	uint64_t began_ns, pause_ns;
};

/* Stops all threads within `max_pause_ns`, up to five tries. 0; -EBUSY with a sentence (who would
 * not stop), all released; -EPERM; -ESRCH. */
int scry_world_stop(struct scry_world *w, pid_t pid, uint64_t max_pause_ns);
/* Lets all go, measures the pause, frees the list. Legal after a failed stop. */
void scry_world_release(struct scry_world *w);

/* The first thread whose ip lies in [start, end), or NULL. Only while stopped. */
const struct scry_tracee *scry_world_inside(const struct scry_world *w, uint64_t start,
					    uint64_t end);
/* A thread in which a call may be made, preferring one without a restart block; NULL: none. */
struct scry_tracee *scry_world_caller(const struct scry_world *w, const struct scry_maps *maps);

#endif
