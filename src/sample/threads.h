/*
 * The threads that are sampled: which threads are in the VM's list, and what they are called, as
 * THREAD events. The program may give a thread a name at any time, and a new one has its parent's
 * until it runs: the last event of a thread holds.
 */
#ifndef SCRY_SAMPLE_THREADS_H
#define SCRY_SAMPLE_THREADS_H

#include "sample/samples.h"

/* Which threads are there now, into s->threads; `anew`: also if the list is as it was. A list that
 * changes while it is read is read at the next tick. 0, -ESRCH or -ENOMEM. */
int scry_samples_list_threads(struct scry_samples *s, bool anew);

/* Names that have changed, at most once in 20 ms. `now_ns` of CLOCK_MONOTONIC; UINT64_MAX: the
 * last look, at all. */
void scry_samples_names(struct scry_samples *s, uint64_t now_ns);

#endif
