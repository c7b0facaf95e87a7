/* The part that counts a Ruby VM's lock: wire/gvl.h. The host fills the plan. */
#ifndef SCRY_AGENT_GVL_H
#define SCRY_AGENT_GVL_H

#include "wire/gvl.h"
#include "wire/gvl_plan.h"

struct scry_agent_gvl {
	struct scry_gvl_plan plan; /* its mutex first: agent/gvl_thunk.S */
};
extern struct scry_agent_gvl scry_agent_gvl __attribute__((visibility("hidden")));

#endif
