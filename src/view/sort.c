/* --sort by a column. See sort.h. */
#include "view/sort.h"

#include "base/err.h"
#include "base/nearest.h"
#include "base/text.h"

#include <errno.h>
#include <string.h>

/* The place of a word among those of `words`; -1: it is none of them. */
static int word_at(const char *words, const char *key)
{
	const char *word;
	size_t length;

	for (int i = 0; words && (length = scry_opt_next_choice(&words, &word)) > 0; i++)
		if (strlen(key) == length && !memcmp(word, key, length))
			return i;
	return -1;
}

bool scry_view_has_sort(const struct scry_view *view, const char *key)
{
	return word_at(view->sorts, key) >= 0;
}

int scry_view_sort_check(const char *name, const char *key)
{
	const struct scry_view *view = scry_view_find(name);
	struct scry_buf keys = {0};
	struct scry_nearest near;
	const char *words, *word;
	size_t length;

	if (!view)
		return -EINVAL;
	if (!key || !view->sorts || scry_view_has_sort(view, key))
		return 0;
	scry_nearest_begin(&near, key);
	for (words = view->sorts; (length = scry_opt_next_choice(&words, &word)) > 0;) {
		const size_t at = keys.len ? keys.len + 2 : 0;

		scry_buf_append(&keys, ", ", keys.len ? 2 : 0);
		scry_buf_append(&keys, word, length);
		scry_nearest_offer(&near, scry_buf_str(&keys) + at);
	}
	scry_fail(-EINVAL, "the %s view has no column '%s' to sort by%s; fix: --sort %s%s", name,
		  key, scry_nearest_ask(&near).text, strchr(view->sorts, '|') ? "with one of " : "",
		  scry_buf_str(&keys));
	scry_buf_done(&keys);
	return -EINVAL;
}

void scry_view_sort_settle(const struct scry_view *view, struct scry_view_opts *opts)
{
	static const char words[] = SCRY_SORT_OBJECTS "|temporary"; /* as enum scry_view_sort */
	const int at = opts->sort_key ? word_at(words, opts->sort_key) : -1;

	if (at < 0 || (view->run != scry_view_objects && strcmp(view->name, "malloc") != 0))
		return;
	opts->sort = at;
	opts->sort_key = NULL;
}
