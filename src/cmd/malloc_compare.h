/*
 * The first part of `scry malloc compare`: `scry malloc record` in a process of its own.
 */
#ifndef SCRY_CMD_MALLOC_COMPARE_H
#define SCRY_CMD_MALLOC_COMPARE_H

#include <stdbool.h>

/*
 * Records `command` (ends with NULL) to `path`, which must not exist without `force`; its stdout
 * goes to stderr. What is not kept is not talked of. Waits for its end: *ret_status is the
 * program's exit status, or that of the failure. 0; -ENOENT with a sentence when there is no
 * recording; -EINTR: a signal said stop, and was passed on.
 */
int scry_malloc_record_to(const char *path, bool force, bool is_kept, char *const *command,
			  int *ret_status);

#endif
