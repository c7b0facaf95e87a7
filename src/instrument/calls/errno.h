/*
 * errno of C library functions that failed, for `scry calls`: of functions whose prototypes say
 * that they set it, in the library whose __errno_location says where (sys/errno_home.h). One
 * library: a second copy (dlmopen) has an errno of its own.
 */
#ifndef SCRY_INSTRUMENT_CALLS_ERRNO_H
#define SCRY_INSTRUMENT_CALLS_ERRNO_H

#include <stdbool.h>
#include <stdint.h>

#include "sys/linkmap.h"

struct scry_calls_errno {    /* zeroed: none is known yet */
	uint64_t start, end; /* of the library */
	uint64_t location;   /* run-time address of __errno_location */
	int64_t at;	     /* from the thread pointer; 0: not known */
};

/* Is a function at `address` of that library? The first one that is asked for chooses it. */
bool scry_calls_errno_is_of(struct scry_calls_errno *e, struct scry_linkmap *objects,
			    uint64_t address);
/* Finds `at`, when the library has been relocated. */
void scry_calls_errno_find(struct scry_calls_errno *e, const struct scry_mem *mem);

#endif
