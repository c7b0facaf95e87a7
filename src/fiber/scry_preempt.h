/*
 * scry_preempt: slices of time for scry_fiber, so that a loop that never yields does not starve
 * others. Optional: without these calls no timer runs and no signal comes.
 *
 *     scry_preempt_allow(__start_leaf_safe, __stop_leaf_safe);    // a section of your code
 *     scry_preempt_start(1000000);                                // 1 ms, in this thread
 *     ...
 *     scry_preempt_stop();
 *
 * - A timer sends SIGURG to the thread when a slice is over. When the thread is in code that was
 * allowed, the running fiber is left there, with all its registers, and goes to the end of the
 * queue. Else the tick is kept for the next scry_preempt_point.
 * - Allow only code of your own that holds no lock, touches no thread-local storage, and is not
 * called back by code that does: loops that compute. Never libc, nor a whole program.
 * - Not preempted: the scheduler, fibers with signals blocked that were not when it was started,
 * and fibers whose stack has not the room for the registers (some 3 KiB with AVX-512). Such ticks
 * are kept, and counted. Nor are signal handlers: they block their signal; and with SA_NODEFER and
 * an empty mask they are known by the frame that the kernel made, up to 16 KiB above.
 * - Interrupted system calls are restarted (SA_RESTART), but those that signal(7) lists: sleeps,
 * polls.
 * - A child of fork has no timer.
 *
 * Calls return 0 or -errno: -EPERM where the thread has no scheduler.
 */
#ifndef SCRY_PREEMPT_H
#define SCRY_PREEMPT_H

#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

struct scry_preempt_counts {
	uint64_t ticks;	    /* signals that came */
	uint64_t switched;  /* of these, another fiber ran */
	uint64_t kept;	    /* not in allowed code: left to the next safe point */
	uint64_t alone;	    /* no other fiber was ready */
	uint64_t missed;    /* slices that were over before the signal of the one before came */
	int64_t elapsed_ns; /* since start; by ticks, the slice that was achieved */
};

/* Code that fibers may be left in; for the process. -ENOSPC: there are 64 ranges. */
int scry_preempt_allow(const void *begin, const void *end);

/* -EBUSY: it runs already; -EINVAL: less than 10 us; -EOPNOTSUPP: the processor has no XSAVE. */
int scry_preempt_start(int64_t slice_ns);

int scry_preempt_stop(void);

/* Yields when a slice is over: for loops in code that cannot be allowed. */
void scry_preempt_point(void);

/* Since the last start. */
int scry_preempt_count(struct scry_preempt_counts *ret_counts);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
