/* Where an event's argument has what, read from code that was compiled in several ways. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "vm/ruby_infer.h"

/* Learns from libtrace_NAME.so. */
static int learn_from(const char *name, struct scry_ruby_layout *ret)
{
	struct scry_ruby child = {0}, target = {0};
	struct scry_infer infer = {.child = &child, .target = &target};
	char path[512];
	int err;

	snprintf(path, sizeof(path), SCRY_TARGET_DIR "/libtrace_%s.so", name);
	assert_int_equal(scry_elf_open_path(path, &child.elf), 0);
	err = scry_infer_trace(&infer);
	if (err)
		print_message("%s: %s\n", name, scry_error());
	*ret = child.layout;
	scry_elf_close(child.elf);
	free(target.checks);
	return err;
}

static void moved_and_not(void **state)
{
	static const char *const levels[] = {"0", "1", "2", "s"};
	struct scry_ruby_layout l;
	char name[32];

	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		snprintf(name, sizeof(name), "plain_O%s", levels[i]);
		assert_int_equal(learn_from(name, &l), 0);
		assert_int_equal(l.trace_event, 0);
		assert_int_equal(l.trace_ec, 8);
		assert_int_equal(l.trace_cfp, 16);
		assert_int_equal(l.trace_data, 56);
		snprintf(name, sizeof(name), "moved_O%s", levels[i]);
		assert_int_equal(learn_from(name, &l), 0);
		assert_int_equal(l.trace_event, 8);
		assert_int_equal(l.trace_ec, 56);
		assert_int_equal(l.trace_cfp, 24);
		assert_int_equal(l.trace_data, 0);
	}
}

/* The known order is assumed where all else is in it, and nowhere else. */
static void what_is_not_told(void **state)
{
	struct scry_ruby_layout l;

	assert_int_equal(learn_from("silent", &l), 0);
	assert_int_equal(l.trace_ec, 8);
	assert_int_equal(l.trace_cfp, 16);
	assert_int_equal(learn_from("silent_moved", &l), -ENOTSUP);
	assert_non_null(strstr(scry_error(), "'trace argument ec, cfp'"));
	scry_error_clear();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moved_and_not),
		cmocka_unit_test(what_is_not_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
