/*
 * The process held for each look at its stacks (sys/pause), and how long: for a tenth of the time
 * at most, looks that would make it more are left out.
 */
#ifndef SCRY_SAMPLE_PAUSE_H
#define SCRY_SAMPLE_PAUSE_H

#include "sys/pause.h"
#include "wire/payload.h"

#define SCRY_SAMPLES_PAUSE_SHARE 10u /* of the time, the tenth */
#define SCRY_SAMPLES_PAUSE_STEPS 16u /* to a doubling */
#define SCRY_SAMPLES_PAUSE_ROUNDS 32 /* of a look that is made again, as a thread woke */

struct scry_samples_pause {
	struct scry_pause hold;
	uint64_t not_before_ns; /* the next look */
	uint64_t owed_ns;	/* what the next look stands for besides its own */
	int rounds;		/* of this look */
	struct scry_ev_pauses sums;
	uint64_t lengths[64 * SCRY_SAMPLES_PAUSE_STEPS]; /* how many were so long */
};

/* As scry_pause_open; -ENOMEM. */
int scry_samples_pause_open(pid_t pid, struct scry_samples_pause **ret);
void scry_samples_pause_close(struct scry_samples_pause *p); /* NULL is legal */

/*
 * Holds the process for a look that stands for *stands_ns. 1: held, and *stands_ns is what it has
 * to stand for; 0: not now, it is kept for the next; -ESRCH, -ENOMEM.
 */
int scry_samples_pause_begin(struct scry_samples_pause *p, uint64_t *stands_ns);
/* Was all read while no thread ran? 1; 0: once more, it is held; 2: it had to be released; or
 * -errno.
 */
int scry_samples_pause_holds(struct scry_samples_pause *p, uint64_t stands_ns);
/* Lets go, and counts. */
void scry_samples_pause_end(struct scry_samples_pause *p);

/* What task `tid` did when it was held, or does: as scry_task_read. */
void scry_samples_pause_task(const struct scry_samples_pause *p, pid_t tid,
			     struct scry_task_now *ret);
/* Its registers, while it is held; NULL: it is not. */
const struct user_regs_struct *scry_samples_pause_registers(const struct scry_samples_pause *p,
							    pid_t tid);

/* All that was counted. */
struct scry_ev_pauses scry_samples_pause_sums(const struct scry_samples_pause *p);

#endif
