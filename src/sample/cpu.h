/*
 * Processor time of sampled threads: how much it is, the kernel counts; which thread used it, the
 * looks say.
 *
 * What a thread has run is shared out among the stacks with which it was seen running, by the time
 * that those looks stand for. None of it goes to a stack with which it was seen waiting, or only
 * ready to run: a thread that was woken is seen with the stack of the call that made it wait. A
 * thread that was seen running or ready N times has run for up to (1 + 1/sqrt(N))^2 of what these
 * looks stand for by chance; what is beyond that, or of a thread that was never seen running, is no
 * thread's: it is unknown.
 */
#ifndef SCRY_SAMPLE_CPU_H
#define SCRY_SAMPLE_CPU_H

#include <stddef.h>

#include "base/map.h"
#include "sys/task.h"
#include "wire/payload.h"

struct scry_samples_cpu_thread {
	uint64_t began_ns;  /* what its task had run when it was first seen */
	uint64_t ran_ns;    /* since then */
	uint64_t seen_ns;   /* what the looks at which it was running stand for */
	uint64_t ready_ns;  /* the same, running or made to wait for a processor */
	uint64_t ready;	    /* how many these are */
	uint64_t placed_ns; /* of ran_ns */
};

struct scry_samples_cpu {
	struct scry_samples_cpu_thread *threads; /* by number, from 1 */
	size_t count, room;
	struct scry_map ran;  /* tid -> what it had run when it was left */
	uint64_t began_ticks; /* the kernel's, since boot */
	bool has_begun; /* the first list is read: a thread that comes now is new, or another's */
};

void scry_samples_cpu_init(struct scry_samples_cpu *c);
void scry_samples_cpu_done(struct scry_samples_cpu *c);

/* A thread gets the next number. 0 or -ENOMEM. */
int scry_samples_cpu_hit(struct scry_samples_cpu *c, pid_t tid, const struct scry_task_now *now);
/* Its task is another now, or the same again; `tid` 0: it has none. */
void scry_samples_cpu_task(struct scry_samples_cpu *c, uint32_t number, pid_t tid,
			   const struct scry_task_now *now);
/* What it has run until now. */
void scry_samples_cpu_ran(struct scry_samples_cpu *c, uint32_t number,
			  const struct scry_task_now *now);
/* It is not looked at any more, under this number. */
void scry_samples_cpu_leave(struct scry_samples_cpu *c, uint32_t number, pid_t tid);
/* It was running at a look that stands for so long, or `is_ready` to, and on no processor. */
void scry_samples_cpu_seen(struct scry_samples_cpu *c, uint32_t number, uint64_t stands_ns,
			   bool is_ready);

/* Of looks of a thread with one stack that stand for `seen_ns`: its share of what was run. */
uint64_t scry_samples_cpu_place(struct scry_samples_cpu *c, uint32_t number, uint64_t seen_ns);
/* When all are placed: what belongs to no thread. */
uint64_t scry_samples_cpu_unknown(const struct scry_samples_cpu *c, uint32_t number);

#endif
