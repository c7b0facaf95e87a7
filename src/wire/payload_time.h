/* The payload of a TIME event: see wire/payload.h, which includes this. */
#ifndef SCRY_WIRE_PAYLOAD_TIME_H
#define SCRY_WIRE_PAYLOAD_TIME_H

#include <stdint.h>

struct scry_ev_time { /* calls of one hooked function from entry to return, callees included */
	uint32_t symbol_str, module_str, way_str, pid;
	uint64_t address;
	uint64_t calls;	   /* that were followed, and `missed` */
	uint64_t returned; /* of those */
	uint64_t left;	   /* seen to have been left by exception or longjmp */
	uint64_t missed;   /* calls that could not be followed */
	uint64_t total_ns, max_ns;
	uint64_t p50_ns, p99_ns; /* within an eighth */
};

#endif
