/*
 * `scry calls`: options of the instrument, filled by the command (cmd/calls.c).
 */
#ifndef SCRY_CMD_CALLS_H
#define SCRY_CMD_CALLS_H

#include "cmd/watch.h"
#include "name/calls.h"
#include "proto/protos.h"

#define SCRY_CALLS_REQUESTS_MAX 160

struct scry_calls_cli {
	char *requests[SCRY_CALLS_REQUESTS_MAX]; /* SYMBOL@LIB; owned */
	int request_count;
	bool is_default; /* nothing was named: the known ones */
	uint64_t string_size;
	enum scry_calls_args args;
	bool by_breakpoints;	    /* --engine=breakpoint */
	uint64_t depth;		    /* of stacks; 0: none */
	struct scry_protos *protos; /* owned */
	bool reads_unsure;	    /* prototypes may want what a function is not known to read */
};

extern const struct scry_instrument scry_instrument_calls; /* cmd/calls_trace.c */

#endif
