/*
 * Does what a process, or a caller, holds go on growing in time?
 *
 * Looked at are its live bytes at moments evenly apart, and only their floor: the least that lived
 * from a moment on, to the end of the recording. What is freed later, as garbage before a
 * collection, has no floor; what leaks has one that rises. It has to rise in each of eight equal
 * parts of the time from some moment to the end, in the second half by half as much as in the
 * first at least; of all such moments the earliest counts. So a table that is loaded once hides
 * nothing, and a leak may begin late: an eighth to a quarter of the recording must be left.
 *
 * The end is that of the recording; of a program that ended and freed in its last moments what it
 * held, it is the time before that (scry_malloc_process.last).
 */
#ifndef SCRY_VIEW_MALLOC_GROWTH_H
#define SCRY_VIEW_MALLOC_GROWTH_H

#include "view/malloc_sum.h"

struct scry_malloc_growth {
	bool is_late;	      /* it did not begin with the recording */
	bool is_below_before; /* about as much lived when it began: it may be one of many rises */
	uint64_t since_ns;    /* after the first call: when it began; moments apart; 0: with it */
	uint64_t bytes;	      /* by which the floor rose from then on */
	uint64_t bytes_per_s;
};

/* Live bytes of the process; false: they do not, or the recording is too short. Untouched then. */
bool scry_malloc_process_growth(const struct scry_malloc_process *p,
				struct scry_malloc_growth *ret_growth);

/*
 * Of a caller. One whose growth began late, or below what it had held before, counts only when the
 * process as a whole held more in the end than ever before: else it is what each phase of a program
 * does.
 */
bool scry_malloc_caller_growth(const struct scry_malloc_process *p,
			       const struct scry_malloc_caller_sum *c,
			       struct scry_malloc_growth *ret_growth);

/* Live bytes of this caller fell from their peak to the end, by how much; 0: they did not. */
uint64_t scry_malloc_caller_fall(const struct scry_malloc_process *p,
				 const struct scry_malloc_caller_sum *c);

/* Signed: live bytes at the end less those at half of the time. False: too short to say. */
bool scry_malloc_caller_half(const struct scry_malloc_process *p,
			     const struct scry_malloc_caller_sum *c, uint64_t *ret_bytes);

/* The recording is long enough to show growth. */
bool scry_malloc_growth_is_known(const struct scry_malloc_process *p);

#endif
