/*
 * --filter. See filter.h.
 */
#include "view/filter.h"

#include "base/err.h"
#include "view/sort.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>

static int filter_add(struct scry_row_filter *filter, const char *text)
{
	const char *equals = strchr(text, '=');
	const bool is_not = equals && equals > text && equals[-1] == '!';
	const size_t length = equals ? (size_t)(equals - text) - is_not : 0;

	if (!length)
		return scry_fail(-EINVAL,
				 "'%s' is not a filter; fix: KEY=GLOB or KEY!=GLOB, as in "
				 "file=*/app.rb",
				 text);
	filter->terms[filter->count++] = (struct scry_row_term){text, length, equals + 1, is_not};
	return 0;
}

int scry_row_filter_init(struct scry_row_filter *filter, const struct scry_opt_strings *texts)
{
	int err = 0;

	filter->count = 0;
	for (size_t i = 0; i < texts->count && !err; i++)
		err = filter_add(filter, texts->values[i]);
	return err;
}

bool scry_row_term_is(const struct scry_row_term *term, const char *key)
{
	return strlen(key) == term->key_length && !memcmp(key, term->key, term->key_length);
}

bool scry_row_term_fits(const struct scry_row_term *term, const char *text)
{
	return fnmatch(term->glob, text, 0) == 0;
}

bool scry_row_term_is_same(const struct scry_row_term *a, const struct scry_row_term *b)
{
	return a->key_length == b->key_length && !memcmp(a->key, b->key, a->key_length);
}

/* Does another `=` filter of the same key match? */
static bool has_other(const struct scry_row_filter *filter, const struct scry_row_term *term,
		      scry_row_fits *fits, void *arg)
{
	for (size_t i = 0; i < filter->count; i++) {
		const struct scry_row_term *other = &filter->terms[i];

		if (!other->is_not && other != term && scry_row_term_is_same(other, term) &&
		    fits(arg, other) > 0)
			return true;
	}
	return false;
}

bool scry_row_filter_matches(const struct scry_row_filter *filter, scry_row_fits *fits, void *arg)
{
	for (size_t i = 0; i < filter->count; i++) {
		const struct scry_row_term *term = &filter->terms[i];
		const int is = fits(arg, term);

		if (is >= 0 && term->is_not == !!is &&
		    (term->is_not || !has_other(filter, term, fits, arg)))
			return false;
	}
	return true;
}

static bool has_key(const struct scry_view *view, const char *key, size_t length)
{
	const char *words = view->filters, *word;
	size_t n;

	while (words && (n = scry_opt_next_choice(&words, &word)) > 0)
		if (n == length && !memcmp(word, key, n))
			return true;
	return false;
}

bool scry_view_has_filters(const struct scry_view *view, const struct scry_opt_strings *texts)
{
	struct scry_row_filter filter;

	if (scry_row_filter_init(&filter, texts))
		return false;
	for (size_t i = 0; i < filter.count; i++)
		if (!has_key(view, filter.terms[i].key, filter.terms[i].key_length))
			return false;
	return true;
}

int scry_view_filter_check(const char *name, const struct scry_opt_strings *texts)
{
	const struct scry_view *view = scry_view_find(name);
	struct scry_row_filter filter;
	int err = view ? scry_row_filter_init(&filter, texts) : -EINVAL;

	for (size_t i = 0; !err && view->filters && i < filter.count; i++) {
		const struct scry_row_term *term = &filter.terms[i];
		char key[64];

		if (has_key(view, term->key, term->key_length))
			continue;
		snprintf(key, sizeof(key), "%.*s", (int)term->key_length, term->key);
		err = scry_view_key_refuse(
			name, &(struct scry_view_key){key, view->filters, "filter", "filter by"});
	}
	return err;
}
