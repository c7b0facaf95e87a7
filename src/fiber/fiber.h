/*
 * Within the library: what a fiber is made of. switch.S knows the first words of a
 * fiber, and gdb finds the rest by debug information or by scry_fiber_registry.
 *
 * Fibers lie side by side in the heads of slabs, not on their stacks: a switch touches few pages
 * then, however deep the stacks are. The stack of one that does not run, from its saved stack
 * pointer up:
 *
 *     sp -> | mxcsr, x87 word | r15 | r14 | r13 | r12 | rbx | rbp | where it goes on |
 */
#ifndef SCRY_FIBER_FIBER_H
#define SCRY_FIBER_FIBER_H

#include "fiber/registry.h"
#include "fiber/scheduler.h"

struct scry_fiber {
	void *sp;
	struct scry_fiber_sched *sched;
	uint32_t state;
	uint32_t is_detached;
	struct scry_fiber *resumer; /* waits in resume for this one's yield */
	/* __cxa_eh_globals while it does not run: Itanium C++ ABI, section 2.2.2 */
	uint64_t cxa[2];
	struct scry_fiber *next; /* in the queue */
	scry_fiber_fn *entry;
	void *arg, *value;
	struct scry_fiber *joiner;
	const char *name;
	struct scry_stack stack;
	struct scry_stack_pool *pool;
	struct scry_stack_slot *slot; /* what the pool knows of the stack */
	int error;		      /* of its end */
	uint32_t is_woken;	      /* before it parked */
	uint32_t is_parked;	      /* idle, and to be woken */
	int32_t timer;		      /* place in the heap, or -1 */
	int wait_fd, wait_events, wait_result;
	uint32_t is_on_descriptor; /* it waits for wait_fd */
	_Atomic uint32_t is_mailed;
	struct scry_fiber *mail_next;
	uint32_t preempted; /* times */
	unsigned valgrind;  /* its name for the stack */
	void *fake, *tsan;  /* what sanitizers keep of it */
	uint64_t magic;
} __attribute__((aligned(64)));

/* The running fiber; one whose scheduler is NULL where the thread has none. switch.S writes it. */
extern __thread struct scry_fiber *scry_fiber_current
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
extern struct scry_fiber scry_fiber_nobody;
/* What scry_fiber_note says where there is no scheduler: why the last open failed. */
extern __thread const char *scry_fiber_open_note
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* switch.S: saves what `from` has to keep and goes on as `to`; the scheduler is no longer busy
 * then. */
void scry_fiber_switch(struct scry_fiber *from, struct scry_fiber *to);
/* switch.S: the same of one that has ended, and keeps nothing. */
void scry_fiber_leave(struct scry_fiber *from, struct scry_fiber *to);
/* switch.S: where a new fiber begins, with itself in %r12. */
void scry_fiber_begin(void);
/* Called there; does not return. */
void scry_fiber_main(struct scry_fiber *fiber);
/* Where transfer goes for what it does not do itself. */
int scry_fiber_transfer_slow(struct scry_fiber *to);

/* Times, in nanoseconds of the monotonic clock. run.c */
int64_t scry_fiber_now(void);
int64_t scry_fiber_after(int64_t ns); /* from now, or never */

/* Timers: a heap by time. timer.c */
int scry_fiber_timer_add(struct scry_fiber_sched *sched, struct scry_fiber *fiber, int64_t at_ns);
void scry_fiber_timer_remove(struct scry_fiber_sched *sched, struct scry_fiber *fiber);

/* Descriptors that are ready, up to timeout_ns from now. poll.c */
int scry_fiber_poll_open(struct scry_fiber_sched *sched);
void scry_fiber_poll_close(struct scry_fiber_sched *sched);
void scry_fiber_poll(struct scry_fiber_sched *sched, int64_t timeout_ns);
/* Takes a fiber whose time is over out of what it waited for. */
void scry_fiber_poll_cancel(struct scry_fiber_sched *sched, struct scry_fiber *fiber);

/* A fiber for mail. fiber.c */
int scry_fiber_make(struct scry_fiber_sched *sched, const struct scry_fiber_attr *attr,
		    scry_fiber_fn *entry, void *arg, struct scry_fiber **ret_fiber);
void scry_fiber_mail_take(struct scry_fiber_sched *sched);
/* Before a fiber's memory is used again: it is in no list of the woken any more. */
void scry_fiber_mail_forget(struct scry_fiber_sched *sched, struct scry_fiber *fiber);
void scry_fiber_mail_ring(struct scry_fiber_sched *sched);

/* How a stack's overflow ends its fiber: scry_stack_overflow_fn, arg is the scheduler. */
int scry_fiber_overflowed(struct scry_stack_overflow *overflow, void *arg);

/* The stack that is kept for the next fiber goes to its pool, if there is one. */
void scry_fiber_put_spare(struct scry_fiber_sched *sched);

/* 0: the fiber is of this scheduler. */
int scry_fiber_check(const struct scry_fiber_sched *sched, const struct scry_fiber *fiber);
/* Tools that watch, and are to be notified of stacks and switches; each does nothing where there is
 * none. watchers.c */
int scry_fiber_report_open(struct scry_fiber_sched *sched, struct scry_fiber *main);
void scry_fiber_report_new(struct scry_fiber *fiber);
void scry_fiber_report_begin(struct scry_fiber *fiber);
void scry_fiber_report_free(struct scry_fiber *fiber);
void scry_fiber_report_emptied(struct scry_fiber *fiber);
/* While a stack is searched, which may have words that nobody wrote. Also in a handler. */
void scry_fiber_report_search(const struct scry_fiber_sched *sched, bool is_on);
void scry_fiber_report_switch(struct scry_fiber *from, struct scry_fiber *to);

_Static_assert(sizeof(struct scry_fiber) <= 256, "a million of them");
_Static_assert(offsetof(struct scry_fiber, sp) == SCRY_FIBER_SP, "switch.S");
_Static_assert(offsetof(struct scry_fiber, sched) == SCRY_FIBER_SCHED, "switch.S");
_Static_assert(offsetof(struct scry_fiber, state) == SCRY_FIBER_STATE, "switch.S");
_Static_assert(offsetof(struct scry_fiber, cxa) == SCRY_FIBER_CXA, "switch.S");

#endif
