/*
 * The other engine of `scry calls`, --engine=breakpoint: entries and returns are seen by
 * breakpoints (trace/breaks) in threads that the keeper traces (trace/ptrace_stops), and emitted in
 * the words in which the agent emits (wire/call_ring.h). No return address is changed.
 *
 * Life, in the keeper: new, plan (reads only); enter, turn..., leave; report; free.
 */
#ifndef SCRY_INSTRUMENT_CALLS_BREAK_H
#define SCRY_INSTRUMENT_CALLS_BREAK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "hook/hooks.h"
#include "instrument/calls/calls.h"
#include "name/calls.h"
#include "proto/plan.h"

struct scry_calls_break;

struct scry_calls_break_opts {
	struct scry_watch *watch;
	struct scry_hooks *hooks; /* opened here; its rows are the functions, done by the caller */
	struct scry_calls *calls; /* where words go */
	struct scry_native_stacks *stacks; /* of its calls, `depth` frames; NULL: none are wanted */
	struct scry_modules *modules;	   /* of the process; with stacks */
	uint32_t depth;
	uint32_t string_size;
	const int64_t *errno_at; /* from the thread pointer; 0 there: not known */
	const struct scry_calls_request *requests;
	size_t request_count;
	/* Fills in the cookies (wire/call_ring.h) of rows that have a way, and emits their plans;
	 * `is_loading`: a thread waits. 0 or -errno. */
	int (*number)(struct scry_hooks *rows, bool is_loading, void *arg);
	void *arg;
};

int scry_calls_break_new(const struct scry_calls_break_opts *opts, struct scry_calls_break **ret);
void scry_calls_break_free(struct scry_calls_break *b); /* NULL is legal */

/* Finds the functions. 0; -ENOTSUP: none of them can be hit; -errno, with a sentence. */
int scry_calls_break_plan(struct scry_calls_break *b);
void scry_calls_break_describe(const struct scry_calls_break *b, FILE *out);

/* In `number`: what is fetched of calls of function `number`; copied. 0 or -ENOMEM. */
int scry_calls_break_plans(struct scry_calls_break *b, uint32_t number,
			   const struct scry_plan *plan);

int scry_calls_break_enter(struct scry_calls_break *b);
/* Takes what happens for a turn of the keeper. `is_full`: what is recorded is not taken, so threads
 * that call wait, for a second in all; then calls are lost and counted. */
void scry_calls_break_turn(struct scry_calls_break *b, bool is_full);
void scry_calls_break_leave(struct scry_calls_break *b);

/* In `finish`: what is missing. */
void scry_calls_break_report(const struct scry_calls_break *b);

#endif
