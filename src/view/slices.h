/*
 * The slices of a recording (`--every`): which moments it has.
 *
 * A moment is asked for as a time since the beginning; the slice whose end is nearest answers, if
 * it is no farther than a slice is long. The end of the recording is a moment too.
 */
#ifndef SCRY_VIEW_SLICES_H
#define SCRY_VIEW_SLICES_H

#include "rec/reader.h"

struct scry_moment {
	uint64_t since_ns; /* since the beginning */
	uint64_t until_ns; /* CLOCK_MONOTONIC, for scry_sites; 0: the end of the recording */
	bool is_beginning; /* nothing was counted yet */
	uint32_t slice;	   /* 0: none: the beginning or the end */
	bool has_numbers;  /* the slice has these, over all processes: */
	uint64_t rss_bytes, gc_count;
};

#define SCRY_MOMENT_BEGINNING 0
#define SCRY_MOMENT_END UINT64_MAX

/*
 * Reads the recording (from its beginning, with a reader of its own) and finds the moment
 * `since_ns` after its beginning. 0; -ENOENT with a sentence when no slice is near; -errno of
 * reading.
 */
int scry_moment_find(int fd, uint64_t since_ns, struct scry_moment *ret_moment);

#endif
