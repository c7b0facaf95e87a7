/*
 * The whole run of a watching command: output, front, report. The report is made by reading the
 * recording, which without -o is a memfd.
 */
#ifndef SCRY_CMD_RUN_H
#define SCRY_CMD_RUN_H

#include "cmd/report.h"
#include "watch/watch.h"

/* Returns the exit status; with a sentence where something failed. With --dry-run it says what
 * would be done. */
int scry_run(struct scry_watch_opts *opts, const struct scry_instrument *instrument,
	     const struct scry_report_opts *report);

#endif
