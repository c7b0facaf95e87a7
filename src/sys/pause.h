/*
 * What runs of a process is held for the moment of a look; what waits stays untouched, and is asked
 * afterwards whether it has waited all the time. So a look at all threads is of one moment, and no
 * call in which a thread waits is disturbed.
 *
 * Between two looks no thread is traced. If scry dies while threads are held, they run on: the
 * kernel releases them, and all that may have been changed is the answer of a call that the
 * stop cut short (scry_tracee_mend).
 *
 * Order: open; then hold, (read, settle) until none has woken, release; close.
 */
#ifndef SCRY_SYS_PAUSE_H
#define SCRY_SYS_PAUSE_H

#include <signal.h>

#include "sys/hurry.h"
#include "sys/task.h"
#include "sys/tracee.h"

struct scry_pause_task {
	pid_t tid;
	struct scry_task task;
	struct scry_task_now now;  /* before it was held */
	struct scry_tracee tracee; /* valid while it is held */
	bool is_held, is_here;
};

struct scry_pause {
	pid_t pid;
	struct scry_pause_task *tasks;
	size_t count, room;
	struct scry_hurry hurry;
	sigset_t mask; /* ours, to be had back: a ^Z comes when none is stopped */
	bool is_on;
	unsigned int
		lost; /* looks for which one is looked for that was asked to stop and is gone */
	uint64_t began_ns; /* from then on one may have been stopped; 0: none was */
	uint64_t last_ns;  /* how long the last hold was, until the last release */
	uint32_t held;	   /* threads, in it */
};

/* Asks whether threads may be held. 0; -EPERM with a sentence: another traces it; -ESRCH. */
int scry_pause_open(struct scry_pause *p, pid_t pid);
/* Releases. Legal for zeroes. */
void scry_pause_close(struct scry_pause *p);

/* Holds all that run. 0; else none is held: -EBUSY, one would not stop within `max_ns` of
 * another, or had no processor to stop on for ten times that, or some woke at each of 64 looks;
 * -EPERM, another traces it now; -ESRCH; -ENOMEM.
 */
int scry_pause_hold(struct scry_pause *p, uint64_t max_ns);
/* 0: one that is not held has not run since the call before. 1: some have, and are held now if they
 * still run: what was read since may be torn. Else as scry_pause_hold. */
int scry_pause_settle(struct scry_pause *p, uint64_t max_ns);
void scry_pause_release(struct scry_pause *p);

/* The task `tid`, until the next call; NULL: there is none. */
const struct scry_pause_task *scry_pause_find(const struct scry_pause *p, pid_t tid);

#endif
