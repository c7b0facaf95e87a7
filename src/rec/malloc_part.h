/*
 * Parts of a malloc recording: what one process did while it ran one program. A process that execs
 * goes on as another part, with the same pid: its first one ends with a DETACH event. Threads,
 * callers and blocks are numbered anew in each.
 */
#ifndef SCRY_REC_MALLOC_PART_H
#define SCRY_REC_MALLOC_PART_H

#include "base/buf.h"
#include "wire/event.h"

#include <stdbool.h>
#include <stdint.h>

struct scry_malloc_part {
	uint32_t pid;
	uint32_t image; /* which program of that pid: 0, 1, ... */
	uint64_t calls;
	uint32_t ended; /* programs of that pid, while events are looked at */
};

/* The part with most calls of process `pid`, 0: of all. Reads heads of chunks only. 0; -ENOENT
 * without a sentence: there are no calls; -EINVAL with one that lists processes: none of that one;
 * or the reader's error. */
int scry_malloc_part_choose(int fd, uint32_t pid, struct scry_malloc_part *ret);
/* For people: the other processes and how many calls each made; "" none. 0 or the reader's error.
 */
int scry_malloc_part_others(int fd, const struct scry_malloc_part *part, struct scry_buf *ret);

/* Before a pass through all events. */
void scry_malloc_part_rewind(struct scry_malloc_part *part);
/* Looks at the next event of the pass, of any type; `pid`: whose it is. Does it belong to the part?
 */
bool scry_malloc_part_has(struct scry_malloc_part *part, const struct scry_event *event,
			  uint32_t pid);

#endif
