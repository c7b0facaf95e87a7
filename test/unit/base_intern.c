/* Strings to ids: dense, stable, limited. */
#include "base/intern.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void ids_are_dense(void **state)
{
	struct scry_intern in;
	char name[32];
	uint32_t id, i;
	size_t len;

	scry_intern_init(&in, 100000, 16 << 20);
	assert_int_equal(scry_intern_find(&in, "", 0), 0);
	for (i = 0; i < 50000; i++) {
		len = (size_t)snprintf(name, sizeof(name), "/usr/lib/ruby/%u.rb", i);
		assert_int_equal(scry_intern_put(&in, name, len, &id), 0);
		assert_int_equal(id, i + 1);
	}
	for (i = 0; i < 50000; i++) {
		len = (size_t)snprintf(name, sizeof(name), "/usr/lib/ruby/%u.rb", i);
		assert_int_equal(scry_intern_put(&in, name, len, &id), 0);
		assert_int_equal(id, i + 1);
		assert_int_equal(scry_intern_find(&in, name, len), i + 1);
		assert_string_equal(scry_intern_get(&in, id, &len), name);
		assert_int_equal(len, strlen(name));
	}
	assert_int_equal(in.count, 50000);
	assert_null(scry_intern_get(&in, 0, NULL));
	assert_null(scry_intern_get(&in, 50001, NULL));
	scry_intern_done(&in);
	assert_int_equal(in.count, 0);
}

static void bytes_not_text(void **state)
{
	struct scry_intern in;
	uint32_t a, b, c, d;
	char *big = calloc(1, 200000);

	scry_intern_init(&in, 10, 1 << 20);
	assert_int_equal(scry_intern_put(&in, "a\0b", 3, &a), 0);
	assert_int_equal(scry_intern_put(&in, "a\0c", 3, &b), 0);
	assert_int_equal(scry_intern_put(&in, "", 0, &c), 0);
	assert_int_equal(scry_intern_put(&in, big, 200000, &d), 0);
	assert_int_equal(a + b + c + d, 1 + 2 + 3 + 4);
	assert_memory_equal(scry_intern_get(&in, a, NULL), "a\0b", 4);
	scry_intern_done(&in);
	free(big);
}

static void limits(void **state)
{
	struct scry_intern in;
	uint32_t id = 77;

	scry_intern_init(&in, 2, 10);
	assert_int_equal(scry_intern_put(&in, "1234", 4, &id), 0);
	assert_int_equal(scry_intern_put(&in, "12345", 5, &id), -ENOSPC);
	assert_int_equal(id, 1);
	assert_int_equal(scry_intern_put(&in, "5678", 4, &id), 0);
	assert_int_equal(scry_intern_put(&in, "", 0, &id), -ENOSPC);
	assert_int_equal(scry_intern_put(&in, "1234", 4, &id), 0);
	assert_int_equal(id, 1);
	scry_intern_done(&in);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_are_dense),
		cmocka_unit_test(bytes_not_text),
		cmocka_unit_test(limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
