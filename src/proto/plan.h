/*
 * From a prototype to what the agent is to fetch of its calls (wire/call_plan.h).
 */
#ifndef SCRY_PROTO_PLAN_H
#define SCRY_PROTO_PLAN_H

#include "proto/place.h"
#include "wire/call_plan.h"
#include "wire/call_ring.h"

#define SCRY_ARRAY_SHOWN 4u /* elements of an array, and structs within structs of their kind */

struct scry_plan {
	uint32_t args;	   /* integer registers that are recorded */
	bool is_needed;	   /* false: those are all */
	bool is_unsure;	   /* memory is read that the function may not read */
	uint32_t left_out; /* what found no room in the plan */
	struct scry_call_plan head;
	struct scry_fetch ops[2 * SCRY_PLAN_OPS_MAX]; /* head.entry, then head.back */
};

struct scry_plan_opts {
	uint32_t string_max; /* bytes of a string; 0: none is fetched */
	uint32_t elements;   /* of an array; 0: SCRY_ARRAY_SHOWN */
	bool has_errno;	     /* what sets errno does so where it is known (sys/errno_home.h) */
	bool is_sure_only;   /* no memory but what the function itself reads */
};

void scry_plan_make(const struct scry_proto *proto, const struct scry_plan_opts *opts,
		    struct scry_plan *ret);

#endif
