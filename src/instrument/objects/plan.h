/*
 * What the agent knows for a watch of objects: the layout, the VM's functions, how to sample.
 */
#ifndef SCRY_INSTRUMENT_OBJECTS_PLAN_H
#define SCRY_INSTRUMENT_OBJECTS_PLAN_H

#include "name/objects.h"
#include "vm/ruby.h"
#include "wire/control.h"
#include "wire/ruby_plan.h"
#include "wire/ruby_ring.h"

struct scry_objects_sample { /* both 0: every object */
	uint64_t every;	     /* one object in so many */
	uint64_t bytes;	     /* one in so many bytes of heap slots */
};

/* "1000" or "512KiB". 0, or -EINVAL with a sentence. */
int scry_objects_read_sample(const char *text, struct scry_objects_sample *ret);

/* Fills `ret` and returns the mean gap in objects, or in slots by bytes; 0: no sampling. */
double scry_objects_fill_sampling(const struct scry_objects_sample *sample, uint32_t slot_size,
				  bool slots_differ, struct scry_agent_sampling *ret);

/* An estimate of what these events have cost the target. */
uint64_t scry_objects_cost_ns(const struct scry_agent_sampling *sampling, bool by_hooks,
			      bool with_stacks, const struct scry_objects_totals *t);

void scry_objects_fill_plan(const struct scry_ruby *ruby, struct scry_agent_ruby *p);
void scry_objects_fill_frames(const struct scry_ruby_layout *l, bool with_stacks, bool with_pages,
			      struct scry_agent_frames *f);

#endif
