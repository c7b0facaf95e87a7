/*
 * The keeper's end of the ring: copies what the agent has published, in order, segment by segment.
 *
 * What is read is hostile: indices and sizes are checked, and a ring that makes no sense is given
 * up.
 */
#ifndef SCRY_HOOK_RING_H
#define SCRY_HOOK_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "hook/inject.h"
#include "sys/ticks.h"

struct scry_ring {
	struct scry_control *control;
	const uint64_t *words;
	uint64_t tail;		      /* words consumed, ever */
	uint32_t segment;	      /* being read */
	uint32_t at;		      /* next word in it */
	struct scry_ticks_pair waits; /* since when a thread is seen to wait */
};

/* Begins where the agent is now; what it wrote for an earlier keeper is skipped. After
 * scry_inject_enter, before a watch is wanted. 0 or -errno: the target is gone. */
int scry_ring_open(struct scry_ring *r, struct scry_inject *inj);

/* Begins at the first word ever written to a child buffer (wire/child_buffers.h), which was clean
 * when taken. */
void scry_ring_open_child_buffer(struct scry_ring *r, struct scry_control *control,
				 const uint64_t *words);

/*
 * Copies all published words into `out` (room for SCRY_RING_WORDS) and gives their segments back.
 * Returns the count, or -EIO: not written by our agent. *ret_fill: how full the ring was, 0..1000.
 */
ssize_t scry_ring_take(struct scry_ring *r, uint64_t *out, int *ret_fill);

/* Does a VM wait for us (agent/last.c), and for what? At its end all is to be taken and done that
 * needs its memory. */
bool scry_ring_waits(struct scry_ring *r, enum scry_look *ret_for);
/* It may go on. For how many ns it has waited. */
uint64_t scry_ring_let_go(struct scry_ring *r);

#endif
