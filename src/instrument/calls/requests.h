/*
 * What the user of `scry calls` asked for: of the hooks of a process, and, at the end, whether any
 * process had it.
 */
#ifndef SCRY_INSTRUMENT_CALLS_REQUESTS_H
#define SCRY_INSTRUMENT_CALLS_REQUESTS_H

#include "hook/hooks.h"
#include "instrument/calls/calls.h"

/* Wants all of them, in their order. As scry_hooks_want. */
int scry_calls_requests_want(const struct scry_calls_cli *cli, struct scry_hooks *h);
/* Does it only start and end a program, and is not asked for by name? */
bool scry_calls_requests_is_startup(const char *symbol, const char *request);
/* Says which functions are followed only where they are called through slots. */
void scry_calls_requests_report_slots(struct scry_watch *w, const struct scry_hooks *h);
/* A process ends whose requests from `first` on are these: which it had is noted. */
void scry_calls_requests_note(struct scry_calls_cli *cli, struct scry_hooks *h, size_t first);
/* Says which were not found. -ENOTSUP with a sentence: nothing at all. */
int scry_calls_requests_end(struct scry_watch *speaker);

#endif
