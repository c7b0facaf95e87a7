/*
 * The real program under an allocator: what a replay's prediction is compared with.
 */
#ifndef SCRY_CMD_MALLOC_CHECK_H
#define SCRY_CMD_MALLOC_CHECK_H

#include "cmd/malloc_run.h"

struct scry_malloc_real {
	uint64_t cpu_ns;   /* user and system, of the program and the children it waited for */
	uint64_t rss_peak; /* bytes of its own anonymous memory, by cmd/malloc_rss every 2 ms */
	int status;	   /* of its end, as wait gives it */
	bool is_served;	   /* the allocator's library was seen in its memory, or none is needed */
};

/*
 * Runs `command` (ends with NULL) once in this process's environment with the allocator preloaded
 * and its variables set, its input and output thrown away. 0; -ENOENT and the like with a sentence
 * when it cannot be started.
 */
int scry_malloc_check(const struct scry_malloc_allocator *allocator, char *const *command,
		      struct scry_malloc_real *ret_real);

#endif
