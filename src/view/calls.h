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
	int objects;	      /* --objects */
	bool pointer;	      /* -i */
	bool no_stacks;	      /* they were recorded for -i alone */
	uint64_t elements;    /* -A; 0: SCRY_ARRAY_SHOWN */
	uint64_t indent;      /* -n */
	uint64_t slow_ns;     /* only calls that took so long */
	const char *where;    /* view/calls_where.h; NULL: all */
};

enum scry_view_call_objects { SCRY_CALL_OBJECTS_AUTO, SCRY_CALL_OBJECTS_YES, SCRY_CALL_OBJECTS_NO };
#define SCRY_VIEW_CALLS_OBJECTS "auto|always|never"

/* Rows of these options, for the table of a command. `o`: struct scry_view_opts *. */
#define SCRY_VIEW_CALLS_OPT_ROWS(o)                                                           \
	{'t',                                                                                 \
	 "time",                                                                              \
	 SCRY_OPT_COUNT,                                                                      \
	 &(o)->calls.clock,                                                                   \
	 NULL,                                                                                \
	 "calls: the time of day; -tt with microseconds, -ttt in seconds since 1970",         \
	 NULL},                                                                               \
		{'r',		"relative",                                                   \
		 SCRY_OPT_FLAG, &(o)->calls.relative,                                         \
		 NULL,		"calls: the time since the line before",                      \
		 NULL},                                                                       \
		{'T',		"durations",                                                  \
		 SCRY_OPT_FLAG, &(o)->calls.durations,                                        \
		 NULL,		"calls: how long each took",                                  \
		 NULL},                                                                       \
		{'n',                                                                         \
		 "indent",                                                                    \
		 SCRY_OPT_U64,                                                                \
		 &(o)->calls.indent,                                                          \
		 "N",                                                                         \
		 "calls: indent by N columns for each call that is open in the thread",       \
		 NULL},                                                                       \
		{'i',		"instruction-pointer",                                        \
		 SCRY_OPT_FLAG, &(o)->calls.pointer,                                          \
		 NULL,		"calls: the address that each call returns to",               \
		 NULL},                                                                       \
		{'A',	       "elements",                                                    \
		 SCRY_OPT_U64, &(o)->calls.elements,                                          \
		 "N",	       "calls: show N elements of an array (default 4)",              \
		 NULL},                                                                       \
		{0,                                                                           \
		 "objects",                                                                   \
		 SCRY_OPT_CHOICE,                                                             \
		 &(o)->calls.objects,                                                         \
		 NULL,                                                                        \
		 "calls: name the caller (app->fn) or the library (fn@lib): with auto where " \
		 "several "                                                                   \
		 "objects are traced (default auto)",                                         \
		 SCRY_VIEW_CALLS_OBJECTS},                                                    \
		{0,                                                                           \
		 "where",                                                                     \
		 SCRY_OPT_STRING,                                                             \
		 &(o)->calls.where,                                                           \
		 "EXPR",                                                                      \
		 "calls: only those whose arguments, result and duration are so, like "       \
		 "'arg2 > 4096 && ret < 0'",                                                  \
		 NULL},                                                                       \
	{                                                                                     \
		0, "slow", SCRY_OPT_DURATION, &(o)->calls.slow_ns, "TIME",                    \
			"calls: only those that took so long, and how long", NULL             \
	}

#endif
