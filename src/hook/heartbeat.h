/*
 * The keeper's heartbeat: a thread that keeps leases fresh (wire/control.h) while the keeper itself
 * does not come round: it is in a write to a slow disk, in a page fault, or waits for a processor.
 *
 * For recordings that may not have holes. A thread that finds no room waits for a keeper that lives
 * (wire/thread_buffers.h): as long as the keeper is late, each of its ticks is also reported to
 * those that wait. Both end `patience` after the keeper was last here: one that hangs for good
 * holds no thread. One that is stopped or killed has none either, as no thread of it runs.
 *
 * A lease is never shortened, and one that is 0 stays so: it was taken back. Not for processes
 * whose loader waits for us (hook/loads): a keeper that changes code there takes the lease's end
 * for the sign that a thread has gone on.
 *
 * Life: new -> keep and forget controls, beat in each turn -> free. Calls by one thread, the
 * keeper's.
 */
#ifndef SCRY_HOOK_HEARTBEAT_H
#define SCRY_HOOK_HEARTBEAT_H

#include <stddef.h>
#include <stdint.h>

#include "wire/control.h"

#define SCRY_LEASE_NS 1000000000ull /* handlers record this long after the last refresh */

struct scry_heartbeat;

/* Control pages that lie `stride` bytes apart. */
struct scry_heartbeat_controls {
	struct scry_control *first;
	size_t stride;
	uint32_t count;
};

/* Starts the thread. 0 or -errno with a sentence. */
int scry_heartbeat_new(uint64_t patience_ns, struct scry_heartbeat **ret);
void scry_heartbeat_free(struct scry_heartbeat *p); /* NULL is legal, here and below */

/* The keeper is here, and comes again soon. */
void scry_heartbeat_beat(struct scry_heartbeat *p);
/* The longest time without one, in ns. */
uint64_t scry_heartbeat_gap_ns(const struct scry_heartbeat *p);

/* From now on these are kept fresh; or no more: when forget returns no thread touches them.
 * -ENOMEM: no room. */
int scry_heartbeat_keep(struct scry_heartbeat *p, const struct scry_heartbeat_controls *controls);
void scry_heartbeat_forget(struct scry_heartbeat *p, const struct scry_control *first);

#endif
