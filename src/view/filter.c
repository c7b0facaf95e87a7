/*
 * --filter. See filter.h.
 */
#include "view/filter.h"

#include "base/err.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>

static const char *const keys[SCRY_ROW_FILTER_KEYS] = {
	[SCRY_ROW_FILTER_FILE] = "file",
	[SCRY_ROW_FILTER_CLASS] = "class",
	[SCRY_ROW_FILTER_METHOD] = "method",
	[SCRY_ROW_FILTER_GEM] = "gem",
};

static int filter_add(struct scry_row_filter *filter, const char *text)
{
	const char *equals = strchr(text, '=');
	bool is_not = equals && equals > text && equals[-1] == '!';
	size_t len = equals ? (size_t)(equals - text) - is_not : 0;
	int key;

	for (key = 0; key < SCRY_ROW_FILTER_KEYS; key++)
		if (len == strlen(keys[key]) && !memcmp(text, keys[key], len))
			break;
	if (key == SCRY_ROW_FILTER_KEYS)
		return scry_fail(-EINVAL,
				 "'%s' is not a filter; fix: file=GLOB, class=GLOB, method=GLOB or "
				 "gem=GLOB, or one with !=",
				 text);
	filter->terms[filter->count].glob = equals + 1;
	filter->terms[filter->count].key = (enum scry_row_filter_key)key;
	filter->terms[filter->count].is_not = is_not;
	filter->count++;
	return 0;
}

int scry_row_filter_init(struct scry_row_filter *filter, const struct scry_opt_strings *texts)
{
	size_t i;
	int err = 0;

	filter->count = 0;
	for (i = 0; i < texts->count && !err; i++)
		err = filter_add(filter, texts->values[i]);
	return err;
}

bool scry_row_filter_matches(const struct scry_row_filter *filter,
			     const char *const texts[SCRY_ROW_FILTER_KEYS])
{
	bool is_asked[SCRY_ROW_FILTER_KEYS] = {false}, is_met[SCRY_ROW_FILTER_KEYS] = {false};
	size_t i;
	int key;

	for (i = 0; i < filter->count; i++) {
		bool matches = fnmatch(filter->terms[i].glob, texts[filter->terms[i].key], 0) == 0;

		if (filter->terms[i].is_not && matches)
			return false;
		if (filter->terms[i].is_not)
			continue;
		is_asked[filter->terms[i].key] = true;
		is_met[filter->terms[i].key] |= matches;
	}
	for (key = 0; key < SCRY_ROW_FILTER_KEYS; key++)
		if (is_asked[key] && !is_met[key])
			return false;
	return true;
}
