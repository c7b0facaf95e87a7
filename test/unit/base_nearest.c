/* "Did you mean ...?": distances that can be counted by hand, and words that are not meant. */
#include "base/nearest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *nearest(const char *word, const char *const *candidates)
{
	static struct scry_nearest n;

	scry_nearest_begin(&n, word);
	for (; *candidates; candidates++)
		scry_nearest_offer(&n, *candidates);
	return n.name;
}

static void the_nearest_is_found(void **state)
{
	static const char *const names[] = {"malloc", "calloc", "realloc", "free", "mallopt", NULL};

	assert_string_equal(nearest("mallox", names), "malloc");
	assert_string_equal(nearest("mlaloc", names), "malloc"); /* swapped */
	assert_string_equal(nearest("maloc", names), "malloc");	 /* left out */
	assert_string_equal(nearest("reallocc", names), "realloc");
	assert_string_equal(nearest("fere", names), "free");
	assert_string_equal(nearest("calloc", names), "calloc");
}

static void what_is_far_is_not_meant(void **state)
{
	static const char *const names[] = {"malloc", "ps", "a", "", NULL};
	char endless[4 * SCRY_NEAREST_MAX];

	assert_string_equal(nearest("mmap", names), "");
	assert_string_equal(nearest("px", names), ""); /* of two letters all must be right */
	assert_string_equal(nearest("", names), "");
	memset(endless, 'm', sizeof(endless) - 1);
	endless[sizeof(endless) - 1] = 0;
	assert_string_equal(nearest(endless, names), "");
	assert_string_equal(nearest("malloc", (const char *const[]){endless, NULL}), "");
}

static void the_question(void **state)
{
	struct scry_nearest n;

	scry_nearest_begin(&n, "gvll");
	assert_string_equal(scry_nearest_ask(&n).text, "");
	scry_nearest_offer(&n, "gvl");
	assert_string_equal(scry_nearest_ask(&n).text, "; did you mean 'gvl'?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_nearest_is_found),
		cmocka_unit_test(what_is_far_is_not_meant),
		cmocka_unit_test(the_question),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
