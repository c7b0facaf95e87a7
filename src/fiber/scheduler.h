/*
 * Within the library: the scheduler of a thread. All of it is the thread's own but what other
 * threads post: mails, woken, is_asleep and senders.
 */
#ifndef SCRY_FIBER_SCHEDULER_H
#define SCRY_FIBER_SCHEDULER_H

#include "fiber/scry_fiber.h"
#include "fiber/scry_preempt.h"
#include "fiber/stack.h"
#include "fiber/state.h"

#include <signal.h>
#include <time.h>

#define SCRY_CLASSES 32	 /* pools of a scheduler, by the power of two of their size */
#define SCRY_SCHEDS 1024 /* schedulers of a process */

struct scry_timer {
	int64_t at_ns;
	struct scry_fiber *fiber;
};

/* A descriptor that a fiber waits for, or did. */
struct scry_fd_watch {
	struct scry_fiber *reader, *writer;
	uint32_t generation; /* of the event that is awaited */
};

/* What another thread asks for: a fiber to be made. */
struct scry_mail {
	struct scry_mail *next;
	scry_fiber_fn *entry;
	void *arg;
};

/* Of a sigset_t only this many bytes are the kernel's. */
#define SCRY_KERNEL_MASK 8

struct scry_preempt {
	volatile int is_on;
	timer_t timer;
	sigset_t mask; /* the thread's, outside of handlers */
	int64_t began_ns;
	uintptr_t main_low, main_high;
	struct scry_preempt_counts counts;
};

struct scry_fiber_sched {
	void *cxa; /* this thread's __cxa_eh_globals, or NULL */
	/* in code that may be neither preempted nor ended: set before, cleared after or by the
	 * switch */
	volatile int busy;
	volatile int is_due; /* a slice is over, and a safe point has to see to it */
	struct scry_fiber *main;
	struct scry_fiber *head, *tail; /* the queue */
	struct scry_fiber *spare;	/* ended last: it and its stack are the next to be used */
	uint32_t keep;			/* SCRY_KEEP_* of all its fibers, and its number */
	int tid;			/* of its thread */
	bool pool_is_measured;
	bool is_on_valgrind;
	/* the process that had it forked, or its thread has ended: it never runs again */
	_Atomic bool is_lost;
	bool is_mail_stuck;   /* there is no stack for it: it is tried again after a while */
	size_t live;	      /* fibers that did not end */
	unsigned turns;	      /* since it looked at descriptors and times */
#define SCRY_TURNS_DUE 65536u /* a slice is over: it looks at once */
	struct scry_timer *timers;
	/* and those that did, but were not joined; not beside `live`: a compiler would add to both
	 * by one load, which waits for the stores of each */
	size_t held;
	uint32_t timer_count, timer_room;
	struct scry_fd_watch *watches;
	uint32_t watch_room;
	uint32_t waiting; /* fibers that wait for descriptors */
	int epoll, event;
	_Atomic int is_asleep;
	_Atomic int senders; /* threads in spawn_on and wake: close waits for them */
	_Atomic(struct scry_mail *) mails;
	_Atomic(struct scry_fiber *) woken;
	int64_t tick_ns; /* when pools were last asked for idle stacks */
	struct scry_stack_pool *pools[SCRY_CLASSES];
	struct scry_stack_pool *plain_pool; /* of fibers whose size is the scheduler's */
	struct scry_preempt preempt;
	struct scry_fiber_sched_attr attr;
	char note[240];
};

_Static_assert(offsetof(struct scry_fiber_sched, busy) == SCRY_SCHED_BUSY, "switch.S");
_Static_assert(offsetof(struct scry_fiber_sched, cxa) == SCRY_SCHED_CXA, "switch.S");

#endif
