/*
 * Which objects call a function through slots, and by which name: requests of SCRY_WAY_CALLS.
 *
 * A slot is taken when one of these requests' filters takes its name and its object. The name is
 * the one of its relocation, as the caller's code has it: functions of several names at one
 * address (glibc's strtol and strtoimax) are kept apart by it. Part of hook/plan.c; reads only.
 */
#ifndef SCRY_HOOK_SLOT_CALLERS_H
#define SCRY_HOOK_SLOT_CALLERS_H

#include "hook/hooks.h"

struct scry_slot_callers { /* zeroed: none */
	struct scry_filter **filters;
	size_t count;
};

/* The filters of the set's requests. 0 or -errno with a sentence; done is legal after both. */
int scry_slot_callers_read(struct scry_slot_callers *c, const struct scry_hooks *h);
void scry_slot_callers_done(struct scry_slot_callers *c);

/* Of the set's slots, sorted by function: the first of function `function`. */
size_t scry_slot_callers_first(const struct scry_slots *slots, uint32_t function);

/* Is the slot one of `row`, whose wanted way is CALLS: name and caller are its, and asked for? */
bool scry_slot_callers_take(const struct scry_slot_callers *c, const struct scry_hooks *h,
			    const struct scry_hook *row, const struct scry_slot *slot);

/* Each row of CALLS becomes one for each name that it is called by, and with `by_caller` for each
 * object that calls. Rows are sorted again. 0 or -ENOMEM with a sentence. */
int scry_slot_callers_split(const struct scry_slot_callers *c, struct scry_hooks *h);

#endif
