/*
 * scry_fiber: threads of a program's own, on stacks of scry_stack. A switch is a dozen
 * instructions.
 *
 *     static void *greet(void *name) { printf("hello, %s\n", (char *)name); return NULL; }
 *
 *     scry_fiber_open(NULL, NULL);                  // this kernel thread has fibers from now on
 *     scry_fiber_spawn(NULL, greet, "world", &fiber);
 *     scry_fiber_join(fiber, NULL);
 *     scry_fiber_close();
 *
 * - Each kernel thread has a scheduler of its own. A fiber stays on the thread that made it. The
 *   thread's own stack is a fiber, too, the main one.
 * - A fiber is idle (new, parked, or left by transfer), ready (in the queue), running, waiting
 *   (sleep, join, descriptor), or ended. start, resume and transfer take idle ones.
 * - Switches keep callee-saved registers, MXCSR and the x87 control word, and where libstdc++ was
 *   linked the exceptions being handled. The signal mask is the thread's. errno is the thread's.
 * - A new fiber begins with the control words of the ABI: round to nearest, no traps.
 * - An exception may not leave an entry function: std::terminate ends the program.
 * - Overflows are reported as scry_stack does; see there for guards, sizes and the environment.
 * - fork: the child has the forking fiber only. Others are lost: calls on them return -ESRCH. When
 *   it was not the main one and its entry returns, the child ends as by exit(0).
 * - Shadow stacks (CET) are refused: scry_fiber_open returns -EOPNOTSUPP where one is on.
 * - No call is a point of cancellation. Without preemption no signal is used but those of faults.
 *
 * Calls return 0 or -errno: -EPERM where the thread has no scheduler, -EXDEV for a fiber of another
 * thread, -EBUSY for one that is not idle.
 */
#ifndef SCRY_FIBER_H
#define SCRY_FIBER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

struct scry_fiber;
struct scry_fiber_sched;
struct scry_stack_overflow;

typedef void *scry_fiber_fn(void *arg);

enum scry_fiber_flag {
	SCRY_FIBER_NO_FP = 1, /* leave MXCSR and the x87 word alone; not always faster: measure */
	SCRY_FIBER_MEASURED = 2, /* stacks are measured, for scry_fiber_advise */
};

/* All zero is a good choice. */
struct scry_fiber_sched_attr {
	unsigned flags;			/* enum scry_fiber_flag */
	int report_fd;			/* of overflows; 0: standard error, -1: nowhere */
	size_t size_bytes, guard_bytes; /* as in scry_stack_attr */
	/* In the signal handler: 1 ends that fiber alone, and its joiner gets -EOVERFLOW */
	int (*on_overflow)(struct scry_stack_overflow *overflow, void *arg);
	void *arg;
};

struct scry_fiber_attr {
	const char *name;  /* for reports; not copied */
	size_t size_bytes; /* of the stack; 0: the scheduler's */
	int is_detached;   /* never joined: it is freed when it ends, and may not be named after */
};

enum scry_fiber_event { SCRY_FIBER_READ = 1, SCRY_FIBER_WRITE = 2 };

#define SCRY_FIBER_FOREVER (-1ll)

/* Gives the calling thread a scheduler, which calls of others name. -EEXIST: it has one. */
int scry_fiber_open(const struct scry_fiber_sched_attr *attr, struct scry_fiber_sched **ret_sched);

/* By the main fiber. -EBUSY: there are fibers that were not joined or did not end. The end of the
 * thread closes it, too, unless fibers did not end: then their stacks stay, report_fd is given a
 * sentence, and calls on them return -ESRCH. A process has 1,024 schedulers at most. */
int scry_fiber_close(void);

/* An idle fiber, whose entry runs when it is started, resumed or transferred to. attr may be NULL.
 * Errors are those of scry_stack_get. It is freed by join, or when a detached one ends. */
int scry_fiber_new(const struct scry_fiber_attr *attr, scry_fiber_fn *entry, void *arg,
		   struct scry_fiber **ret_fiber);

/* Puts an idle fiber at the end of the queue. */
int scry_fiber_start(struct scry_fiber *fiber);

/* new and start. ret_fiber may be NULL for a detached one. */
int scry_fiber_spawn(const struct scry_fiber_attr *attr, scry_fiber_fn *entry, void *arg,
		     struct scry_fiber **ret_fiber);

/* From any thread: a detached fiber of that scheduler, which must stay open until that fiber
 * begins; a close that comes sooner than this call's end waits for it. -ESRCH: its thread has
 * ended, or it is of before a fork, whose child has another one, without a name. */
int scry_fiber_spawn_on(struct scry_fiber_sched *sched, scry_fiber_fn *entry, void *arg);

/* To whoever resumed this fiber; else to the next in the queue, and to its end. */
void scry_fiber_yield(void);

/* Runs an idle fiber now, until it yields or ends. 1: it has ended. -EBUSY: another one's resume
 * still waits for that, as the fiber has parked or transferred meanwhile. */
int scry_fiber_resume(struct scry_fiber *fiber);

/* Runs an idle fiber now and leaves this one idle. The fastest switch there is. */
int scry_fiber_transfer(struct scry_fiber *fiber);

/* Idle until this fiber is woken; returns at once when that was done since the last park. */
int scry_fiber_park(void);
int scry_fiber_park_within(int64_t timeout_ns); /* -ETIMEDOUT: it was not woken */

/* Makes a parked fiber ready; from any thread. The fiber must not end before this wakes it; it may
 * before this returns. Not from a signal handler, as no call of this library is. */
int scry_fiber_wake(struct scry_fiber *fiber);

/* Waits for its end and frees it. -EOVERFLOW: its stack overflowed, and it was ended. */
int scry_fiber_join(struct scry_fiber *fiber, void **ret_value);
/* -ETIMEDOUT: it did not end in that time. Join it again, or detach it: its end frees it then. */
int scry_fiber_join_within(struct scry_fiber *fiber, void **ret_value, int64_t timeout_ns);
int scry_fiber_detach(struct scry_fiber *fiber);

int scry_fiber_sleep(int64_t ns);

/*
 * Waits until a descriptor can be read or written (enum scry_fiber_event). Returns the events, or 0
 * when timeout_ns is over. Regular files are always ready. Errors and hang-ups count as ready: the
 * read or write says. -EBADF: closed, or forgotten meanwhile; -EBUSY: another fiber waits for
 * that. A descriptor that is closed without scry_fiber_forget wakes no fiber, unless a duplicate of
 * it is still open: its event does, for the number. Waits that begin later are not woken so.
 */
int scry_fiber_wait(int fd, int events, int64_t timeout_ns);

/* Before close: fibers that wait for the descriptor get -EBADF. */
int scry_fiber_forget(int fd);

/* The running fiber; NULL where the thread has no scheduler. */
struct scry_fiber *scry_fiber_self(void);
/* Fibers that did not end yet, without the main one. */
size_t scry_fiber_count(void);

/* Prints the smallest safe size per entry function; as scry_stack_advise. */
int scry_fiber_advise(FILE *out);

/* Why the last call that got a stack failed, or the last open of this thread: one sentence. */
const char *scry_fiber_note(void);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
