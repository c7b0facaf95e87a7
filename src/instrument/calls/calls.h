/*
 * `scry calls`: options of the instrument, filled by the command (cmd/calls.c).
 */
#ifndef SCRY_INSTRUMENT_CALLS_CALLS_H
#define SCRY_INSTRUMENT_CALLS_CALLS_H

#include "base/nearest.h"
#include "instrument/instruments.h"
#include "name/calls.h"
#include "proto/protos.h"

#define SCRY_CALLS_REQUESTS_MAX 160

struct scry_calls_request {
	char *text;    /* as of scry_hooks_want; owned */
	bool of_slots; /* the caller is meant: -e */
	bool is_exported;
	bool is_met;		       /* in the keeper: some process had such a function */
	struct scry_nearest_text near; /* else: what may have been meant */
};

struct scry_calls_cli {
	struct scry_calls_request requests[SCRY_CALLS_REQUESTS_MAX];
	int request_count;
	bool is_default;   /* nothing was named: the known ones */
	bool system_calls; /* too */
	bool signals;	   /* too, where it may be */
	uint64_t string_size;
	uint64_t elements; /* of an array; 0: SCRY_ARRAY_SHOWN */
	enum scry_calls_args args;
	bool by_breakpoints;	     /* --engine=breakpoint */
	uint64_t depth;		     /* of stacks; 0: none */
	bool ruby_stacks;	     /* too */
	struct scry_protos *protos;  /* owned */
	struct scry_calls_tids tids; /* -p of threads: only theirs; none: of all */
	bool reads_unsure;	     /* prototypes may want what a function is not known to read */
};

#endif
