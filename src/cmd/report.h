/*
 * From a recording to a report: what `scry report` does, and every live command at its end.
 */
#ifndef SCRY_CMD_REPORT_H
#define SCRY_CMD_REPORT_H

#include "view/view.h"

#include <stdbool.h>
#include <stdio.h>

struct scry_report_opts {
	const char *view; /* NULL: the one of the instrument that recorded */
	bool json;
	struct scry_view_opts rows;
};

#define SCRY_REPORT_OPTS_DEFAULT               \
	{                                      \
		.rows = SCRY_VIEW_OPTS_DEFAULT \
	}

/* Option rows shared by `report` and the live commands. `o`: struct scry_report_opts *. */
#define SCRY_REPORT_OPT_ROWS(o)                                                                \
	SCRY_VIEW_OPT_ROWS(&(o)->rows),                                                        \
	{                                                                                      \
		0, "json", SCRY_OPT_FLAG, &(o)->json, NULL, "print JSON instead of text", NULL \
	}

/* Opens a recording for reading. 0 and the fd (close-on-exec), or -errno with a sentence. */
int scry_recording_open(const char *path, int *ret_fd);

/*
 * Reads the recording `fd` (a regular file or memfd, from its beginning whatever the offset) and
 * prints it to `out`; the honesty of a text stream goes to stderr. 0 or -errno with a sentence.
 */
int scry_report_fd(int fd, const struct scry_report_opts *opts, FILE *out);

#endif
