/* See hurry.h. */
#include "sys/hurry.h"

#include <sched.h>

void scry_hurry_begin(struct scry_hurry *h)
{
	const struct sched_param first = {.sched_priority = 1};

	h->policy = sched_getscheduler(0);
	h->is_on = (h->policy & ~SCHED_RESET_ON_FORK) == SCHED_OTHER &&
		   sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first) == 0;
}

void scry_hurry_end(struct scry_hurry *h)
{
	const struct sched_param none = {0};

	/* Who has the priority by RLIMIT_RTPRIO alone may not take the reset on fork off. */
	if (h->is_on && sched_setscheduler(0, h->policy, &none) < 0)
		sched_setscheduler(0, h->policy | SCHED_RESET_ON_FORK, &none);
	h->is_on = false;
}
