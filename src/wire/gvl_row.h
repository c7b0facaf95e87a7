/*
 * Rows, pairs and what is given back of the table in wire/gvl.h: its parts. Freestanding.
 */
#ifndef SCRY_WIRE_GVL_ROW_H
#define SCRY_WIRE_GVL_ROW_H

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
#define SCRY_GVL_USES_MAX (1u << 20) /* uses are fewer: so the highest bit is free */
_Static_assert(SCRY_GVL_THREADS == 1u << 11, "the shift above");

/* A thread's struct; another thread may have it later. th 0: the row is free. In its first line is
 * what a take or give needs that no thread waits for. */
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
	uint64_t lost; /* ticks that others waited while it had the lock; of row 0: while no thread
			  had it, as it changed hands */
	uint64_t old_wait; /* from the first event to the end of the wait that was on then */
	/* Of the yields: Thread.pass was what ran; it was not, so the VM asked for it. Of
	 * the others it could not be seen. */
	uint64_t passes, forced;
	uint64_t overtakes; /* times that it got the lock while others had waited for it */
	/* Runs of such takes, with no take in between of a thread that had waited, that it began:
	 * their number, ticks of all and of the longest, most takes in one. */
	uint64_t runs, run_ticks, run_longest, run_most;
	uint64_t brief, brief_waits; /* ticks and number of waits that are too short for a stack */
	uint32_t place;		     /* among those that want it; of a free row: the next one */
	uint32_t uses;		     /* times that the row was given back: SCRY_GVL_WHO */
	uint32_t lengths[SCRY_GVL_STEPS]; /* of waits */
} SCRY_GVL_LINE;

struct scry_gvl_pair {	/* time that `waiter` lost while `holder` had the lock */
	uint32_t key;	/* waiter << 16 | holder, + 1; holder 0: none, the lock changed hands */
	uint32_t waits; /* times that it held it while the other waited, UINT32_MAX at most */
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

#endif
