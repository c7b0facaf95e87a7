/*
 * Who leads to a saved context: words of the process's memory that hold its address. Somebody has
 * to keep that, or nobody could go on with it; dead memory looks like a context, too, but mostly
 * nobody leads there. One more look through the memory in which fiber_marks found the contexts.
 *
 * A word says nothing of who reads it: it may be dead itself. So one lead is no proof, but of
 * several contexts of one stack the only one with a lead is the one.
 */
#ifndef SCRY_NAME_FIBER_LEADS_H
#define SCRY_NAME_FIBER_LEADS_H

#include <stddef.h>
#include <stdint.h>

#include "name/fiber_marks.h"

struct scry_fiber_lead {
	uint64_t address; /* ascending in a table, each once */
	/* words in [dead_low, address) are on its stack and below it: dead, if it waits there */
	uint64_t dead_low;
	uint64_t count; /* of words that lead to it */
};

/* Counts them. *ret_missed: bytes that could not be searched. 0 or -errno with a sentence. */
int scry_fiber_leads_look(const struct scry_fiber_look *look, struct scry_fiber_lead *leads,
			  size_t count, uint64_t *ret_missed);

#endif
