/*
 * How lines of calls look, in ltrace's words: a part of the options of views (view/view.h).
 */
#ifndef SCRY_VIEW_CALLS_H
#define SCRY_VIEW_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"

struct scry_view_call_style { /* lines of calls, in ltrace's words */
	int clock;	      /* 1: -t, 2: -tt, 3: -ttt */
	bool relative;	      /* -r */
	bool durations;	      /* -T */
	uint64_t indent;      /* -n */
	uint64_t slow_ns;     /* only calls that took so long */
};

/* Rows of these options, for the table of a command. `o`: struct scry_view_opts *. */
#define SCRY_VIEW_CALLS_OPT_ROWS(o)                                                     \
	{'t',                                                                           \
	 "time",                                                                        \
	 SCRY_OPT_COUNT,                                                                \
	 &(o)->calls.clock,                                                             \
	 NULL,                                                                          \
	 "calls: the time of day; -tt with microseconds, -ttt in seconds since 1970",   \
	 NULL},                                                                         \
		{'r',		"relative",                                             \
		 SCRY_OPT_FLAG, &(o)->calls.relative,                                   \
		 NULL,		"calls: the time since the line before",                \
		 NULL},                                                                 \
		{'T',		"durations",                                            \
		 SCRY_OPT_FLAG, &(o)->calls.durations,                                  \
		 NULL,		"calls: how long each took",                            \
		 NULL},                                                                 \
		{'n',                                                                   \
		 "indent",                                                              \
		 SCRY_OPT_U64,                                                          \
		 &(o)->calls.indent,                                                    \
		 "N",                                                                   \
		 "calls: indent by N columns for each call that is open in the thread", \
		 NULL},                                                                 \
	{                                                                               \
		0, "slow", SCRY_OPT_DURATION, &(o)->calls.slow_ns, "TIME",              \
			"calls: only those that took so long, and how long", NULL       \
	}

#endif
