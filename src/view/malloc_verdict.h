/*
 * One sentence about the memory of a process: does what it holds grow, or is it only not given
 * back?
 *
 * It says what was seen; where the recording is too short, or says nothing of resident memory, the
 * sentence says that.
 */
#ifndef SCRY_VIEW_MALLOC_VERDICT_H
#define SCRY_VIEW_MALLOC_VERDICT_H

#include "base/buf.h"
#include "view/malloc_sum.h"

enum scry_malloc_verdict {
	SCRY_MALLOC_VERDICT_UNKNOWN,   /* too few calls, or too short; some grew as others fell; one
					  rise of what had been more; or older memory, whose blocks
					  are not known */
	SCRY_MALLOC_VERDICT_GROWS,     /* live bytes grew in time to the end: all, or a caller's */
	SCRY_MALLOC_VERDICT_RETAINS,   /* live bytes fell, resident memory did not */
	SCRY_MALLOC_VERDICT_FRAGMENTS, /* resident memory is far more than ever lived */
	SCRY_MALLOC_VERDICT_STEADY,
	SCRY_MALLOC_VERDICT_ELSEWHERE,	 /* most resident memory was never malloc's */
	SCRY_MALLOC_VERDICT_UNEXPLAINED, /* most was never in live blocks at once: gaps between
					    them, or not malloc's */
};

/* "grows", ... : for JSON. */
const char *scry_malloc_verdict_word(enum scry_malloc_verdict verdict);

/* Appends the sentence. */
enum scry_malloc_verdict scry_malloc_verdict(const struct scry_malloc_process *p,
					     struct scry_buf *buf);

/* There was memory before the first call, and none of its blocks were found. */
bool scry_malloc_older_unknown(const struct scry_malloc_process *p);

/* Resident memory was recorded after the first call: else it is what a program has before. */
bool scry_malloc_is_measured(const struct scry_malloc_process *p);

/* Resident memory was recorded while about as much lived as at the peak: a program may end before.
 */
bool scry_malloc_peak_looked_at(const struct scry_malloc_process *p);

#endif
