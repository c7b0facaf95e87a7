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
 * Runs `command` (ends with NULL) once with the allocator preloaded and its variables set, and
 * nothing in the environment that is for another one; its output is thrown away, its input is
 * scry_malloc_check_input(). 0; -ENOENT and the like with a sentence when it cannot be started.
 */
int scry_malloc_check(const struct scry_malloc_allocator *allocator, char *const *command,
		      struct scry_malloc_real *ret_real);

/* In the child that is to become the program: what each run reads alike. A file that is this
 * process's standard input is read from its beginning; else there is nothing to read. */
void scry_malloc_check_input(void);

#endif
