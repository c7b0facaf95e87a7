/*
 * The common event: what every probe produces and every view reads.
 *
 * Freestanding: host, agent and BPF include this file, so it uses compiler types only.
 * All integers are little endian; structs are 8-byte aligned, have no bit-fields and no
 * hidden padding. The rows are in wire/events.def; this file turns them into the enum.
 */
#ifndef SCRY_WIRE_EVENT_H
#define SCRY_WIRE_EVENT_H

#include <stdint.h>

/* One event: this head, then (size - sizeof(head)) bytes of payload, `size` a multiple of 8. */
struct scry_event {
	uint64_t time_ns; /* CLOCK_MONOTONIC of the recording machine; 0 where no clock was read */
	uint32_t tid;  /* kernel thread id in the target's own pid namespace as the host sees it; 0
			  unknown */
	uint16_t type; /* enum scry_event_type */
	uint16_t size; /* bytes, this head included, multiple of 8, at most SCRY_EVENT_MAX */
};
_Static_assert(sizeof(struct scry_event) == 16, "the event head is part of the format");

#define SCRY_EVENT_MAX 32768u /* bytes; longer strings are cut by the writer */

enum scry_event_type {
#define SCRY_EVENT(id, NAME, name, payload, meaning) SCRY_EVENT_##NAME = id,
#include "wire/events.def"
#undef SCRY_EVENT
};

/*
 * Payloads. A field called *_str is the id of a STRING event that came before; 0 means unknown.
 * A payload may grow at its end; a reader zero-fills what an older file lacks.
 */
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
struct scry_ev_lost { /* events that happened and are not in the recording */
	uint64_t count;
	uint32_t why_str;
	uint32_t reserved;
};
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
	uint32_t reserved;
};
struct scry_ev_note { /* a sentence that every report must show: limits, degraded modes */
	uint32_t text_str;
	uint32_t reserved;
};
struct scry_ev_totals {	       /* one per process, at the end */
	uint64_t events;       /* produced in the target */
	uint64_t lost;	       /* of those, dropped */
	uint64_t errors;       /* reads, names, checks that failed */
	uint64_t pause_max_ns; /* longest hold of any thread */
	uint64_t pause_total_ns;
	uint64_t target_cpu_ns;	  /* used by the target while watched */
	uint64_t overhead_cpu_ns; /* estimate: events x calibrated cost + pauses */
	uint64_t watched_ns;
	uint64_t frees_older; /* objects freed that were born before the watch */
	uint32_t pid;
	uint32_t reserved;
	uint64_t gcs; /* seen */
	uint64_t full_gcs;
	uint64_t compactions;
	uint64_t moved;	       /* objects followed to their new place */
	uint64_t sample_every; /* one object in so many was recorded; 0: all */
	uint64_t sample_bytes; /* one object each so many bytes; 0: not by bytes */
};
struct scry_ev_count { /* calls of one hooked function */
	uint32_t symbol_str;
	uint32_t module_str;
	uint32_t way_str; /* "entry", "got" */
	uint32_t pid;
	uint64_t calls;
	uint64_t address;
};

#include "wire/event_objects.h"

#endif
