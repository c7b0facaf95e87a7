/* Payloads of FUNCTION and ENTRY events: see wire/payload.h, which includes this. */
#ifndef SCRY_WIRE_PAYLOAD_ENTRY_H
#define SCRY_WIRE_PAYLOAD_ENTRY_H

#include <stdint.h>

struct scry_ev_function {  /* a hooked function, before its first ENTRY */
	uint32_t function; /* its number in this process */
	uint32_t pid;
	uint32_t symbol_str, module_str, way_str;
	uint32_t reserved;
	uint64_t address;
};

struct scry_ev_entry { /* a hooked function was entered at time_ns by thread tid */
	uint32_t function;
	uint32_t pid;
	uint32_t args; /* how many of these were recorded; the others are 0 */
	uint32_t reserved;
	uint64_t arg1, arg2, arg3, arg4, arg5, arg6; /* the integer argument registers */
};

#endif
