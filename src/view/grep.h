/*
 * --grep: a substring, or /regex/ (POSIX extended). A mangled name means the demangled one, too,
 * which is what rows show.
 */
#ifndef SCRY_VIEW_GREP_H
#define SCRY_VIEW_GREP_H

#include <regex.h>
#include <stdbool.h>

#include "base/buf.h"

struct scry_grep {
	const char *text; /* NULL: matches everything */
	struct scry_buf demangled;
	bool is_regex;
	regex_t regex;
};

/* Reads the pattern; NULL matches everything. 0, or -EINVAL with a sentence for a bad regex. */
int scry_grep_init(struct scry_grep *grep, const char *pattern);
void scry_grep_done(struct scry_grep *grep);

bool scry_grep_matches(const struct scry_grep *grep, const char *text);

/* A row's texts, each ended by '\n' but for the last: is it one of them, or the whole, in one line?
 * So /^open$/ is a name, wherever it is. Ends of lines are overwritten. */
bool scry_grep_matches_row(const struct scry_grep *grep, struct scry_buf *texts);

/* The name of a function: as it is, or demangled. NULL is "". */
bool scry_grep_matches_symbol(const struct scry_grep *grep, const char *symbol);

#endif
