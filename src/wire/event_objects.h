/*
 * Payloads of the objects stream: places and their callers, counters, single objects, slices.
 *
 * A part of wire/event.h, which says the rules and is what others include.
 */
#ifndef SCRY_WIRE_EVENT_OBJECTS_H
#define SCRY_WIRE_EVENT_OBJECTS_H

#include <stdint.h>

struct scry_ev_stack {	 /* a frame of the tree of callers; defined once, its parent before it */
	uint32_t id;	 /* dense, from 1 */
	uint32_t parent; /* the frame that called this one; 0: it is the outermost */
	uint32_t file_str;
	uint32_t line;
	uint32_t method_str;
	uint32_t flags; /* SCRY_STACK_* */
};
#define SCRY_STACK_C 1u /* a C function's frame: file and line are its caller's */

struct scry_ev_site {
	uint32_t site; /* dense id, from 1 */
	uint32_t pid;
	uint32_t file_str;
	uint32_t line; /* 0: no Ruby frame was running */
	uint32_t class_str;
	uint32_t method_str;
	uint32_t flags; /* SCRY_SITE_* */
	uint32_t slot_bytes;
	uint32_t stack; /* id of a STACK: who called the place; 0: not recorded */
	uint32_t reserved2;
};
#define SCRY_SITE_INTERNAL 1u /* an object no Ruby code can see (imemo, hidden) */
#define SCRY_SITE_UNNAMED 2u  /* the code or class died before it could be named */

struct scry_ev_objects { /* counters of one site since the watch began */
	uint32_t site;
	uint32_t slice; /* 0: at the end of the watch; else at the end of that SLICE */
	uint64_t allocated;
	uint64_t freed; /* of those allocated */
	uint64_t bytes; /* of all allocated; with `freed_bytes` slots and buffers, else slots */
	uint64_t live_bytes;
	uint64_t freed_bytes; /* bytes = live_bytes + freed_bytes; both 0: not known apart */
	uint64_t max_age;     /* GCs that the oldest living object has survived */
	uint64_t flags;	      /* SCRY_OBJECTS_* */
	uint64_t samples;     /* sampled allocations behind `allocated`; 0 without sampling */
	uint64_t live_samples;
	uint64_t old_live; /* of the living: born before the last full mark, so survived it */
	uint64_t old_live_bytes;
};
#define SCRY_OBJECTS_SLOTS 1u  /* sizes are slots only, for all objects or some */
#define SCRY_OBJECTS_SCALED 2u /* counts and bytes are scaled up from samples */

/*
 * Part of a watch, for `--every`. The OBJECTS events that follow with its number hold the counters
 * since the watch began, as they stood at end_ns.
 */
struct scry_ev_slice {
	uint32_t slice; /* from 1 */
	uint32_t pid;
	uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC */
	uint64_t gc_count;
	uint64_t rss_bytes;
};

struct scry_ev_alloc {
	uint64_t address;
	uint32_t site;
	uint32_t reserved;
};
struct scry_ev_free {
	uint64_t address;
	uint32_t site; /* 0: born before the watch */
	uint32_t reserved;
};

#endif
