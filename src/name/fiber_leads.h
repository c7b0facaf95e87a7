/*
 * What leads to a saved context: words of the process's memory that hold its address. Something has
 * to keep that, or it could not be gone on with; dead memory looks like a context, too, but mostly
 * nothing leads there. One more look through the memory in which fiber_marks found the contexts.
 *
 * A word says nothing of what reads it: it may be dead itself. So one lead is not a proof, but of
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
