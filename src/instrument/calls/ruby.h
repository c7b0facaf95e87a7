/*
 * The Ruby stack of each call, `scry calls -k`: agent/calls_ruby.h set up, and read
 * (name/ruby_stacks). Private to the instrument (calls.c).
 *
 * Calls that a program makes before its VM can be looked at are kept back until then.
 */
#ifndef SCRY_INSTRUMENT_CALLS_RUBY_H
#define SCRY_INSTRUMENT_CALLS_RUBY_H

#include "hook/hooks.h"
#include "instrument/ruby_lines.h"
#include "name/ruby_stacks.h"

#define SCRY_CALLS_RUBY_GUARDS 2u

struct scry_calls_ruby {
	struct scry_ruby_lines lines;
	struct scry_ruby_stacks *stacks; /* NULL: none are wanted */
	uint64_t since_ns;		 /* calls are kept back; 0: they are not */
	bool is_late;			 /* some could not be any longer */
};

/* Of a process that may be a Ruby; reads only. 0 or -ENOMEM. */
int scry_calls_ruby_plan(struct scry_calls_ruby *k, struct scry_watch *w);
/* Wants what ends code to be seen, as the last requests: SCRY_CALLS_RUBY_GUARDS of them, or none.
 * How many, or -errno. */
int scry_calls_ruby_want(const struct scry_calls_ruby *k, struct scry_hooks *h);
/* SCRY_CALL_IS_FREE, SCRY_CALL_IS_DOWN, or 0. */
uint32_t scry_calls_ruby_guard(const struct scry_calls_ruby *k, const struct scry_hook *row);
/* Hooks are planned: where code could end unseen, lines are left out. */
void scry_calls_ruby_check(struct scry_calls_ruby *k, const struct scry_hooks *h);
/* Before the first hook is on. 0 or -errno. */
int scry_calls_ruby_report(struct scry_calls_ruby *k);
/* May calls be written now? `is_last`: they must. */
bool scry_calls_ruby_turn(struct scry_calls_ruby *k, bool is_last);
/* At the end: what the stacks lack. */
void scry_calls_ruby_note(const struct scry_calls_ruby *k);
void scry_calls_ruby_done(struct scry_calls_ruby *k);

#endif
