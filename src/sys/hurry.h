/*
 * Raises priority while the target is stopped, so that other work does not delay us in letting its
 * threads go, or them in stopping and in what we make them do: on a machine with more work than
 * processors that delay would be nearly all of a pause. We take a real-time priority, and lend a
 * lower one to single threads.
 *
 * A loan changes nothing in the other program. A thread of ours, a lender, waits for a lock whose
 * word says that the other thread has it (futex(2), priority inheritance): as long as it waits the
 * kernel runs that thread with the lender's priority. It ends with the wait, however that ends: by
 * our word, by its time (a second), or as this process is stopped or killed.
 *
 * But a lender must run once more for that, and a borrower that runs for ever with its priority
 * gives way to no thread (the kernel takes turns only among threads that have SCHED_RR themselves).
 * So there are never more loans than leave a processor free for lenders: see scry_hurry_most.
 *
 * Without the right to a real-time priority it takes what it takes.
 */
#ifndef SCRY_SYS_HURRY_H
#define SCRY_SYS_HURRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SCRY_LENDERS_MAX 16u

struct scry_hurry {
	int policy; /* ours, to be had back */
	bool is_on, is_guarded;
};

/* How many loans there may be at a time: 0 on one processor, 1 on two, else fewer than half of
 * those that this thread may use, so that two scrys that are killed at once leave one free, too. */
size_t scry_hurry_most(void);

/* Of the whole process there is one at a time: begun within another it is without effect. Up to
 * `lenders` threads are started (scry_hurry_most), before any thread of `pid` is held; none where a
 * limit (RLIMIT_RTTIME) would end it for what it runs by a loan. A process that hurries for longer
 * than `longest_ns` by some seconds is killed (sys/guard.h). */
void scry_hurry_begin(struct scry_hurry *h, pid_t pid, size_t lenders, uint64_t longest_ns);
/* Ends all loans. Legal when it never began, and twice. */
void scry_hurry_end(struct scry_hurry *h);

/* Has a lender lend to thread `tid`, which takes it a moment, and waits for one that comes from
 * another so many naps of 10 us. False: none is free. True also where it has a loan already. */
bool scry_hurry_lend(pid_t tid, unsigned int naps);
#define SCRY_HURRY_NAPS 100u /* before it is held */
/* The loan of `tid` ends soon. Legal where there is none. */
void scry_hurry_recall(pid_t tid);
/* The loan of `from`, if it has one, goes on to `to`, which has none: quicker than to recall it and
 * to lend anew, as its lender only begins its wait again. */
void scry_hurry_pass(pid_t from, pid_t to);
/* Waits, SCRY_HURRY_NAPS at most, until what was recalled has ended: before a thread is released,
 * which could keep its own lender from the processor. */
void scry_hurry_settle(void);

#endif
