/*
 * The eBPF engine of `scry stacks`: a clock ticks on each processor, and the thread that runs there
 * gives its stack, when it is a thread of the processes that are sampled (bpf/stacks.bpf.c); the
 * samples are given to sample/samples. A thread that does not run gives nothing.
 *
 * One program in the kernel serves all processes whose Ruby has the same layout. When children are
 * wanted, a fork child belongs to them before it runs, and is reported.
 *
 * Life: open, add the first process, attach; then list and take each few milliseconds, add and
 * remove others; end, close. In the processes nothing is changed; when scry ends, however it does,
 * the kernel takes the clocks off.
 */
#ifndef SCRY_SAMPLE_CLOCK_H
#define SCRY_SAMPLE_CLOCK_H

#include "sample/samples.h"

struct scry_clock;

struct scry_clock_opts {
	uint64_t rate;
	bool native;  /* records of native stacks too */
	bool follows; /* processes that are started are sampled too */
	/* Called by scry_clock_take, the order is that of the events. `pid` was forked by a thread
	 * of a process that has the clock; `is_ruby`: by a thread of its VM's. */
	void (*forked)(void *arg, pid_t pid, bool is_ruby);
	/* A process that was not added gave a sample, which is dropped; `is_ruby`: of a Ruby's
	 * stack. True: do not report that thread again, till it runs another program. */
	bool (*unidentified)(void *arg, pid_t pid, bool is_ruby);
	void *arg;
};

int scry_clock_open(const struct scry_clock_opts *opts, struct scry_clock **ret); /* -ENOMEM */
void scry_clock_close(struct scry_clock *c); /* NULL is legal; processes must be removed */

/*
 * A process of which samples are wanted. `samples` stays the caller's, and has a clock from now
 * on. 0; -EPERM,
 * -ENOTSUP, -ENOMEM with a sentence: then `samples` is as it was.
 */
int scry_clock_add(struct scry_clock *c, struct scry_samples *samples);
void scry_clock_remove(struct scry_clock *c, struct scry_samples *samples);
/* Is there one that was added? Else what failed may have been the clock. */
bool scry_clock_works(const struct scry_clock *c);

/*
 * Sets the clocks, for every thread of these processes, Rubies or not. `list` gives them, again
 * and again (count, or -errno), as they may start others meanwhile.
 * 0 or -errno with a sentence.
 */
int scry_clock_attach(struct scry_clock *c, ssize_t (*list)(void *arg, pid_t **ret));

/* Lists the threads of a process when it is due, and registers them with the kernel's side. 0;
 * -ESRCH: it is gone, or another program; or -errno. */
int scry_clock_list(struct scry_clock *c, struct scry_samples *samples);

/* Counts all that has come. 0 or -errno. */
int scry_clock_take(struct scry_clock *c);

/* Rests: a millisecond while code is seen that was not known, four while samples come, and up to 16
 * while none do, or till a process is forked. */
void scry_clock_wait(struct scry_clock *c);

/* Takes the clocks off, counts what is left, and adds what was lost and used in the kernel. */
void scry_clock_end(struct scry_clock *c, struct scry_ev_sampling *sums);

#endif
