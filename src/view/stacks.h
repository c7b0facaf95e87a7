/*
 * Which time the stacks view shows: a part of the options of views (view/view.h).
 */
#ifndef SCRY_VIEW_STACKS_H
#define SCRY_VIEW_STACKS_H

#include <stdbool.h>

#include "base/opt.h"

struct scry_view_opts;

struct scry_view_stacks_style {
	bool wall, cpu, gvl; /* one at most; none: wall */
	bool idle;	     /* threads that only waited too */
	bool split;	     /* with stacks: a row for each thread and state of a stack */
};

/* Rows of these options, for the table of a command. `o`: struct scry_view_opts *. */
#define SCRY_VIEW_STACKS_OPT_ROWS(o)                                       \
	{0,                                                                \
	 "wall",                                                           \
	 SCRY_OPT_FLAG,                                                    \
	 &(o)->times.wall,                                                 \
	 NULL,                                                             \
	 "stacks: all time that passed, running or waiting (default)",     \
	 NULL},                                                            \
		{0,                                                        \
		 "cpu",                                                    \
		 SCRY_OPT_FLAG,                                            \
		 &(o)->times.cpu,                                          \
		 NULL,                                                     \
		 "stacks: only time on a processor, as the kernel counts", \
		 NULL},                                                    \
		{0,                                                        \
		 "gvl",                                                    \
		 SCRY_OPT_FLAG,                                            \
		 &(o)->times.gvl,                                          \
		 NULL,                                                     \
		 "stacks: only time waiting for the VM's lock",            \
		 NULL},                                                    \
	{                                                                  \
		0, "idle", SCRY_OPT_FLAG, &(o)->times.idle, NULL,          \
			"stacks: threads too that only waited", NULL       \
	}

/* Ask it before a watch: 0, or -EINVAL with a sentence: --filter names a column that rows of this
 * --by have not. */
int scry_stacks_check_filter(const struct scry_view_opts *opts);

#endif
