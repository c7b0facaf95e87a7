/* The byte buffer: growth, termination, the remembered failure. */
#include "base/buf.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void empty_is_a_string(void **state)
{
	struct scry_buf buf = {0};

	assert_string_equal(scry_buf_str(&buf), "");
	assert_int_equal(scry_buf_append(&buf, NULL, 0), 0);
	assert_string_equal(scry_buf_str(&buf), "");
	scry_buf_done(&buf);
}

static void appends_and_prints(void **state)
{
	struct scry_buf buf = {0};
	int i;

	for (i = 0; i < 1000; i++)
		assert_int_equal(scry_buf_printf(&buf, "%d,", i % 10), 0);
	assert_int_equal(buf.len, 2000);
	assert_memory_equal(buf.data, "0,1,2,", 6);
	assert_int_equal(strlen(scry_buf_str(&buf)), 2000);
	scry_buf_clear(&buf);
	assert_int_equal(scry_buf_append(&buf, "a\0b", 3), 0);
	assert_int_equal(scry_buf_zeros(&buf, 5), 0);
	assert_int_equal(buf.len, 8);
	assert_memory_equal(buf.data, "a\0b\0\0\0\0\0", 9);
	scry_buf_done(&buf);
	assert_null(buf.data);
}

static void remembers_failure(void **state)
{
	struct scry_buf buf = {0};

	assert_int_equal(scry_buf_append(&buf, "x", 1), 0);
	assert_int_equal(scry_buf_reserve(&buf, SIZE_MAX - 8), -ENOMEM);
	assert_true(buf.failed);
	assert_int_equal(scry_buf_append(&buf, "y", 1), -ENOMEM);
	assert_string_equal(scry_buf_str(&buf), "x");
	scry_buf_clear(&buf);
	assert_int_equal(scry_buf_append(&buf, "z", 1), 0);
	assert_string_equal(scry_buf_str(&buf), "z");
	scry_buf_done(&buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_is_a_string),
		cmocka_unit_test(appends_and_prints),
		cmocka_unit_test(remembers_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
