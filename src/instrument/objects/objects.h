/*
 * `scry objects` as others drive it: its command line (cmd/objects.c), and the rehearsal
 * (rehearsal.c), which runs the very instrument on a child.
 */
#ifndef SCRY_INSTRUMENT_OBJECTS_OBJECTS_H
#define SCRY_INSTRUMENT_OBJECTS_OBJECTS_H

#include "instrument/objects/plan.h"
#include "instrument/objects/source.h"
#include "name/objects.h"
#include "watch/watch.h"

struct scry_objects_opts { /* opts->instrument_opts */
	struct scry_objects_sample sample;
	bool stacks, force_gc;
	bool gc_slices; /* before each slice too; then force_gc is set */
	int source;	/* enum scry_objects_source */
};

/* The instrument's `prepare` with a Ruby that is open; it is taken over, also on failure. */
int scry_objects_prepare(struct scry_watch *w, struct scry_ruby *ruby);
/* What has been drained so far. */
void scry_objects_counted(const struct scry_watch *w, struct scry_objects_totals *ret);

/*
 * rehearsed.c: the rehearsal of this way of watching, and what it takes away from `plan`;
 * hooks that --source auto has chosen may give way to events. 0 or -ENOTSUP with the reason.
 */
int scry_objects_rehearse(struct scry_watch *w, struct scry_ruby *ruby,
			  struct scry_objects_hooks *hooks, struct scry_agent_ruby *plan);
/* A note of why the agent ended the watch (its account). */
void scry_objects_note_ended(struct scry_watch *w, const struct scry_ruby *ruby, bool hooks);

#endif
