/*
 * The table of instruments: what a watch can be of. Each is a row of functions that the runtime
 * (watch/) calls; which one a command runs is the command's choice.
 */
#ifndef SCRY_INSTRUMENT_INSTRUMENTS_H
#define SCRY_INSTRUMENT_INSTRUMENTS_H

#include "watch/watch.h"

extern const struct scry_instrument scry_instrument_objects; /* objects/ */
extern const struct scry_instrument scry_instrument_count, scry_instrument_time,
	scry_instrument_log;
extern const struct scry_instrument scry_instrument_malloc; /* malloc/ */
/* locks: its options are a uint64_t, frames of a stack. */
extern const struct scry_instrument scry_instrument_locks;
extern const struct scry_instrument scry_instrument_gvl;   /* gvl/ */
extern const struct scry_instrument scry_instrument_sites; /* sites.h: system calls */
/* calls/: by hooks, and by breakpoints, of one program only. */
extern const struct scry_instrument scry_instrument_calls, scry_instrument_calls_stopped;

#endif
