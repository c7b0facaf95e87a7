/*
 * What a recording has of each site: its place, its counters.
 *
 * OBJECTS events are counters since the watch began: the last one of a site counts, so where the
 * end of a recording is missing the last slice takes its place. A site without one (a raw recording
 * whose end is missing) is counted from its ALLOC and FREE events; a FREE is then given to the site
 * of the last ALLOC of that address in that process. With `until_ns` the counters are those of the
 * slices that had ended by then, and nothing else counts.
 *
 * Limits: 4 Mi sites, 16 Mi live addresses; beyond, events are counted in `dropped`.
 */
#ifndef SCRY_VIEW_SITES_H
#define SCRY_VIEW_SITES_H

#include "base/map.h"
#include "rec/reader.h"

struct scry_site {
	struct scry_ev_site place;
	struct scry_ev_objects counts;	     /* settled by close: freed <= allocated, bytes split */
	uint64_t seen_allocated, seen_freed; /* single events */
	bool has_counters;
	bool is_final; /* they are those of the end */
};

struct scry_sites {
	struct scry_site *rows; /* [0] takes what has no known site */
	size_t count;
	size_t cap;
	struct scry_map ids;  /* site -> index in rows */
	struct scry_map pids; /* pid -> small number, for the keys of `live` */
	struct scry_map live; /* address and process -> index in rows */
	uint64_t dropped;
	uint64_t frees_older; /* single FREE events of unknown objects */
	uint64_t events;      /* OBJECTS, ALLOC and FREE events seen */
	uint64_t until_ns;    /* CLOCK_MONOTONIC; 0: the end */
	uint32_t slice;	      /* the last SLICE event: its number, its end */
	uint64_t slice_end_ns;
	bool has_final; /* counters of the end were seen */
};

/* 0 or -ENOMEM with a sentence. `until_ns` may be set afterwards. */
int scry_sites_init(struct scry_sites *sites);
void scry_sites_done(struct scry_sites *sites);

/* Takes what `event` says about sites; `reader` just yielded it. 0 or -ENOMEM with a sentence. */
int scry_sites_event(struct scry_sites *sites, const struct scry_reader *reader,
		     const struct scry_event *event);

/*
 * All is read: settles the counters. Where a site has only single events they are counted; where
 * its sizes are not split (an older recording) one size per site is taken, slots only.
 */
void scry_sites_close(struct scry_sites *sites);

#endif
