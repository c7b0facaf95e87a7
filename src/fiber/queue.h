/*
 * Within the library: from one fiber to the next. These are inline because they are on the way of
 * each yield, spawn and end: with calls and returns between a program's own branches and the
 * switch's jump, the processor predicts that jump less well, and a yield takes twice as long.
 */
#ifndef SCRY_FIBER_QUEUE_H
#define SCRY_FIBER_QUEUE_H

#include "fiber/fiber.h"

#define SCRY_TURNS 64u /* of the queue, after which descriptors are looked at all the same */

/* Ends the program: see scry_fiber_enter. run.c */
_Noreturn void scry_fiber_misused(void);

/*
 * Before what may be neither preempted nor interrupted by another call. The scheduler is at work
 * already when a signal handler calls the library, or has left it by a jump.
 */
static inline void scry_fiber_enter(struct scry_fiber_sched *sched)
{
	if (__builtin_expect(sched->busy, 0))
		scry_fiber_misused();
	sched->busy = 1;
}

/* The way from one fiber to another for all of the library. */
static inline void scry_fiber_change(struct scry_fiber *from, struct scry_fiber *to)
{
	if (__builtin_expect(to->state & SCRY_KEEP_NOTIFIED, 0))
		scry_fiber_report_switch(from, to);
	else
		scry_fiber_switch(from, to);
}

/* To the end of the queue. */
static inline void scry_fiber_queue(struct scry_fiber_sched *sched, struct scry_fiber *fiber)
{
	fiber->state = SCRY_STATE_READY | sched->keep;
	fiber->next = NULL;
	if (sched->head == NULL)
		sched->head = fiber;
	else
		sched->tail->next = fiber;
	sched->tail = fiber;
}

/* Looks at descriptors, times and mail; waits until the queue has one. run.c */
void scry_fiber_fill_queue(struct scry_fiber_sched *sched);

/* Off the queue: who runs next. */
static inline struct scry_fiber *scry_fiber_next(struct scry_fiber_sched *sched)
{
	struct scry_fiber *fiber;

	if (__builtin_expect(++sched->turns >= SCRY_TURNS || sched->head == NULL, 0))
		scry_fiber_fill_queue(sched);
	fiber = sched->head;
	sched->head = fiber->next;
	fiber->state = SCRY_STATE_IDLE | sched->keep;
	return fiber;
}

/* The running one stops here, and may come back. */
static inline void scry_fiber_go_on(struct scry_fiber_sched *sched)
{
	struct scry_fiber *self = scry_fiber_current, *next = scry_fiber_next(sched);

	if (next != self)
		scry_fiber_change(self, next);
	else
		sched->busy = 0;
}

#endif
