/*
 * What objects.c counts in, for it and for objects_sum.c, which sums processes. For no other file.
 */
#ifndef SCRY_NAME_OBJECTS_OWN_H
#define SCRY_NAME_OBJECTS_OWN_H

#include "name/live.h"
#include "name/objects.h"
#include "name/places.h"
#include "name/stacks.h"
#include "wire/ruby_ring.h"

#define SCRY_OBJECTS_PAIRS 8192u /* (place, stack) looked up last, by hash */
#define SCRY_OBJECTS_SLOT_SIZES \
	15u /* of different slots: as many as a live entry has numbers for */

struct scry_objects_counters {
	double allocated, freed, freed_bytes;
	double unfollowed;		 /* it is not known whether they live */
	double freed_unsized;		 /* counted as slots, or less: more is not known */
	uint64_t samples, freed_samples; /* freed or not followed */
	/* of the living; set by scry_objects_measure */
	double live_bytes, live_unsized, old_live, old_live_bytes;
	uint64_t oldest; /* birth of the oldest one, + 1; 0: none lives */
	/* places of objects that got a class after they were made, the core one of their type or
	 * another; 0: not asked yet, NEVER: there is none */
	uint32_t revealed[2];
	uint32_t site; /* id of the SITE event; 0 none yet */
	uint32_t line; /* that it was written with */
	uint32_t pid;  /* as well; it may be known later only */
};

struct scry_objects_pair {
	uint32_t place, stack, result;
};

struct scry_objects {
	struct scry_objects_setup setup;
	const struct scry_ruby *ruby;
	struct scry_places places;
	struct scry_stacks stacks;
	struct scry_live live;
	struct scry_objects_counters *counters; /* by place number - 1 */
	size_t cap;
	uint32_t slots[SCRY_SITE_SLOTS + 1]; /* code -> place number */
	uint32_t nowhere; /* the place of all that find no room: the limit of places is reached */
	uint32_t stack;	  /* the frame that the next objects are called from */
	struct scry_objects_pair pairs[SCRY_OBJECTS_PAIRS];
	uint64_t size; /* outside the slot, of the object freed next; 0 not said */
	uint32_t slot_sizes[SCRY_OBJECTS_SLOT_SIZES +
			    1]; /* bytes by the number that live entries have; [0]: the smallest, of
				   objects whose slot is not known */
	uint32_t slot;		/* number of the slots that the next objects are made in */
	uint32_t gcs;		/* begun */
	uint32_t full_gc;	/* number of the last full GC that was swept, 0 none */
	uint32_t full_now;	/* of one that marked and has not swept yet */
	uint64_t *raw;		/* scratch of scry_objects_raw */
	struct scry_objects_totals totals;
};

/* Of a place by its number; NULL: 0, or there is no memory. Others may have moved. */
struct scry_objects_counters *scry_objects_counters_of(struct scry_objects *o, uint32_t place);

#endif
