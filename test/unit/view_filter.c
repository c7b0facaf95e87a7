/* --filter: what it takes, and which rows it lets through. */
#include "view/filter.h"

#include "base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *const row[SCRY_ROW_FILTER_KEYS] = {"/srv/app/models/user.rb", "Foo::Bar", "to_s",
						      "(app)"};
static const char *const blank[SCRY_ROW_FILTER_KEYS] = {"", "", "", ""};

/* Filters are split at blanks. */
static bool lets(const char *filters, const char *const texts[SCRY_ROW_FILTER_KEYS])
{
	struct scry_opt_strings list = {0};
	struct scry_row_filter filter;
	char copy[256], *save;

	strcpy(copy, filters);
	for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
		list.values[list.count++] = word;
	assert_int_equal(scry_row_filter_init(&filter, &list), 0);
	return scry_row_filter_matches(&filter, texts);
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

static void refuses(void **state)
{
	static const char *const bad[] = {"", "user.rb", "files=x", "=x", "!=x", "fil=x", "line=3"};
	struct scry_row_filter filter;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct scry_opt_strings list = {1, {bad[i]}};

		assert_int_equal(scry_row_filter_init(&filter, &list), -EINVAL);
		assert_non_null(strstr(scry_error(), "fix: file=GLOB"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(matches),
		cmocka_unit_test(unknown_is_empty),
		cmocka_unit_test(refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
