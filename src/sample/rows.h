/*
 * The sums of a sampler: a row for each thread, stack and state; and what of them is known at the
 * end only, which is what thread has run for how long (sample/cpu).
 */
#ifndef SCRY_SAMPLE_ROWS_H
#define SCRY_SAMPLE_ROWS_H

#include "sample/samples.h"

void scry_samples_rows_init(struct scry_samples *s);

/* The row of the thread's number, stack and state, + 1; 0 at the limit, or without memory. Rows may
 * move. */
size_t scry_samples_row(struct scry_samples *s, const struct scry_samples_thread *t);

/* Once, before rows are written: what threads have run, to the stacks that were seen while they
 * did, the rest to a stack that says so; and states after it. */
void scry_samples_place(struct scry_samples *s);

#endif
