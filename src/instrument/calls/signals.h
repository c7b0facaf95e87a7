/*
 * `scry calls`: signals (sys/signals) among the calls, in one order. One source for all watches of
 * a run, which get what is their process's. Private to the instrument (calls.c).
 *
 * Life: open in `prepare`, take before each merge, note in `finish`, close.
 */
#ifndef SCRY_INSTRUMENT_CALLS_SIGNALS_H
#define SCRY_INSTRUMENT_CALLS_SIGNALS_H

#include "instrument/calls/functions.h"

/* t->signals, or none: why is kept for the note. */
void scry_calls_signals_open(struct scry_calls_watch *t);
/* Lowers *watermark to what may be merged. */
void scry_calls_signals_take(struct scry_calls_watch *t, bool is_last, uint64_t *watermark);
/* Why there are none, if the program handles signals: else only the one that ends it is missing. */
void scry_calls_signals_note(struct scry_calls_watch *t);
/* The last one of a run says what is missing. */
void scry_calls_signals_close(struct scry_calls_watch *t);

#endif
