/*
 * The eBPF engine of `scry stacks`: each thread of a process gives its stack at the ticks of its
 * own processor clock (bpf/stacks.bpf.c), and its samples are told to name/samples. A thread that
 * does not run gives nothing.
 *
 * Life: open, attach, turn each few milliseconds, close. In the process nothing is changed; when
 * scry ends, however it does, the kernel takes the clocks off.
 */
#ifndef SCRY_CMD_STACKS_CLOCK_H
#define SCRY_CMD_STACKS_CLOCK_H

#include "name/samples.h"

struct scry_clock;

/*
 * Loads the program for this Ruby. `samples` stays the caller's, and has a clock from now on. 0;
 * -EPERM, -ENOTSUP, -ENOMEM with a sentence: then `samples` is as it was.
 */
int scry_clock_open(struct scry_samples *samples, uint64_t rate, struct scry_clock **ret);
void scry_clock_close(struct scry_clock *c); /* NULL is legal */

/* Puts the clock on every thread; those that they start have it too. 0 or -errno with a sentence.
 */
int scry_clock_attach(struct scry_clock *c);

/* Threads that could not be given a clock, as they came while it was put on the others. */
size_t scry_clock_missing(const struct scry_clock *c);

/* Lists the threads when it is due, and counts all that has come. 0; -ESRCH: the program is gone;
 * or -errno. */
int scry_clock_turn(struct scry_clock *c);

/* Rests: a millisecond while code is seen that was not known, four while samples come, and up to 16
 * while none do. */
void scry_clock_wait(struct scry_clock *c);

/* Takes the clocks off, counts what is left, and writes the sums into samples->sums. */
void scry_clock_end(struct scry_clock *c);

#endif
