/*
 * --grep. See grep.h.
 */
#include "view/grep.h"

#include "base/demangle.h"
#include "base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int scry_grep_init(struct scry_grep *grep, const char *pattern)
{
	size_t len = pattern ? strlen(pattern) : 0;
	char *inner, why[128];
	int code;

	*grep = (struct scry_grep){.text = pattern};
	if (pattern)
		scry_demangle(pattern, len, &grep->demangled);
	if (len < 3 || pattern[0] != '/' || pattern[len - 1] != '/')
		return 0;
	inner = strndup(pattern + 1, len - 2);
	if (!inner)
		return scry_no_memory("the pattern");
	code = regcomp(&grep->regex, inner, REG_EXTENDED | REG_NOSUB);
	free(inner);
	if (code) {
		regerror(code, &grep->regex, why, sizeof(why));
		return scry_fail(-EINVAL, "invalid regular expression '%s': %s", pattern, why);
	}
	grep->is_regex = true;
	return 0;
}

void scry_grep_done(struct scry_grep *grep)
{
	if (grep->is_regex)
		regfree(&grep->regex);
	scry_buf_done(&grep->demangled);
	*grep = (struct scry_grep){0};
}

bool scry_grep_matches(const struct scry_grep *grep, const char *text)
{
	if (grep->is_regex)
		return regexec(&grep->regex, text, 0, NULL, 0) == 0;
	return !grep->text || strstr(text, grep->text) ||
	       (grep->demangled.len && strstr(text, grep->demangled.data));
}

bool scry_grep_matches_row(const struct scry_grep *grep, struct scry_buf *texts)
{
	char *at = texts->data, *end;

	if (!texts->len || !grep->text)
		return scry_grep_matches(grep, scry_buf_str(texts));
	for (; (end = strchr(at, '\n')); at = end + 1) {
		*end = 0;
		if (end > at && scry_grep_matches(grep, at))
			return true;
		*end = ' ';
	}
	return (*at && scry_grep_matches(grep, at)) || scry_grep_matches(grep, texts->data);
}

static bool matches(const char *name, const void *grep)
{
	return scry_grep_matches(grep, name);
}

bool scry_grep_matches_symbol(const struct scry_grep *grep, const char *symbol)
{
	return scry_demangle_any(symbol ? symbol : "", matches, grep);
}
