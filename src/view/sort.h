/*
 * --sort: rows by a column, biggest first.
 *
 * Its key is that of JSON. The rows of a view are sorted by it, of gvl and locks each table that
 * has the column; the first line is of the largest share all the same.
 */
#ifndef SCRY_VIEW_SORT_H
#define SCRY_VIEW_SORT_H

#include "view/view.h"

/* What each view sorts by, for the completion too. */
#define SCRY_SORT_OBJECTS "allocated|bytes|live|live_bytes|max_age_gcs"
#define SCRY_SORT_COUNT "calls"
#define SCRY_SORT_TIME "calls|returned|left|missed|total_ns|mean_ns|p50_ns|p99_ns|max_ns"
#define SCRY_SORT_GREENLETS "size_bytes|copies|bytes"
#define SCRY_SORT_MALLOC                                                                   \
	"at_bytes|at_blocks|allocated|bytes|temporary|growth_bytes_per_s|"                 \
	"never_freed_pct|growth_bytes|ended|short_lived|peak_bytes|peak_blocks|end_bytes|" \
	"end_blocks"
#define SCRY_SORT_CALLS "total_ns|mean_ns|calls|p50_ns|p99_ns|max_ns|returned|left|unfinished"
#define SCRY_SORT_GVL                                                                           \
	"lost_ns|samples|waits|wait_max_ns|held_ns|wanted_ns|granted_ns|without_ns|unknown_ns|" \
	"takes|wait_p50_ns|wait_p90_ns|wait_p99_ns|older_wait_ns|open_wait_ns|yields|"          \
	"taken_back|forced|passes|overtakes|convoys|convoys_ns|convoy_max_ns|convoy_max_takes|" \
	"without_native_ns|without_off_ns|cpu_ns|lost_error_ns"
#define SCRY_SORT_LOCKS "waits|total_ns|mean_ns|max_ns|timed_out|failed|left|open|owned_ns"
#define SCRY_SORT_STACKS "self_ns|total_ns|samples"
#define SCRY_SORT_SYSCALLS                                                                    \
	"samples|count|calls_per_second|errors|eagain|enoent|total_ns|mean_ns|p50_ns|p99_ns|" \
	"max_ns|timed"

/* Of all views, some twice: for the completion of `scry report`. */
#define SCRY_SORT_REPORT                                                               \
	SCRY_SORT_OBJECTS "|" SCRY_SORT_STACKS "|" SCRY_SORT_CALLS "|" SCRY_SORT_TIME  \
			  "|" SCRY_SORT_GVL "|" SCRY_SORT_LOCKS "|" SCRY_SORT_SYSCALLS \
			  "|" SCRY_SORT_MALLOC "|" SCRY_SORT_GREENLETS

/* A row for the options of a command with that view. `o`: struct scry_view_opts *. */
#define SCRY_VIEW_SORT_OPT_ROW(o, keys)                                            \
	{                                                                          \
		0, "sort", SCRY_OPT_STRING, &(o)->sort_key, "KEY",                 \
			"biggest first, by the column with this key in JSON", keys \
	}

/* Has the view this column? */
bool scry_view_has_sort(const struct scry_view *view, const char *key);

/* Before a watch: 0, or -EINVAL with a sentence that names the keys. NULL is none, and fits. */
int scry_view_sort_check(const char *view, const char *key);

/* A key that the view has not, of --sort or --filter. */
struct scry_view_key {
	const char *key, *keys; /* keys: those that it has, "a|b" */
	const char *option;	/* "sort" */
	const char *use;	/* "sort by" */
};
/* -EINVAL, with a sentence that names the nearest one and all. */
int scry_view_key_refuse(const char *view, const struct scry_view_key *key);

/* What objects and malloc sort in a way of their own as enum scry_view_sort; else the column that
 * tables are sorted by stays `sort_key`. The view has it. */
void scry_view_sort_settle(const struct scry_view *view, struct scry_view_opts *opts);

#endif
