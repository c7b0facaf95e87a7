/*
 * Collections that a watched Ruby is made to do: --force-gc, at the end, and --gc-slices, before
 * each slice. The VM makes them itself, at a safepoint; the keeper asks, and looks whether it did.
 */
#ifndef SCRY_INSTRUMENT_OBJECTS_COLLECT_H
#define SCRY_INSTRUMENT_OBJECTS_COLLECT_H

#include "watch/watch.h"

/* A slice is to end: true when it may, also where no collection is wanted, or none came in two
 * seconds. False: ask again at the next look. Takes as long as it takes to ask all threads, some
 * 0.3 ms each, ten times a second at most. */
bool scry_objects_collect(struct scry_watch *w, uint64_t now_ns);

/* The end: waits for it, and calls `drain` meanwhile. How it went is in the watch. */
void scry_objects_collect_last(struct scry_watch *w, int (*drain)(struct scry_watch *w));

#endif
