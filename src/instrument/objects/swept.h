/*
 * Samples that have ended without the agent having said so.
 *
 * Where the VM does not say what is marked (Ruby 3.4 on), the agent looks for ended samples when a
 * sweep is over. A watch that ends in the midst of one, as the VM sweeps a little at a time, has
 * samples whose slots are free already: nothing lives there, and no size can be read there.
 */
#ifndef SCRY_INSTRUMENT_OBJECTS_SWEPT_H
#define SCRY_INSTRUMENT_OBJECTS_SWEPT_H

#include "instrument/objects/own.h"
#include "watch/watch.h"

/*
 * The ends of such samples as words of the ring, with the size each had when the GC had marked;
 * how many words, 0 where there are none or nothing can be read. After all of the ring was taken,
 * while the agent's tables are there. The caller frees *ret.
 */
size_t scry_objects_swept(const struct scry_watch *w, const struct scry_objects_watch *o,
			  uint64_t **ret);

#endif
