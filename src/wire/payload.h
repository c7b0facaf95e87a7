/* What follows the head of each kind of event. Included by wire/event.h. */
#ifndef SCRY_WIRE_PAYLOAD_H
#define SCRY_WIRE_PAYLOAD_H

#include "wire/payload_functions.h"
#include "wire/payload_gvl.h"
#include "wire/payload_malloc.h"
#include "wire/payload_stacks.h"
#include "wire/payload_syscalls.h"

/* A field called *_str is the id of a STRING event that came before; 0: unknown. A payload may grow
 * at its end; a reader zero-fills what an older file lacks. */
struct scry_ev_session {
	uint32_t instrument_str; /* "objects", "count" */
	uint32_t command_str;	 /* scry's own command line */
	uint32_t version_str;	 /* scry's version */
	uint32_t host_str;
	uint64_t wall_ns; /* CLOCK_REALTIME at time_ns of this event */
};
struct scry_ev_string {
	uint32_t id;
	uint32_t length; /* bytes that follow, not NUL terminated, padded with zeros to 8 */
};
struct scry_ev_process {
	uint32_t pid;
	uint32_t uid;
	uint64_t start_ticks; /* field 22 of /proc/PID/stat: pins the identity */
	uint32_t exe_str;
	uint32_t runtime_str; /* "ruby 3.1.2p20 ..." or 0 */
};
struct scry_ev_site {
	uint32_t site; /* dense id, from 1 */
	uint32_t pid;
	uint32_t file_str;
	uint32_t line; /* 0: no Ruby frame was running */
	uint32_t class_str;
	uint32_t method_str;
	uint32_t flags; /* SCRY_SITE_* */
	uint32_t slot_bytes;
	uint32_t stack; /* id of a STACK: the callers of the place; 0: not recorded */
	uint32_t reserved2;
};
#define SCRY_SITE_INTERNAL 1u /* an object no Ruby code can see (imemo, hidden) */
#define SCRY_SITE_UNNAMED 2u  /* the code or class died before it could be named */

struct scry_ev_objects { /* counters of one site since the watch began */
	uint32_t site;
	uint32_t slice; /* 0: at the end of the watch; else at the end of that SLICE */
	uint64_t allocated;
	uint64_t freed; /* of the objects allocated */
	uint64_t bytes; /* of all allocated; with `freed_bytes` slots and buffers, else slots */
	uint64_t live_bytes;
	uint64_t freed_bytes; /* bytes = live_bytes + freed_bytes; both 0: not known apart */
	uint64_t max_age;     /* GCs that the oldest living object has survived */
	uint64_t flags;	      /* SCRY_OBJECTS_* */
	uint64_t samples;     /* sampled allocations behind `allocated`; 0 without sampling */
	uint64_t live_samples;
	uint64_t old_live, old_live_bytes; /* of the living: those that the last full mark left */
	uint64_t unfollowed; /* neither freed nor live: what became of them is not known */
	uint64_t unsized, live_unsized; /* whose part of the bytes is too small */
};
#define SCRY_OBJECTS_SLOTS 1u  /* of `unsized` objects; 0 there (older recordings): of some */
#define SCRY_OBJECTS_SCALED 2u /* counts and bytes are scaled up from samples */

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
struct scry_ev_lost {	/* events that happened and are not in the recording */
	uint64_t count; /* 0: how many is not known */
	uint32_t why_str;
	uint32_t processes; /* so many are missing, or in part: SCRY_LOST_PERHAPS: not known */
};
#define SCRY_LOST_PERHAPS (1u << 31)
struct scry_ev_pause { /* threads held by scry */
	uint64_t duration_ns;
	uint32_t threads; /* how many were held */
	uint32_t why_str;
};
struct scry_ev_attach {
	uint32_t pid;
	uint32_t threads;	/* tasks at that moment */
	uint64_t agent_address; /* 0: no agent */
	uint64_t agent_bytes;	/* mapped in the target */
	uint64_t bytes_changed; /* of text and GOT */
};
struct scry_ev_detach {
	uint32_t pid;
	uint32_t verified; /* 1: every changed byte was read back as the original */
	uint64_t bytes_restored;
	uint64_t bytes_left; /* agent memory left mapped in the target */
	uint32_t reason_str; /* "duration", "interrupt", "target exited", ... */
	uint32_t part; /* number of the program that ended, of that pid, and one; 0 not known */
};
struct scry_ev_note { /* a sentence that every report must show: limits, degraded modes */
	uint32_t text_str, is_cost; /* is_cost: what watching took, and the like: bookkeeping */
};
#define SCRY_REASON_ENDED "the target ended" /* of a detach: it was there no longer */
#define SCRY_EXIT_KNOWN (1u << 16)
struct scry_ev_totals {	       /* one per process, at the end */
	uint64_t events;       /* produced in the target */
	uint64_t lost;	       /* of these, dropped */
	uint64_t errors;       /* reads, names, checks that failed */
	uint64_t pause_max_ns; /* longest hold of any thread */
	uint64_t pause_total_ns;
	uint64_t target_cpu_ns;	  /* used by the target while watched */
	uint64_t overhead_cpu_ns; /* estimate: events x calibrated cost + pauses */
	uint64_t watched_ns;
	uint64_t frees_older; /* objects freed that were born before the watch */
	uint32_t pid;
	uint32_t exit; /* 0 not known, else SCRY_EXIT_KNOWN and wait(2)'s status */
	uint64_t gcs;  /* seen */
	uint64_t full_gcs;
	uint64_t compactions;
	uint64_t moved;	       /* objects followed to their new place */
	uint64_t sample_every; /* one object in so many was recorded; 0: all */
	uint64_t sample_bytes; /* one object each so many bytes; 0: not by bytes */
	uint64_t forced_gc_ns; /* the GC that scry asked for: the program's own work, no pause */
	uint64_t uncollected;  /* processes with objects that were to make one, and made none */
};
struct scry_ev_stack {	 /* a frame of the tree of callers; defined once, its parent before it */
	uint32_t id;	 /* dense, from 1 */
	uint32_t parent; /* the frame that called this one; 0: it is the outermost */
	uint32_t file_str;
	uint32_t line;
	uint32_t method_str;
	uint32_t flags;	  /* SCRY_STACK_* */
	uint64_t offset;  /* NATIVE: of the return address, from the symbol, else from the object */
	uint64_t address; /* NATIVE: the return address */
};
#define SCRY_STACK_C 1u	      /* a C function's frame: file and line are its caller's */
#define SCRY_STACK_NATIVE 2u  /* native code: file is the object, method the symbol */
#define SCRY_STACK_UNKNOWN 4u /* the callers are not known from here on; no names */
/* Part of a watch, for `--every`. The OBJECTS events that follow with its number hold the counters
 * since the watch began, as they stood at end_ns. */
struct scry_ev_slice {
	uint32_t slice; /* from 1 */
	uint32_t pid;
	uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC */
	uint64_t gc_count;
	uint64_t rss_bytes;
};

#endif
