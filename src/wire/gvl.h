/*
 * What the agent counts of a Ruby VM's lock (GVL). What the host gives to it: wire/gvl_plan.h. The
 * locks of other ractors than the first have tables of their own: wire/gvl_others.h.
 *
 * The table lies where an instrument with records has its ring: behind the control and account
 * pages. Whoever is in the VM's critical section writes it, just before the section ends, so there
 * is one writer at a time; the keeper reads it whole between two equal, even values of `sequence`.
 * Behind it is a ring of waits that are over: wire/gvl_wait.h. Times are ticks of the TSC.
 * Freestanding. What the host reads here is hostile.
 */
#ifndef SCRY_WIRE_GVL_H
#define SCRY_WIRE_GVL_H

#include "wire/control.h"
#include "wire/gvl_row.h"

#include <stddef.h>
#include <stdint.h>

struct scry_gvl_table {	    /* zero at first; in its first line is what a quiet event needs */
	uint64_t sequence;  /* twice the number of events, which are ends of critical sections */
	uint64_t last;	    /* event */
	uint64_t changed;   /* when `runnable` changed last */
	uint64_t tail;	    /* of the queue, as it was last: a node */
	uint64_t lease_end; /* as it was when it was looked at; it may have been extended */
	union {
		struct {
			uint16_t owner;	   /* row; 0: none */
			uint16_t recent;   /* the row that gave it last, while none waited;
					    * 0: others waited, or it has had another owner since */
			uint16_t wanting;  /* how many of `waiting` */
			uint16_t runnable; /* threads that want, were granted or hold it */
		};
		uint64_t roles; /* all four, in that order from bit 0 on */
	};
	uint64_t by_runnable[SCRY_GVL_RUNNABLE]; /* ticks; 0 and 1 are on the first line */
	uint64_t over;				 /* the lease was over */
	uint64_t began;				 /* first event */
	uint64_t contended; /* ticks in which a thread wanted it, up to when that ended last ... */
	uint64_t wanted_since; /* ... and since when one does */
	uint64_t crowded;      /* threads that found no row */
	uint64_t lost_pairs;   /* ticks that found no pair; the rows' `lost` has them */
	uint64_t births;       /* threads, by their Thread objects: a new one is there */
	uint64_t busy;	       /* events in a signal handler that interrupted the table's writer */
	uint64_t strange;      /* what the queue should not have been */
	uint64_t run_takes;    /* in the run that is on; 0: there is none */
	uint64_t run_began;
	uint32_t run_row;   /* the row that began it */
	uint32_t rows;	    /* in use, row 0 included */
	uint64_t ring_head; /* words of the ring that were ever written, and that the keeper ... */
	uint64_t ring_tail; /* ... has read: it alone writes this */
	uint64_t unstacked; /* waits that found no room there */
	uint64_t crowded_since; /* when the first thread found no row; 0: none did */
	/* Times that another native thread ran a thread than before; tid of the one before, at the
	 * last. If that has ended it was another thread, with struct and object of the first. */
	uint64_t moves;
	uint64_t moved_from;
	/*
	 * Rows given back. The keeper writes the list, then one more into `asked`; the agent frees
	 * rows of the list, goes to the other pairs, which name none of them, and writes `asked`
	 * into `given`. The pairs that it has left are the keeper's, to be read and made zero
	 * before it asks again.
	 */
	uint32_t asked, given;
	uint32_t ended_count;
	uint32_t pairs_at;  /* those in use */
	uint32_t free_row;  /* 0: none */
	uint32_t free_rows; /* how many */
	/* Of another ractor's lock (wire/gvl_others.h): its mutex, 0: the table is free; how many
	 * locks had the table, with this one; 1: its mutex was made anew, as another one. */
	uint64_t mutex;
	uint32_t uses, is_over;
	/* Keeper: as the table of `may_go` was at this sequence it was read, and that was all. */
	uint64_t may_go_at;
	uint32_t may_go;
	/* In the first ractor's: tables in use, or that were. Locks that found none; mutexes of
	 * which it is not known whether they were locks. */
	uint32_t others;
	uint64_t refused, unproven;
	struct scry_gvl_ended ended[SCRY_GVL_ENDED];
	uint16_t slots[SCRY_GVL_SLOTS];
	uint16_t waiting[SCRY_GVL_THREADS];
	struct scry_gvl_pair pairs[2][SCRY_GVL_PAIRS];
	struct scry_gvl_row row[SCRY_GVL_THREADS];
} SCRY_GVL_LINE;
_Static_assert(sizeof(struct scry_gvl_table) <= SCRY_RING_WORDS * 8ull, "it lies in the ring");
_Static_assert(offsetof(struct scry_gvl_table, ended) % 16 == 0, "arrays follow in others, too");
_Static_assert(offsetof(struct scry_gvl_table, by_runnable[2]) == 64 &&
		       offsetof(struct scry_gvl_row, is_queued) == 64,
	       "what a quiet event needs is on one line each");

static inline uint64_t scry_gvl_events(const struct scry_gvl_table *t)
{
	return t->sequence / 2;
}

/* The step that a wait of so many ticks belongs to, and the least ticks of a step. */
static inline uint32_t scry_gvl_step(uint64_t ticks)
{
	uint32_t octave, step;

	if (ticks >> SCRY_GVL_LEAST == 0)
		return 0;
	octave = 63 - (uint32_t)__builtin_clzll(ticks);
	step = (octave - SCRY_GVL_LEAST) * 8 + (uint32_t)(ticks >> (octave - 3) & 7) + 1;
	return step < SCRY_GVL_STEPS ? step : SCRY_GVL_STEPS - 1;
}

static inline uint64_t scry_gvl_least(uint32_t step)
{
	if (!step)
		return 0;
	return (8ull + (step - 1) % 8) << ((step - 1) / 8 + SCRY_GVL_LEAST - 3);
}

#endif
