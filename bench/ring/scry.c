/* The library's fibers, by its public calls. */
#include "ring.h"

#include "fiber/scry_fiber.h"

#include <stdlib.h>

static struct scry_fiber *fibers[RING_THREADS], *first;

static void body(long me)
{
	struct scry_fiber *next = fibers[(me + 1) % ring.threads];

	for (;;) {
		if (ring.left > 0) {
			ring.left--;
			scry_fiber_transfer(next);
		} else {
			scry_fiber_transfer(first);
		}
	}
}

/* By the queue the order is the same; main is in it, too, and keeps away while there are passes
 * left. */
static void body_yield(long me)
{
	for (;;) {
		if (ring.left > 0)
			ring.left--;
		else if (ring.left == 0 && (ring.left = -1))
			scry_fiber_wake(first);
		scry_fiber_yield();
	}
}

static void *begin(void *me)
{
	ring_grow(ring.frames, body, (long)me);
	return NULL;
}

static void *begin_yield(void *me)
{
	ring_grow(ring.frames, body_yield, (long)me);
	return NULL;
}

static void start(void)
{
	scry_fiber_transfer(fibers[0]);
}

static void start_yield(void)
{
	scry_fiber_park();
}

static void make(unsigned flags, scry_fiber_fn *entry)
{
	struct scry_fiber_sched_attr attr = {.flags = flags, .size_bytes = RING_STACK};

	if (scry_fiber_open(&attr, NULL) != 0)
		abort();
	first = scry_fiber_self();
	for (long i = 0; i < ring.threads; i++)
		if (scry_fiber_new(NULL, entry, (void *)i, &fibers[i]) != 0)
			abort();
}

void ring_scry(void)
{
	make(0, begin);
	ring_time(start);
}

void ring_scry_no_fp(void)
{
	make(SCRY_FIBER_NO_FP, begin);
	ring_time(start);
}

void ring_scry_yield(void)
{
	make(0, begin_yield);
	for (int i = 0; i < ring.threads; i++)
		scry_fiber_start(fibers[i]);
	ring_time(start_yield);
}
