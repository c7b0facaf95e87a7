/*
 * What the agent is to fetch of each function's calls (wire/call_plan.h), gathered here and written
 * into the agent's private memory before the stubs that need it are.
 *
 * Life: zeroed, (add*, write)*, done. In the keeper.
 */
#ifndef SCRY_HOOK_CALL_PLANS_H
#define SCRY_HOOK_CALL_PLANS_H

#include "hook/inject.h"
#include "wire/shadow.h"

struct scry_call_plans {
	struct scry_call_plan *units; /* the first belongs to none */
	uint32_t used, room, written;
	uint16_t *of; /* by the hook's number */
	uint32_t count, of_room, of_written;
};

/* The plan of the next hook: `count` operations behind `head`, both copied; NULL: none. Hooks that
 * fetch the same share one. 1: it has one; 0: it has none, as there is none or no room for more;
 * -ENOMEM with a sentence. */
int scry_call_plans_add(struct scry_call_plans *p, const struct scry_call_plan *head,
			const struct scry_fetch *ops);
/* What was added since. 0 or -errno with a sentence. */
int scry_call_plans_write(struct scry_call_plans *p, struct scry_inject *inj);
void scry_call_plans_done(struct scry_call_plans *p);

#endif
