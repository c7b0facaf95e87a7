/* See hurry.h. */
#include "sys/hurry.h"

#include <sched.h>

void scry_hurry_begin(struct scry_hurry *h)
{
	const struct sched_param first = {.sched_priority = 1};

	h->policy = sched_getscheduler(0);
	h->is_on = h->policy == SCHED_OTHER &&
		   sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first) == 0;
}

void scry_hurry_end(struct scry_hurry *h)
{
	if (h->is_on)
		sched_setscheduler(0, h->policy, &(struct sched_param){0});
	h->is_on = false;
}
