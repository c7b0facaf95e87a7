/*
 * Ractors of a watched program: of some VMs (to 3.4) events show the objects of one ractor. How
 * many others there are is counted now and then from outside, and by the objects of class Ractor
 * that were made; then the report says that objects are missing.
 */
#ifndef SCRY_INSTRUMENT_OBJECTS_RACTORS_H
#define SCRY_INSTRUMENT_OBJECTS_RACTORS_H

#include "name/objects.h"
#include "watch/ask.h"

struct scry_objects_ractors {
	int seen;	  /* most that there were at once */
	uint64_t next_ns; /* when they are counted again */
};

/* Counts them, at most each 100 ms. */
void scry_objects_ractors_look(struct scry_objects_ractors *r, const struct scry_ruby *ruby);
/* Are there any whose objects are not seen? */
bool scry_objects_ractors_unseen(const struct scry_objects_ractors *r, const struct scry_ruby *ruby,
				 const struct scry_objects_totals *t);
/* Says that, as a loss without a number, and what it means for other figures. */
void scry_objects_ractors_say(const struct scry_objects_ractors *r, struct scry_watch *w,
			      const struct scry_objects_totals *t);

#endif
