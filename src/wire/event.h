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

#include "wire/payload.h"

#endif
