/* Fibers that wait for a time: a binary heap, in which each knows its place. */
#include "fiber/fiber.h"

#include <errno.h>
#include <stdlib.h>

static void put(struct scry_fiber_sched *sched, uint32_t place, struct scry_timer timer)
{
	sched->timers[place] = timer;
	timer.fiber->timer = place;
}

/* Finds the place of a timer, from one that is free, up and then down. */
static void settle(struct scry_fiber_sched *sched, uint32_t place, struct scry_timer timer)
{
	struct scry_timer *timers = sched->timers;

	while (place > 0 && timer.at_ns < timers[(place - 1) / 2].at_ns) {
		put(sched, place, timers[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	for (;;) {
		uint32_t child = 2 * place + 1;

		if (child + 1 < sched->timer_count && timers[child + 1].at_ns < timers[child].at_ns)
			child++;
		if (child >= sched->timer_count || timers[child].at_ns >= timer.at_ns)
			break;
		put(sched, place, timers[child]);
		place = child;
	}
	put(sched, place, timer);
}

int scry_fiber_timer_add(struct scry_fiber_sched *sched, struct scry_fiber *fiber, int64_t at_ns)
{
	if (sched->timer_count == sched->timer_room) {
		uint32_t room = sched->timer_room == 0 ? 64 : 2 * sched->timer_room;
		struct scry_timer *timers = realloc(sched->timers, room * sizeof(*timers));

		if (timers == NULL)
			return -ENOMEM;
		sched->timers = timers;
		sched->timer_room = room;
	}
	sched->timer_count++;
	settle(sched, sched->timer_count - 1, (struct scry_timer){at_ns, fiber});
	return 0;
}

void scry_fiber_timer_remove(struct scry_fiber_sched *sched, struct scry_fiber *fiber)
{
	int32_t place = fiber->timer;

	if (place < 0)
		return;
	fiber->timer = -1;
	sched->timer_count--;
	if ((uint32_t)place < sched->timer_count)
		settle(sched, place, sched->timers[sched->timer_count]);
}
