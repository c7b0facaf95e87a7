/*
 * Which fiber runs next. There is no scheduler's stack: a fiber that stops picks the next one
 * itself and switches to it, and when there is none it waits for descriptors, timers and mail where
 * it is.
 */
#include "fiber/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS 250000000ll /* idle stacks are given back so often */
#define SECOND_NS 1000000000ll

int64_t scry_fiber_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * SECOND_NS + now.tv_nsec;
}

int64_t scry_fiber_after(int64_t ns)
{
	const int64_t now = scry_fiber_now();

	return ns > INT64_MAX - now ? INT64_MAX : now + ns;
}

void scry_fiber_misused(void)
{
	static const char said[] = "scry_fiber: a call while the scheduler is at work: by a signal "
				   "handler, or after one that left the library by a jump\n";
	long written = syscall(SYS_write, STDERR_FILENO, said, sizeof(said) - 1);

	(void)written; /* it ends anyway */
	abort();
}

static void release_idle(struct scry_fiber_sched *sched, int64_t now)
{
	sched->tick_ns = now;
	for (int i = 0; i < SCRY_CLASSES; i++)
		if (sched->pools[i] != NULL)
			scry_stack_pool_tick(sched->pools[i]);
}

/* Those whose time has come. */
static void run_timers(struct scry_fiber_sched *sched, int64_t now)
{
	while (sched->timer_count > 0 && sched->timers[0].at_ns <= now) {
		struct scry_fiber *fiber = sched->timers[0].fiber;

		scry_fiber_timer_remove(sched, fiber);
		scry_fiber_poll_cancel(sched, fiber);
		/* a parked one may have been woken, or started, meanwhile */
		if ((fiber->state & SCRY_STATE_MASK) == SCRY_STATE_WAITING ||
		    ((fiber->state & SCRY_STATE_MASK) == SCRY_STATE_IDLE && fiber->is_parked))
			scry_fiber_queue(sched, fiber);
	}
}

/* True while free stacks have memory that a later tick would give back. */
static bool holds_memory(const struct scry_fiber_sched *sched)
{
	for (int i = 0; i < SCRY_CLASSES; i++)
		if (sched->pools[i] != NULL &&
		    sched->pools[i]->free_count > sched->pools[i]->free_released)
			return true;
	return false;
}

/* Looks at mail, timers and descriptors; waits for them when no fiber is ready. */
static void look(struct scry_fiber_sched *sched)
{
	bool is_idle;
	int64_t timeout = 0, now = 0;

	sched->turns = 0;
	scry_fiber_mail_take(sched);
	is_idle = sched->head == NULL;
	if (is_idle || sched->timer_count > 0) {
		now = scry_fiber_now();
		run_timers(sched, now);
		is_idle = sched->head == NULL;
	}
	if (is_idle) {
		timeout =
			sched->timer_count > 0 ? sched->timers[0].at_ns - now : SCRY_FIBER_FOREVER;
		if (holds_memory(sched)) {
			if (now - sched->tick_ns >= TICK_NS)
				release_idle(sched, now);
			if (timeout < 0 || timeout > TICK_NS)
				timeout = TICK_NS;
		}
	}
	if (is_idle || sched->waiting > 0)
		scry_fiber_poll(sched, timeout);
}

void scry_fiber_fill_queue(struct scry_fiber_sched *sched)
{
	/* in the child of a fork no fiber may be left: as when the last thread returns */
	if (sched->main == NULL && sched->live == 0) {
		sched->busy = 0; /* functions of atexit may call the library */
		exit(0);
	}
	do
		look(sched);
	while (sched->head == NULL);
}

int scry_fiber_sleep(int64_t ns)
{
	struct scry_fiber *self = scry_fiber_current;
	struct scry_fiber_sched *sched = self->sched;
	int error;

	if (sched == NULL)
		return -EPERM;
	if (ns <= 0) {
		scry_fiber_yield();
		return 0;
	}
	scry_fiber_enter(sched);
	error = scry_fiber_timer_add(sched, self, scry_fiber_after(ns));
	if (error == 0) {
		self->state = SCRY_STATE_WAITING | sched->keep;
		scry_fiber_go_on(sched);
	}
	sched->busy = 0;
	return error;
}
