/*
 * One process whose objects are watched, for the files that are the instrument: objects.c, which
 * takes and counts, asks.c and collect.c, which have its VM do something, and notes.c, which says
 * what is missing.
 */
#ifndef SCRY_INSTRUMENT_OBJECTS_OWN_H
#define SCRY_INSTRUMENT_OBJECTS_OWN_H

#include "hook/ring.h"
#include "instrument/objects/held.h"
#include "instrument/objects/objects.h"
#include "instrument/objects/ractors.h"
#include "vm/ruby_boot.h"

/* --force-gc, at the end. */
enum scry_objects_forced {
	SCRY_FORCED_NOT_ASKED,	  /* there was no thread to ask: the program had ended */
	SCRY_FORCED_MADE,	  /* in forced_gc_ns */
	SCRY_FORCED_NO_SAFEPOINT, /* it did not come to one in time */
	SCRY_FORCED_REFUSED,	  /* it came, and the VM made none */
	SCRY_FORCED_UNSEEN,	  /* or it made one, whose events were lost */
	SCRY_FORCED_ENDED,	  /* the program ended meanwhile */
};

struct scry_objects_watch {
	struct scry_ruby *ruby;
	struct scry_objects *names;
	struct scry_agent_ruby plan;
	struct scry_agent_sampling sampling;
	struct scry_objects_hooks hooks;
	double sample_mean;
	uint32_t slice;
	uint64_t until_ns;	    /* when --until is looked at next */
	uint64_t slice_ns;	    /* when the slice under way began */
	struct scry_ruby_boot boot; /* addr 0: none */
	uint64_t *batch;
	struct scry_ring ring;
	uint64_t defs_seen;
	uint64_t armed_ns;     /* when the hook was seen to be on; 0: not yet */
	uint64_t retry_ns;     /* next time to try again */
	uint64_t asked_cpu_ns; /* processor time when threads were asked last */
	uint64_t base_lost, base_lease, base_busy, base_bad, base_untracked;
	uint64_t lost, lease, busy, bad, unfollowed,
		unseen;		       /* of this watch, or of all summed here */
	bool booting;		       /* started by us: validate when the VM is up */
	bool is_damaged;	       /* the ring made no sense */
	bool refused;		       /* the live check failed: the report says so */
	bool unbelieved;	       /* it was not made: nothing is counted */
	bool is_missed;		       /* ... as scry came too late */
	struct scry_objects_held held; /* until it is made */
	uint64_t judge_ns;	       /* for so long the program waited for it */
	uint64_t blind;		       /* compactions not followed, by the agent's count */
	struct scry_objects_ractors ractors;
	uint32_t looks;	 /* asked for by the program, as it ended */
	bool has_looked; /* at the living, when the program ended: then there was */
	struct scry_objects_totals last_look;
	uint64_t unbound_until_ns; /* it waits to be found; 0: not yet */
	uint64_t look_ns;	   /* for so long it waited for that */
	bool registered;	   /* in at least one thread */
	bool table_full;	   /* the VM takes no more postponed jobs */
	uint64_t collecting_ns;	   /* --gc-slices: since when the slice waits for it; 0: not */
	uint64_t collect_again_ns; /* when its threads are asked again */
	bool is_collected;	   /* it was made; the slice ends at the next look */
	uint64_t full_before;	   /* full collections until then */
	uint64_t slices_missed;	   /* that ended without one */
	uint64_t forced_gc_ns;
	enum scry_objects_forced forced;
	uint64_t uncollected; /* 1: --force-gc, and none was made; of a sum: processes */
};

/* The hook is on, and the handler has taken this watch up. */
bool scry_objects_is_armed(const struct scry_watch *w);

/* At the end: what the report must say; and the moments at which the program waited. */
void scry_objects_note_all(struct scry_watch *w, const struct scry_objects_watch *o,
			   const struct scry_objects_totals *t);
void scry_objects_note_waits(struct scry_watch *w, const struct scry_objects_watch *o);

#endif
