/*
 * What the ring gave before the layout was judged on the very process: it waits here, and is
 * counted only if the layout holds.
 */
#ifndef SCRY_INSTRUMENT_OBJECTS_HELD_H
#define SCRY_INSTRUMENT_OBJECTS_HELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scry_objects_held { /* all 0: nothing */
	uint64_t *words;
	size_t count, room;
};

/* Is there room for all that a ring can hold? Else it is left in the ring, which counts losses. */
bool scry_objects_held_has_room(const struct scry_objects_held *h);
/* Behind what is there. 0 or -ENOMEM. */
int scry_objects_held_put(struct scry_objects_held *h, const uint64_t *words, size_t count);
void scry_objects_held_drop(struct scry_objects_held *h);

#endif
