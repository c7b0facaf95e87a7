/*
 * --filter: rows by their file, class, method or gem.
 *
 * A filter is KEY=GLOB or KEY!=GLOB; KEY is file, class, method or gem. The glob (glob(7)) must
 * match the whole text; `*` matches `/` too, and a backslash takes the next character as it is. Of
 * the `=` filters of one key one must match; no `!=` filter may; keys are told apart and all
 * must agree. What is not known is an empty text: `class=` matches it, `class=*` as well.
 */
#ifndef SCRY_VIEW_FILTER_H
#define SCRY_VIEW_FILTER_H

#include "base/opt.h"

#include <stdbool.h>

enum scry_row_filter_key {
	SCRY_ROW_FILTER_FILE,
	SCRY_ROW_FILTER_CLASS,
	SCRY_ROW_FILTER_METHOD,
	SCRY_ROW_FILTER_GEM,
	SCRY_ROW_FILTER_KEYS,
};

struct scry_row_filter {
	size_t count;
	struct {
		const char *glob; /* points into the option */
		enum scry_row_filter_key key;
		bool is_not;
	} terms[SCRY_OPT_LIST_MAX];
};

/* Reads what --filter gave. 0, or -EINVAL with a sentence. */
int scry_row_filter_init(struct scry_row_filter *filter, const struct scry_opt_strings *texts);

/* texts[key] is the row's text, "" when it is not known. */
bool scry_row_filter_matches(const struct scry_row_filter *filter,
			     const char *const texts[SCRY_ROW_FILTER_KEYS]);

#endif
