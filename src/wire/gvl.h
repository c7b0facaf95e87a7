/*
 * What the agent counts of a Ruby VM's lock (GVL). What the host tells it of that: wire/gvl_plan.h.
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

#include <stddef.h>
#include <stdint.h>

#define SCRY_GVL_THREADS 2048u /* rows; row 0: those that found none, not timed */
#define SCRY_GVL_SLOTS 4096u   /* of the hash of rows */
#define SCRY_GVL_PAIRS 65536u
#define SCRY_GVL_ENDED 256u /* rows that are given back in one go */
#define SCRY_GVL_PROBES 64u
#define SCRY_GVL_RUNNABLE 33u /* 0 to 31 threads at a time, and more */
/* Lengths of waits: eight steps to an octave, from 2^SCRY_GVL_LEAST ticks on. */
#define SCRY_GVL_LEAST 6u
#define SCRY_GVL_STEPS 304u

#define SCRY_GVL_LINE __attribute__((aligned(64)))

enum scry_gvl_state {
	SCRY_GVL_UNKNOWN, /* nothing has been seen of it */
	SCRY_GVL_OFF,	  /* without the lock, and does not want it */
	SCRY_GVL_WANTS,
	SCRY_GVL_GRANTED, /* the VM has given it the lock, and it has not run since */
	SCRY_GVL_HOLDS,
};

/* Which row it is, and whose: another thread's that has the row later is another number. */
#define SCRY_GVL_WHO(row, uses) ((uint32_t)(row) | (uint32_t)(uses) << 11)
#define SCRY_GVL_USES_MAX (1u << 20)
_Static_assert(SCRY_GVL_THREADS == 1u << 11, "the shift above");

/* A thread's struct; another thread may have it later. th 0: the row is free. In its first line is
 * what a take or give needs that nobody waits for. */
struct scry_gvl_row {
	uint64_t th;
	uint64_t self;	/* its Thread object */
	uint64_t since; /* when `state` began */
	uint64_t held;	/* ticks, of states that are over */
	uint64_t takes; /* times that it got the lock */
	uint32_t state; /* enum scry_gvl_state */
	uint32_t tid;	/* of the native thread that ran it, as that knows itself; 0: not seen */
	uint64_t moves; /* times that it was another one than before, of the same Thread object */
	uint64_t first; /* event */
	uint16_t is_queued, is_old; /* is_old: the wait was on at the first event */
	uint32_t threads;	    /* that had this struct, seen by their Thread objects */
	uint64_t wanted, granted;   /* ticks, of states that are over */
	uint64_t waits, longest;    /* waits that are over; is_old ones are not among them */
	uint64_t wait_began;
	uint64_t lost_since; /* its share of waiting is in the pairs up to here */
	uint64_t yields;     /* times that it gave the lock and wanted it at once */
	uint64_t taken_back; /* grants that were another's before it ran */
	uint64_t lost;	     /* ticks that others waited while it had the lock; of row 0: while
			      * nobody had it, as it changed hands */
	uint64_t old_wait;   /* from the first event to the end of the wait that was on then */
	/* Of the yields: Thread.pass was what ran; it was not, so the VM asked for it. Of
	 * the others it could not be seen. */
	uint64_t passes, forced;
	uint64_t overtakes; /* times that it got the lock while others had waited for it */
	/* Runs of such takes, with nobody's between who had waited, that it began: their number,
	 * ticks of all and of the longest, most takes in one. */
	uint64_t runs, run_ticks, run_longest, run_most;
	uint32_t place; /* among those that want it; of a free row: the next one */
	uint32_t uses;	/* times that the row was given back: SCRY_GVL_WHO */
	uint32_t lengths[SCRY_GVL_STEPS]; /* of waits */
} SCRY_GVL_LINE;

struct scry_gvl_pair { /* time that `waiter` lost while `holder` had the lock */
	uint64_t key;  /* waiter << 16 | holder, + 1; holder 0: nobody, the lock changed hands */
	uint64_t ticks;
};

/*
 * A thread has ended that the keeper has read the row of. Whether it is as it was then, so that all
 * that was counted is read, is known by when its state began: it has had nothing to do since.
 */
struct scry_gvl_ended {
	uint64_t since;
	uint32_t row;
	uint32_t is_free; /* the agent's answer */
};

struct scry_gvl_table {	    /* zero at first; in its first line is what a quiet event needs */
	uint64_t sequence;  /* twice the number of events, which are ends of critical sections */
	uint64_t last;	    /* event */
	uint64_t changed;   /* when `runnable` changed last */
	uint64_t tail;	    /* of the queue, as it was last: a node */
	uint64_t lease_end; /* as it was when it was looked at; it may have been extended */
	union {
		struct {
			uint16_t owner;	   /* row; 0: nobody */
			uint16_t recent;   /* the row that gave it last, while nobody waited;
					    * 0: others waited, or it has had another owner since */
			uint16_t wanting;  /* how many of `waiting` */
			uint16_t runnable; /* threads that want, were granted or hold it */
		};
		uint64_t roles; /* all four, in that order from bit 0 on */
	};
	uint64_t by_runnable[SCRY_GVL_RUNNABLE]; /* ticks; 0 and 1 are on the first line */
	uint64_t over;				 /* the lease was over */
	uint64_t began;				 /* first event */
	uint64_t contended; /* ticks in which somebody wanted it, up to when that ended last ... */
	uint64_t wanted_since; /* ... and since when somebody does */
	uint64_t crowded;      /* threads that found no row */
	uint64_t lost_pairs;   /* ticks that found no pair; the rows' `lost` has them */
	uint64_t births;       /* threads, by their Thread objects: somebody new is there */
	uint64_t busy;	       /* events in a signal handler that interrupted the table's writer */
	uint64_t strange;      /* what the queue should not have been */
	uint64_t run_takes;    /* in the run that is on; 0: there is none */
	uint64_t run_began;
	uint32_t run_row;   /* who began it */
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
	struct scry_gvl_ended ended[SCRY_GVL_ENDED];
	uint16_t slots[SCRY_GVL_SLOTS];
	uint16_t waiting[SCRY_GVL_THREADS];
	struct scry_gvl_pair pairs[2][SCRY_GVL_PAIRS];
	struct scry_gvl_row row[SCRY_GVL_THREADS];
} SCRY_GVL_LINE;
_Static_assert(sizeof(struct scry_gvl_table) <= SCRY_RING_WORDS * 8ull, "it lies in the ring");
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
