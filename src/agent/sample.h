/*
 * Sampling: see sample.c.
 */
#ifndef SCRY_AGENT_SAMPLE_H
#define SCRY_AGENT_SAMPLE_H

#include "wire/control.h"
#include "wire/ruby_ring.h"

#define SCRY_TRACKED 65536u /* entries; at most half of them are living objects */
#define SCRY_SAMPLE_FILTER_BITS 524288u

struct scry_sampled {
	uint64_t object;
	/* when a GC last had marked: */
	int64_t extra : 62;	/* bytes outside the slot, or unknown */
	uint64_t end_class : 2; /* enum scry_ring_class */
};
_Static_assert(sizeof(struct scry_sampled) == 16, "the host reads the table");

struct scry_agent_sampled {
	uint32_t used; /* entries that are not empty, removed ones included */
	uint32_t reserved;
	uint64_t filter[SCRY_SAMPLE_FILTER_BITS / 64];
	uint64_t living[SCRY_TRACKED / 64]; /* a bit for each entry that is an object */
	struct scry_sampled entries[SCRY_TRACKED], scratch[SCRY_TRACKED / 2];
};

/* How many objects (or units of bytes) until the next sample. */
int64_t scry_sample_gap(struct scry_state_page *g);
/* `object` was taken: its end is waited for. */
void scry_sample_track(struct scry_state_page *g, uint64_t object);
/* An object is made at `object`: if one was taken there, that one is dead. */
void scry_sample_reused(struct scry_state_page *g, uint64_t object);
/* `object` ends; not 0: it was taken, and is waited for no longer. */
int scry_sample_ended(struct scry_state_page *g, uint64_t object);
/* A GC has marked: those are sized whose end is seen only when their content is gone. */
void scry_sample_measure(void);
/*
 * A GC has marked or swept: those of the objects taken that are dead, each once; the caller says
 * so in the ring. *cursor begins with 0; the answer 0 ends.
 */
int scry_sample_next_dead(struct scry_state_page *g, uint32_t event, uint32_t *cursor,
			  struct scry_sampled *ret);
/* A compaction moved the object at `from`; not 0: it is a sampled one. */
int scry_sample_moved(struct scry_state_page *g, uint64_t from, uint64_t to);
/* Calls `moved` for every sampled object that the compaction under way has moved. Of the others the
 * keeper learns that they are no longer followed, where the VM does not say what it has marked. */
void scry_sample_walk(void (*moved)(void *, uint64_t from, uint64_t to), void *context);
void scry_sample_forget_all(struct scry_state_page *g);

/* Neighbours share a word of the filter: allocation walks through the heap in order. */
static inline uint32_t scry_sample_bit(uint64_t object)
{
	return object >> 3 & (SCRY_SAMPLE_FILTER_BITS - 1);
}

#endif
