/* Prints what replays say. */
#ifndef SCRY_CMD_MALLOC_PRINT_H
#define SCRY_CMD_MALLOC_PRINT_H

#include <stdbool.h>

#include "view/malloc_replay.h"

/* To a file by its name, NULL: stdout. A picture goes to its file, and the table to stdout as ever.
 * 0 or -errno with a sentence. */
int scry_malloc_print(const struct scry_replay_report *report, const char *path, bool is_json,
		      bool force);

#endif
