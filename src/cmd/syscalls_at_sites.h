/*
 * `scry syscalls --exact=site`: samples for a second, as without --exact, then counts at the places
 * that were found (instrument/sites.h).
 */
#ifndef SCRY_CMD_SYSCALLS_AT_SITES_H
#define SCRY_CMD_SYSCALLS_AT_SITES_H

#include "cmd/report.h"
#include "watch/watch.h"

/* Of the one process in `opts`, which has no instrument_opts. The exit status; with a sentence
 * where something failed. */
int scry_syscalls_at_sites(const struct scry_watch_opts *opts, uint32_t rate,
			   const struct scry_report_opts *report);

#endif
