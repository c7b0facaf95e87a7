/*
 * --filter: rows by their file, class, method, gem, module, ...
 *
 * A filter is KEY=GLOB or KEY!=GLOB; KEY is that of a text, a name or a number in JSON. The glob
 * (glob(7)) must match the whole text; `*` matches `/` too, and a backslash takes the next
 * character as it is. Of the `=` filters of one key one must match; no `!=` filter may; all keys
 * must agree. What is not known is an empty text: `class=` matches it, `class=*` as well. Tables
 * apply it to their columns (view/table.h); objects before they sum rows up.
 */
#ifndef SCRY_VIEW_FILTER_H
#define SCRY_VIEW_FILTER_H

#include "view/view.h"

/* What the rows of each view have, for the completion too. */
#define SCRY_FILTER_OBJECTS "file|class|method|gem"
#define SCRY_FILTER_FUNCTIONS "symbol|module|way|pid" /* count, time */
#define SCRY_FILTER_GREENLETS "pid|tid"
#define SCRY_FILTER_MALLOC "module|symbol|file|line|method|source_file|source_line"
#define SCRY_FILTER_CALLS "function|library|file|line|method"
#define SCRY_FILTER_HIST "function|library"
#define SCRY_FILTER_GVL "file|line|method|library|function|gem|pid|thread|tid|name|waiter|holder"
#define SCRY_FILTER_LOCKS "lock|kind|module|symbol|function|pid|owner_tid"
#define SCRY_FILTER_STACKS "file|line|method|gem|thread|process|state"
#define SCRY_FILTER_SYSCALLS "name|abi|module|symbol|file|line|method|verdict|pid|tid|thread"

/* Of all views, some twice: for the completion of `scry report`. */
#define SCRY_FILTER_REPORT                                                                         \
	SCRY_FILTER_OBJECTS "|" SCRY_FILTER_STACKS "|" SCRY_FILTER_CALLS "|" SCRY_FILTER_FUNCTIONS \
			    "|" SCRY_FILTER_GVL "|" SCRY_FILTER_LOCKS "|" SCRY_FILTER_SYSCALLS     \
			    "|" SCRY_FILTER_MALLOC "|" SCRY_FILTER_GREENLETS

/* A row for the options of a command with that view. `o`: struct scry_view_opts *. */
#define SCRY_VIEW_FILTER_OPT_ROW(o, keys)                                                   \
	{                                                                                   \
		0, "filter", SCRY_OPT_STRINGS, &(o)->filter, "KEY=GLOB",                    \
			"only rows whose column with this key in JSON matches, or with != " \
			"does not; may be repeated",                                        \
			keys                                                                \
	}

struct scry_row_filter {
	size_t count;
	struct scry_row_term {
		const char *key; /* points into the option, as `glob` does */
		size_t key_length;
		const char *glob;
		bool is_not;
	} terms[SCRY_OPT_LIST_MAX];
};

/* Reads what --filter gave. 0, or -EINVAL with a sentence. */
int scry_row_filter_init(struct scry_row_filter *filter, const struct scry_opt_strings *texts);

/* Is it this key? */
bool scry_row_term_is(const struct scry_row_term *term, const char *key);
bool scry_row_term_is_same(const struct scry_row_term *a, const struct scry_row_term *b);

/* Does the whole text, "" when it is not known, match the term's glob, whatever its sign? */
bool scry_row_term_fits(const struct scry_row_term *term, const char *text);

/* `fits` says so of a row's text; -1: the row is of a kind that has none, the term says nothing. */
typedef int scry_row_fits(void *arg, const struct scry_row_term *term);
bool scry_row_filter_matches(const struct scry_row_filter *filter, scry_row_fits *fits, void *arg);

/* Before a watch: 0, or -EINVAL with a sentence that names the view's keys. */
int scry_view_filter_check(const char *view, const struct scry_opt_strings *texts);

/* Has the view all their keys? */
bool scry_view_has_filters(const struct scry_view *view, const struct scry_opt_strings *texts);

#endif
