/* --filter: what it takes, and which rows it lets through. */
#include "view/filter.h"

#include "base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define KEYS 4
static const char *const keys[KEYS] = {"file", "class", "method", "gem"};
static const char *const row[KEYS] = {"/srv/app/models/user.rb", "Foo::Bar", "to_s", "(app)"};
static const char *const blank[KEYS] = {"", "", "", ""};

static int fits(void *arg, const struct scry_row_term *term)
{
	const char *const *texts = arg;

	for (size_t i = 0; i < KEYS; i++)
		if (scry_row_term_is(term, keys[i]))
			return scry_row_term_fits(term, texts[i]);
	return -1;
}

/* Filters are split at blanks. */
static bool lets(const char *filters, const char *const texts[KEYS])
{
	struct scry_opt_strings list = {0};
	struct scry_row_filter filter;
	char copy[256], *save;

	strcpy(copy, filters);
	for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
		list.values[list.count++] = word;
	assert_int_equal(scry_row_filter_init(&filter, &list), 0);
	return scry_row_filter_matches(&filter, fits, (void *)texts);
}

static void matches(void **state)
{
	assert_true(lets("", row));
	assert_true(lets("file=*user.rb", row));
	assert_true(lets("file=/srv/*", row));	 /* * matches / too */
	assert_false(lets("file=user.rb", row)); /* the whole text */
	assert_true(lets("class=Foo::*", row));
	assert_false(lets("class=foo::*", row));
	assert_true(lets("method=to_[st]", row));
	assert_true(lets("gem=(app)", row));
	assert_false(lets("gem=(ruby)", row));
	/* one key: either; two keys: both */
	assert_true(lets("gem=rack gem=(app)", row));
	assert_false(lets("gem=rack gem=puma", row));
	assert_false(lets("gem=(app) class=String", row));
	assert_true(lets("gem=(app) class=Foo::Bar", row));
	/* not */
	assert_false(lets("gem!=(app)", row));
	assert_true(lets("gem!=(ruby)", row));
	assert_false(lets("file=*.rb file!=*/models/*", row));
	assert_true(lets("gem!=(ruby) gem!=rack", row));
}

static void unknown_is_empty(void **state)
{
	assert_true(lets("class=", blank));
	assert_true(lets("class=*", blank));
	assert_false(lets("class=?*", blank));
	assert_false(lets("class=", row));
}

/* Rows of a kind that has no such text. */
static void others_are_not_concerned(void **state)
{
	assert_true(lets("module=x", row));
	assert_true(lets("module!=x", row));
	assert_false(lets("module=x gem=rack", row));
}

static void views_have_keys(void **state)
{
	static const struct scry_opt_strings file = {1, {"file=x"}}, fil = {1, {"fil=x"}},
					     two = {2, {"module=x", "class=y"}};

	assert_int_equal(scry_view_filter_check("objects", &file), 0);
	assert_int_equal(scry_view_filter_check("objects", &fil), -EINVAL);
	assert_string_equal(scry_error(),
			    "the objects view has no column 'fil' to filter by; did you mean "
			    "'file'?; fix: --filter with one of file, class, method, gem");
	assert_int_equal(scry_view_filter_check("malloc", &two), -EINVAL);
	assert_non_null(strstr(scry_error(), "the malloc view has no column 'class'"));
	/* refused as an option that the view has not */
	assert_false(scry_view_has_filters(scry_view_find("calls"), &file));
}

static void refuses(void **state)
{
	static const char *const bad[] = {"", "user.rb", "=x", "!=x"};
	struct scry_row_filter filter;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct scry_opt_strings list = {1, {bad[i]}};

		assert_int_equal(scry_row_filter_init(&filter, &list), -EINVAL);
		assert_non_null(strstr(scry_error(), "fix: KEY=GLOB"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(matches),
		cmocka_unit_test(unknown_is_empty),
		cmocka_unit_test(others_are_not_concerned),
		cmocka_unit_test(views_have_keys),
		cmocka_unit_test(refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
