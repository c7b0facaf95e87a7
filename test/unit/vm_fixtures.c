/*
 * Learning from the saved memory of many Rubies: each offset must be what gdb reads from debug
 * information, which the learners do not see.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "fixture.h"

/* Fields that one shape of classes has and the other has not. */
static bool is_other_shape(const struct scry_ruby_layout *l, const char *name)
{
	bool table = l->class_path_table != 0;

	if (strcmp(name, "class_path") == 0 || strcmp(name, "class_path_table") == 0)
		return table == (strcmp(name, "class_path") == 0);
	if (strcmp(name, "class_ext") == 0)
		return !table;
	return strncmp(name, "st_", 3) == 0 && !table;
}

/* How many offsets were compared; `partly`: some may be unknown, but none wrong. */
static unsigned int compare(const char *name, const struct scry_ruby_layout *l, bool partly)
{
	unsigned int compared = 0, wrong = 0;
	char path[512], line[256], field[64];
	unsigned long long want;
	FILE *f;

	snprintf(path, sizeof(path), SCRY_TEST_DIR "/fixtures/%s.truth", name);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		uint64_t got;

		if (sscanf(line, "%63s %llu", field, &want) != 2 || is_other_shape(l, field))
			continue;
		got = field_of(l, field);
		compared++;
		if (got == want || (partly && (got == 0 || got == SCRY_RUBY_NONE)))
			continue;
		wrong++;
		print_message("%s: %s is %llu by gdb, %llu as learned\n", name, field, want,
			      (unsigned long long)got);
	}
	fclose(f);
	assert_int_equal(wrong, 0);
	return compared;
}

static void test_all(void **state)
{
	const char *const *names = fixture_names();
	size_t n = 0;

	for (; names[n]; n++) {
		struct learned learned;
		struct fixture f;
		unsigned int compared;

		fixture_load(names[n], &f);
		if (fixture_learn(&f, &learned) != 0)
			fail_msg("%s: %s", names[n], scry_error());
		if (scry_ruby_cross_check(&learned.child, &learned.target) != 0)
			fail_msg("%s: %s", names[n], scry_error());
		compared = compare(names[n], &learned.child.layout, false);
		print_message("%s: %u offsets as gdb says, %zu pages\n", names[n], compared,
			      f.page_count);
		assert_true(compared >= 40);
		learned_done(&learned);
		fixture_done(&f);
	}
	assert_true(n >= 5);
}

/* A page that is missing: refused, or an item that may be missing is; nothing becomes wrong. */
static void test_gaps(void **state)
{
	struct learned learned;
	struct fixture f;
	unsigned int refused = 0, same = 0;

	fixture_load(fixture_names()[0], &f);
	fixture_drop_facts(&f, "size ");
	assert_int_equal(fixture_learn(&f, &learned), 0);
	learned_done(&learned);
	for (size_t i = 0; i < f.page_count; i += 13) {
		struct page kept = f.pages[i];

		memset(f.pages[i].bytes, 0, sizeof(f.pages[i].bytes));
		if (fixture_learn(&f, &learned) != 0) {
			assert_true(scry_error()[0] != '\0');
			refused++;
		} else {
			compare(fixture_names()[0], &learned.child.layout, true);
			same++;
		}
		learned_done(&learned);
		f.pages[i] = kept;
	}
	print_message("%u pages blanked: %u refused, %u learned\n", refused + same, refused, same);
	assert_true(refused > 0);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_gaps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
