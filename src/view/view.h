/*
 * The table of views. A view reads a recording once and pushes a document; it touches no process.
 * A feature is one file plus one row in view.c.
 */
#ifndef SCRY_VIEW_VIEW_H
#define SCRY_VIEW_VIEW_H

#include "base/opt.h"
#include "rec/reader.h"
#include "view/calls.h"
#include "view/doc.h"
#include "view/stacks.h"

#define SCRY_VIEW_TOP_DEFAULT UINT64_MAX /* not given: 30 rows for people, all for programs */
enum scry_view_by {
	SCRY_VIEW_BY_LINE,
	SCRY_VIEW_BY_CLASS,
	SCRY_VIEW_BY_FILE,
	SCRY_VIEW_BY_METHOD,
	SCRY_VIEW_BY_GEM,
	SCRY_VIEW_BY_CALLER, /* from here on: of malloc only */
	SCRY_VIEW_BY_MODULE,
	SCRY_VIEW_BY_STACK,
	SCRY_VIEW_BY_SYSCALL, /* of system calls only, but for THREAD */
	SCRY_VIEW_BY_THREAD,
	SCRY_VIEW_BY_SITE,
	SCRY_VIEW_BY_HOLDER,  /* of the GVL only */
	SCRY_VIEW_BY_PROCESS, /* of stacks only */
};
enum scry_view_sort {
	SCRY_VIEW_SORT_DEFAULT = -1, /* by the column that the view is about */
	SCRY_VIEW_SORT_ALLOCATED,
	SCRY_VIEW_SORT_BYTES,
	SCRY_VIEW_SORT_LIVE,
	SCRY_VIEW_SORT_LIVE_BYTES,
	SCRY_VIEW_SORT_AGE,
	SCRY_VIEW_SORT_TEMPORARY, /* of malloc only */
	SCRY_VIEW_SORT_OLD_LIVE,  /* what live and live-bytes mean with --live */
	SCRY_VIEW_SORT_OLD_LIVE_BYTES,
};

struct scry_view_opts {
	int by;				/* enum scry_view_by */
	int sort;			/* enum scry_view_sort */
	const char *sort_key;		/* of a column: view/sort.h; NULL: as `sort` says */
	uint64_t top;			/* rows; 0: all; SCRY_VIEW_TOP_DEFAULT */
	const char *grep;		/* substring or /regex/ of "file:line class"; NULL: all */
	struct scry_opt_strings filter; /* view/filter.h */
	uint64_t pid;			/* only this process; 0: all */
	bool live;			/* only what survived the last full mark */
	bool internal;			/* the VM's own objects too */
	bool stacks;			/* by callers */
	const char *at;			/* malloc: "peak", "end", or a time; NULL: peak */
	struct scry_view_call_style calls;
	struct scry_view_stacks_style times;
	const struct scry_view_lines *lines; /* view/native_line.h; NULL: none are known */
};

/* clang-format off */
#define SCRY_VIEW_OPTS_DEFAULT {.sort = SCRY_VIEW_SORT_DEFAULT, .top = SCRY_VIEW_TOP_DEFAULT}
/* clang-format on */
#define SCRY_VIEW_SORT_CHOICES "allocated|bytes|live|live-bytes|age"
/* Rows of these options, for the table of a command (base/opt.h). `o`: struct scry_view_opts *.
 * PICK: which rows there are. */
#define SCRY_VIEW_PICK_OPT_ROWS(o)                                                               \
	{0,                                                                                      \
	 "by",                                                                                   \
	 SCRY_OPT_CHOICE,                                                                        \
	 &(o)->by,                                                                               \
	 NULL,                                                                                   \
	 "one row for each line, class, ...",                                                    \
	 "line|class|file|method|gem"},                                                          \
		{0,	    "top", SCRY_OPT_U64,                                                 \
		 &(o)->top, "N",   "show N rows, 0 all (default 30; all in JSON)",               \
		 NULL},                                                                          \
		{0,                                                                              \
		 "grep",                                                                         \
		 SCRY_OPT_STRING,                                                                \
		 &(o)->grep,                                                                     \
		 "TEXT",                                                                         \
		 "only rows whose \"file:line class\" contains TEXT, or matches /REGEX/",        \
		 NULL},                                                                          \
		{0,                                                                              \
		 "filter",                                                                       \
		 SCRY_OPT_STRINGS,                                                               \
		 &(o)->filter,                                                                   \
		 "KEY=GLOB",                                                                     \
		 "only rows whose file, class, method or gem matches, or with != does not; may " \
		 "be repeated",                                                                  \
		 "file|class|method|gem"},                                                       \
		{0,                                                                              \
		 "internal",                                                                     \
		 SCRY_OPT_FLAG,                                                                  \
		 &(o)->internal,                                                                 \
		 NULL,                                                                           \
		 "list objects internal to the VM too",                                          \
		 NULL},                                                                          \
	{                                                                                        \
		0, "stacks", SCRY_OPT_FLAG, &(o)->stacks, NULL,                                  \
			"by callers: a tree, arrays in JSON", NULL                               \
	}

#define SCRY_VIEW_OPT_ROWS(o)                                                      \
	{0,                                                                        \
	 "sort",                                                                   \
	 SCRY_OPT_CHOICE,                                                          \
	 &(o)->sort,                                                               \
	 NULL,                                                                     \
	 "biggest first, by this column (default allocated; live with --live)",    \
	 SCRY_VIEW_SORT_CHOICES},                                                  \
		{0,                                                                \
		 "live",                                                           \
		 SCRY_OPT_FLAG,                                                    \
		 &(o)->live,                                                       \
		 NULL,                                                             \
		 "only what survived the last full mark of the garbage collector", \
		 NULL},                                                            \
		SCRY_VIEW_PICK_OPT_ROWS(o)

typedef int scry_view_run(struct scry_reader *reader, const struct scry_view_opts *opts,
			  struct scry_doc *doc);

struct scry_view {
	const char *name, *of, *help; /* of: whose recordings it shows; NULL: any */
	unsigned int schema;	      /* of its JSON: raised only when a key goes or changes */
	bool is_stream;		      /* records as they come, data quality last */
	scry_view_run *run;
	unsigned int takes;	     /* options: view/takes.h */
	const char *sorts, *filters; /* what these options take: view/sort.h, filter.h; or NULL */
};

extern const struct scry_view scry_views[]; /* ends with a row without a name */

/* The row of that name; NULL with a sentence that lists the names. */
const struct scry_view *scry_view_find(const char *name);

/* Ask it before a watch: patterns that are none, combinations. 0, or -EINVAL with a sentence. */
int scry_view_opts_check(const struct scry_view_opts *opts);

/* What --sort and --live mean for objects: enum scry_view_sort. What --top means: rows, 0 all. */
int scry_view_sort_of(const struct scry_view_opts *opts);
uint64_t scry_view_top(const struct scry_view_opts *opts, const struct scry_doc *doc);

/* The views. 0 or -errno with a sentence; scry_doc_end stays the caller's in both cases. */
scry_view_run scry_view_objects, scry_view_time, scry_view_count, scry_view_events, scry_view_info,
	scry_view_log, scry_view_greenlets, scry_view_calls, scry_view_calls_sums,
	scry_view_calls_hist, scry_view_calls_tree, scry_view_gvl, scry_view_locks,
	scry_view_stacks, scry_view_syscalls;

#endif
