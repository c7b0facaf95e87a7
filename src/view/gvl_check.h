/*
 * Where a recording of the GVL can be held against what scry's hooks did not produce: how long the
 * kernel says that threads ran, in which of them clock ticks found the lock, and whether threads
 * that had not the lock ran Ruby code.
 */
#ifndef SCRY_VIEW_GVL_CHECK_H
#define SCRY_VIEW_GVL_CHECK_H

#include "view/gvl.h"

struct scry_gvl_native { /* of the time without the lock: on a processor */
	uint64_t ns;
	bool is_known;
	bool is_least; /* else it is by samples */
};
struct scry_gvl_native scry_gvl_native_of(const struct scry_ev_gvl_thread *t);
/* Did no clock sample the threads, so that it is least of all that are known? */
bool scry_gvl_is_native_least(const struct scry_gvl_view *g);

/* How much longer it ran than it had the lock and was without it: that long it ran while scry says
 * that it waited. Some microseconds of each wait are right: it goes to sleep and wakes up. */
uint64_t scry_gvl_ran_waiting_ns(const struct scry_ev_gvl_thread *t);
uint64_t scry_gvl_ppm(uint64_t part, uint64_t whole); /* 0 of nothing */

/* Notes of the threads of which scry's figures are contradicted, and, unless the same was said of
 * the process, of the one that held the lock and did not run. */
void scry_gvl_push_check(struct scry_gvl_view *g, bool is_said);

#endif
