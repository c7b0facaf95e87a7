/*
 * Payloads of what a Ruby VM's lock (GVL) did: one GVL event for each lock, then a row for each
 * thread, then the pairs. Threads are numbered within the process, from 1, those of the second
 * ractor from SCRY_GVL_RACTOR + 1, and so on.
 */
#ifndef SCRY_WIRE_PAYLOAD_GVL_H
#define SCRY_WIRE_PAYLOAD_GVL_H

#include <stdint.h>

#define SCRY_GVL_ROOM 2047u /* threads of a process at a time, in one watch */
/* thread: from here on all of a name that have ended, but for those with a row of their own */
#define SCRY_GVL_ENDED_FROM 4096u
#define SCRY_GVL_RACTOR 8192u
#define SCRY_GVL_RACTORS_ROOM 16u /* beside the first one, at a time */
#define SCRY_GVL_PLACES 8u	  /* 0 to 6 threads, and more */

struct scry_ev_gvl {
	uint32_t pid;
	uint32_t can_take_back; /* 1: a grant may be another's before its thread runs */
	uint64_t watched_ns;	/* in which events were taken */
	uint64_t unknown_ns;	/* of that, before anything was known */
	uint64_t contended_ns;	/* a thread wanted it */
	uint64_t ends;		/* of critical sections that were seen */
	/* time with so many threads that wanted, were granted or held it */
	uint64_t runnable0_ns, runnable1_ns, runnable2_ns, runnable3_ns, runnable4_ns, runnable5_ns,
		runnable6_ns, runnable7_ns;
	uint64_t handing_ns;  /* of the waiting of all: no thread had the lock, it changed hands */
	uint64_t unpaired_ns; /* of the waiting: in no pair, there are too many */
	uint64_t cpu_ns;      /* processor time of the process meanwhile; UINT64_MAX: not known */
	uint64_t stacks;      /* 1: the stack of each wait that is over was taken */
	uint64_t unstacked;   /* of these waits: there was no room for it */
	/* Turns of threads that found no room in the table: whatever is reported of the lock is too
	 * low. The first one so long after the watch began. */
	uint64_t crowded, crowded_after_ns;
	uint64_t ractors; /* others, at most at a time, each with a lock that was not seen */
	uint64_t unread;  /* waits whose stack was too deep to be taken, or could not be read */
	uint64_t boot_ns; /* of a program that was started: from then until its VM was up, which is
			   * not in the watch */
	uint64_t ractor;  /* whose lock it is: 1 the first one, others as scry saw them; 0: the
			   * first, in old recordings */
	uint64_t is_over; /* 1: that ractor has ended, and the watch of its lock with it */
};

struct scry_ev_gvl_thread {
	uint32_t pid;
	uint32_t thread; /* its number */
	uint32_t tid;	 /* 0: not known */
	uint32_t name_str;
	uint32_t threads; /* that had this place one after the other, or that it sums; 0, 1: one */
	uint32_t has_ended;
	uint64_t held_ns, wanted_ns, granted_ns, without_ns, unknown_ns;
	uint64_t takes;				 /* times that it got the lock */
	uint64_t yields;			 /* times that it gave it and wanted it at once */
	uint64_t taken_back;			 /* grants that another thread got before it ran */
	uint64_t waits;				 /* that are over, and began in the watch */
	uint64_t p50_ns, p90_ns, p99_ns, max_ns; /* of these; the first three within 6 % */
	uint64_t lost_ns;   /* by others, while it had the lock; whatever is in the pairs */
	uint64_t older_ns;  /* a wait that the watch began in, from then to its end; 0: none */
	uint64_t open_ns;   /* a wait that was not over at the end, up to then; 0: none */
	uint64_t passes;    /* of the yields: by Thread.pass */
	uint64_t forced;    /* of the yields: not by it; of the others it is not known */
	uint64_t overtakes; /* takes while others had waited for it */
	/* Runs of these, by it and others, that it began; no thread that had waited got it between:
	 * their number, time, the longest in time, the most takes of one. */
	uint64_t runs, runs_ns, run_max_ns, run_most;
	uint64_t cpu_ns; /* processor time in the watch, plus 1; 0: not known */
	/* Of that, by samples of eBPF: while it had the lock by the table, and while it had not. 0
	 * both: it was not sampled. */
	uint64_t ran_held_ns, ran_else_ns;
	/* Pairs of looks at it while it had not the lock; of these: it ran Ruby code in between. */
	uint64_t looks, contradicted;
};

struct scry_ev_gvl_pair { /* what a thread lost while another one had the lock */
	uint32_t pid;
	uint32_t waiter;
	uint32_t holder; /* 0: none, the lock changed hands */
	uint32_t waits;	 /* times that it had it while the other waited; 0: not known */
	uint64_t lost_ns;
};

struct scry_ev_gvl_line { /* a stack of a holder, while others wanted it */
	uint32_t pid;
	uint32_t holder;
	uint32_t stack;	  /* id of a STACK event; 0: it could not be read */
	uint32_t samples; /* 0: the holder was never looked at */
	uint64_t lost_ns; /* by all that waited: their share of the exact sum, by samples */
};

struct scry_ev_gvl_wait_line { /* a stack of a waiter */
	uint32_t pid;
	uint32_t waiter;
	uint32_t stack;	  /* id of a STACK event; 0: it was not read */
	uint32_t samples; /* 0: the waiter was never looked at */
	uint64_t lost_ns; /* its share of what it waited, by samples; with `stacks`: exact */
	uint64_t waits;	  /* with `stacks`: that are over; then there are no samples */
	uint64_t max_ns;  /* the longest of these */
};

#endif
