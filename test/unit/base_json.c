/* The JSON writer: shape, escapes, bad UTF-8, numbers, write errors. */
#include "base/json.h"

#include "base/err.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *text;
static size_t text_len;

static void begin(struct scry_json *json)
{
	scry_json_init(json, open_memstream(&text, &text_len));
}

static void end(struct scry_json *json, const char *want)
{
	assert_int_equal(scry_json_done(json), 0);
	fclose(json->out);
	assert_string_equal(text, want);
	free(text);
}

static void nests(void **state)
{
	struct scry_json json;

	begin(&json);
	scry_json_object_begin(&json);
	scry_json_key(&json, "a");
	scry_json_array_begin(&json);
	scry_json_u64(&json, UINT64_MAX);
	scry_json_i64(&json, -3);
	scry_json_bool(&json, true);
	scry_json_null(&json);
	scry_json_array_begin(&json);
	scry_json_array_end(&json);
	scry_json_array_end(&json);
	scry_json_key(&json, "b");
	scry_json_object_begin(&json);
	scry_json_object_end(&json);
	scry_json_break(&json);
	scry_json_key(&json, "c");
	scry_json_text(&json, NULL);
	scry_json_object_end(&json);
	end(&json,
	    "{\"a\": [18446744073709551615, -3, true, null, []], \"b\": {},\n\"c\": null}\n");
}

static void string_is(const char *bytes, size_t len, const char *want)
{
	struct scry_json json;

	begin(&json);
	scry_json_string(&json, bytes, len);
	end(&json, want);
}

static void escapes(void **state)
{
	string_is("a\"b\\c\n\t\r\b\f", 10, "\"a\\\"b\\\\c\\n\\t\\r\\b\\f\"\n");
	string_is("\0\x1b[31m\x7f", 7, "\"\\u0000\\u001b[31m\\u007f\"\n");
	string_is("", 0, "\"\"\n");
	/* what a terminal would obey, or shows as something else */
	string_is("\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0", 8, "\"\\u0080\\u009b\\u009f\xc2\xa0\"\n");
	string_is("\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xae\xe2\x81\xa6\xd8\x9c", 14,
		  "\"\\u2028\\u2029\\u202e\\u2066\\u061c\"\n");
}

static void utf8(void **state)
{
	string_is("\xc3\xa9\xe2\x82\xac\xf0\x9f\x92\x8e", 9,
		  "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x92\x8e\"\n");
	string_is("\xff", 1, "\"\\ufffd\"\n");
	string_is("\xc0\x80", 2, "\"\\ufffd\\ufffd\"\n");	     /* overlong */
	string_is("\xed\xa0\x80", 3, "\"\\ufffd\\ufffd\\ufffd\"\n"); /* surrogate */
	string_is("\xf0\x9f\x92", 3, "\"\\ufffd\"\n");		     /* cut: one bad part */
	string_is("\xf0\x9f\x92x", 4, "\"\\ufffdx\"\n");
	string_is("\xf4\x90\x80\x80", 4, "\"\\ufffd\\ufffd\\ufffd\\ufffd\"\n");
}

static void doubles(void **state)
{
	struct scry_json json;

	begin(&json);
	scry_json_array_begin(&json);
	scry_json_double(&json, 0.1);
	scry_json_double(&json, 3);
	scry_json_double(&json, 1.0 / 3);
	scry_json_double(&json, NAN);
	scry_json_double(&json, -INFINITY);
	scry_json_array_end(&json);
	end(&json, "[0.1, 3, 0.3333333333333333, null, null]\n");
}

static void full_disk(void **state)
{
	struct scry_json json;
	FILE *full = fopen("/dev/full", "w");

	assert_non_null(full);
	scry_json_init(&json, full);
	scry_json_text(&json, "x");
	assert_true(scry_json_done(&json) < 0);
	assert_non_null(strstr(scry_error(), "cannot write JSON"));
	fclose(full);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nests),   cmocka_unit_test(escapes),	cmocka_unit_test(utf8),
		cmocka_unit_test(doubles), cmocka_unit_test(full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
