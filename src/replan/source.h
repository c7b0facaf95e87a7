/*
 * A recording of `scry malloc record` as a source of calls (replan/feed.h): those of one of its
 * processes, and what else it says that a replay is compared with.
 */
#ifndef SCRY_REPLAN_SOURCE_H
#define SCRY_REPLAN_SOURCE_H

#include "rec/malloc_part.h"
#include "rec/reader.h"
#include "replan/feed.h"
#include "view/data_quality.h"

#define SCRY_MALLOC_LOOKS 256u

struct scry_malloc_recording {
	struct scry_malloc_source source; /* first: it is one */
	int fd;				  /* the caller's */
	struct scry_malloc_part part;	  /* pid 0: the one that has most calls, then that */
	struct scry_reader *reader;	  /* of this pass */
	struct scry_reader *first;	  /* of the first: its strings are kept */
	bool is_chosen;
	bool is_read; /* once to its end; from then on: */
	struct scry_data_quality quality;
	uint64_t other_calls; /* of other processes: not replayed */
	uint32_t allocator_str, allocator_module_str;
	uint64_t cpu_ns; /* the process used, between the first and the last MEMORY event */
	uint64_t cpu_first_ns;
	uint64_t rss_anon_peak; /* of the looks */
	uint64_t rss_anon_most; /* the same, or what the kernel says of the time between them */
	bool has_memory;
	struct scry_malloc_recording_look { /* at the program's memory */
		uint64_t time_ns, rss_anon;
	} looks[SCRY_MALLOC_LOOKS]; /* that calls which are still to come were made before */
	uint32_t look_count;
};

/* `pid` 0: of all. The first rewind opens. */
void scry_malloc_recording_init(struct scry_malloc_recording *r, int fd, uint32_t pid);
void scry_malloc_recording_done(struct scry_malloc_recording *r);

#endif
