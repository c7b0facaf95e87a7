/* --sort by a column. See sort.h. */
#include "view/sort.h"

#include "base/err.h"
#include "base/nearest.h"
#include "base/text.h"

#include <errno.h>
#include <string.h>

static bool is_among(const char *words, const char *key)
{
	const char *word;
	size_t length;

	while ((length = scry_opt_next_choice(&words, &word)) > 0)
		if (strlen(key) == length && !memcmp(word, key, length))
			return true;
	return false;
}

/* Columns that each of the two views sorts in its own way, and the words by which they were known
 * before they had keys. */
static const struct sort_word {
	const char *key;
	int objects, malloc; /* enum scry_view_sort; SCRY_VIEW_SORT_DEFAULT: it is not one of its */
} sort_words[] = {
	{"allocated", SCRY_VIEW_SORT_ALLOCATED, SCRY_VIEW_SORT_ALLOCATED},
	{"bytes", SCRY_VIEW_SORT_BYTES, SCRY_VIEW_SORT_BYTES},
	{"live", SCRY_VIEW_SORT_LIVE, SCRY_VIEW_SORT_LIVE},
	{"live_bytes", SCRY_VIEW_SORT_LIVE_BYTES, SCRY_VIEW_SORT_DEFAULT},
	{"live-bytes", SCRY_VIEW_SORT_LIVE_BYTES, SCRY_VIEW_SORT_LIVE_BYTES},
	{"max_age_gcs", SCRY_VIEW_SORT_AGE, SCRY_VIEW_SORT_DEFAULT},
	{"age", SCRY_VIEW_SORT_AGE, SCRY_VIEW_SORT_DEFAULT},
	{"at_blocks", SCRY_VIEW_SORT_DEFAULT, SCRY_VIEW_SORT_LIVE},
	{"at_bytes", SCRY_VIEW_SORT_DEFAULT, SCRY_VIEW_SORT_LIVE_BYTES},
	{"temporary", SCRY_VIEW_SORT_DEFAULT, SCRY_VIEW_SORT_TEMPORARY},
};

static int sort_of(const struct scry_view *view, const char *key)
{
	const bool is_malloc = !strcmp(view->name, "malloc");

	if (!is_malloc && view->run != scry_view_objects)
		return SCRY_VIEW_SORT_DEFAULT;
	for (size_t i = 0; i < sizeof(sort_words) / sizeof(sort_words[0]); i++)
		if (!strcmp(sort_words[i].key, key))
			return is_malloc ? sort_words[i].malloc : sort_words[i].objects;
	return SCRY_VIEW_SORT_DEFAULT;
}

bool scry_view_has_sort(const struct scry_view *view, const char *key)
{
	return view->sorts &&
	       (is_among(view->sorts, key) || sort_of(view, key) != SCRY_VIEW_SORT_DEFAULT);
}

int scry_view_key_refuse(const char *view, const struct scry_view_key *key)
{
	struct scry_buf keys = {0};
	struct scry_nearest near;
	const char *words = key->keys, *word;
	size_t length;

	scry_nearest_begin(&near, key->key);
	while ((length = scry_opt_next_choice(&words, &word)) > 0) {
		const size_t at = keys.len ? keys.len + 2 : 0;

		scry_buf_append(&keys, ", ", keys.len ? 2 : 0);
		scry_buf_append(&keys, word, length);
		scry_nearest_offer(&near, scry_buf_str(&keys) + at);
	}
	scry_fail(-EINVAL, "the %s view has no column '%s' to %s%s; fix: --%s %s%s", view, key->key,
		  key->use, scry_nearest_ask(&near).text, key->option,
		  strchr(key->keys, '|') ? "with one of " : "", scry_buf_str(&keys));
	scry_buf_done(&keys);
	return -EINVAL;
}

int scry_view_sort_check(const char *name, const char *key)
{
	const struct scry_view *view = scry_view_find(name);

	if (!view)
		return -EINVAL;
	if (!key || !view->sorts || scry_view_has_sort(view, key))
		return 0;
	return scry_view_key_refuse(name,
				    &(struct scry_view_key){key, view->sorts, "sort", "sort by"});
}

void scry_view_sort_settle(const struct scry_view *view, struct scry_view_opts *opts)
{
	const int sort = opts->sort_key ? sort_of(view, opts->sort_key) : SCRY_VIEW_SORT_DEFAULT;

	if (sort == SCRY_VIEW_SORT_DEFAULT)
		return;
	opts->sort = sort;
	opts->sort_key = NULL;
}
