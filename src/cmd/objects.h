/*
 * `scry objects` as others drive it: its command line (objects_cmd.c), and the rehearsal
 * (rehearse.c), which runs the very instrument on a child.
 */
#ifndef SCRY_CMD_OBJECTS_H
#define SCRY_CMD_OBJECTS_H

#include "cmd/objects_plan.h"
#include "cmd/watch.h"
#include "name/objects.h"

struct scry_objects_opts { /* opts->instrument_opts */
	struct scry_objects_sample sample;
	bool stacks, force_gc;
	int source; /* enum scry_objects_source */
};

/* The instrument's `prepare` with a Ruby that is open; it is taken over, also on failure. */
int scry_objects_prepare(struct scry_watch *w, struct scry_ruby *ruby);
/* What has been drained so far. */
void scry_objects_counted(const struct scry_watch *w, struct scry_objects_totals *ret);

#endif
