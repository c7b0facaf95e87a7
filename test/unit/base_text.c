/* Foreign bytes made safe, numbers made readable. */
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct scry_buf buf;

static void is(const char *want)
{
	assert_string_equal(scry_buf_str(&buf), want);
	scry_buf_clear(&buf);
}

static void escapes(void **state)
{
	scry_text_escape(&buf, "app.rb \"a\\b\" \xc3\xa9", 15);
	is("app.rb \"a\\b\" \xc3\xa9");
	scry_text_escape(&buf, "\0\x1b[2J\n\t\x7f", 8);
	is("\\x00\\x1b[2J\\n\\t\\x7f");
	scry_text_escape(&buf,
			 "\xc2\x9b"
			 "0m\xe2\x80\xaex\xff\xe2\x82",
			 10);
	is("\\xc2\\x9b0m\\xe2\\x80\\xaex\\xff\\xe2");
	scry_text_escape(&buf, "\xe2\x80\xa8\xe2\x80\xa9\xd8\x9c\xe2\x80\x8e\xe2\x81\xa9", 14);
	is("\\xe2\\x80\\xa8\\xe2\\x80\\xa9\\xd8\\x9c\\xe2\\x80\\x8e\\xe2\\x81\\xa9");
	scry_text_escape(&buf, "\xe2\x80\x90\xe2\x80\xaf\xd8\x9b\xe2\x81\xaa\xc2\xa0", 13);
	is("\xe2\x80\x90\xe2\x80\xaf\xd8\x9b\xe2\x81\xaa\xc2\xa0"); /* their neighbours */
	scry_text_quote(&buf, "a\"b\\c\n", 6);
	is("\"a\\\"b\\\\c\\n\"");
	scry_text_quote(&buf, "", 0);
	is("\"\"");
	scry_text_quote(&buf, "\0", 1);
	is("\"\\x00\"");
	assert_int_equal(scry_text_width("\xc3\xa9t\xc3\xa9"), 3);
}

/* For printf: the same, and whole characters where it is too long. */
static void shown(void **state)
{
	char name[2 * SCRY_SHOWN_MAX + 1];
	struct scry_shown s;

	assert_string_equal(scry_text_shown("").text, "");
	assert_string_equal(scry_text_shown("a\x1b]0;x\n\xc2\x9b").text, "a\\x1b]0;x\\n\\xc2\\x9b");
	for (size_t i = 0; i < sizeof(name) - 1; i += 2)
		memcpy(name + i, "\xc3\xa9", 2);
	name[sizeof(name) - 1] = '\0';
	s = scry_text_shown(name);
	assert_true(strlen(s.text) >= SCRY_SHOWN_MAX - 5 && strlen(s.text) < SCRY_SHOWN_MAX);
	assert_string_equal(s.text + strlen(s.text) - 5, "\xc3\xa9...");
	name[SCRY_SHOWN_MAX] = '\0';
	name[SCRY_SHOWN_MAX - 1] = '\0';
	name[SCRY_SHOWN_MAX - 2] = '\0';
	assert_string_equal(scry_text_shown(name).text, name);
}

static void numbers(void **state)
{
	scry_text_count(&buf, 0);
	is("0");
	scry_text_count(&buf, 999);
	is("999");
	scry_text_count(&buf, UINT64_MAX);
	is("18,446,744,073,709,551,615");
	scry_text_size(&buf, 1023);
	is("1023 B");
	scry_text_size(&buf, 1048575);
	is("1.0 MiB");
	scry_text_size(&buf, UINT64_MAX);
	is("16.0 EiB");
	scry_text_duration(&buf, 0);
	is("0 ms");
	scry_text_duration(&buf, 45000);
	is("45 us");
	scry_text_duration(&buf, 450000);
	is("0.5 ms");
	scry_text_duration(&buf, 30000000000);
	is("30.0 s");
	scry_text_duration(&buf, 303000000000);
	is("5 min 3 s");
}

static void shares(void **state)
{
	assert_int_equal(scry_share(1, 0, 100), 0);
	assert_int_equal(scry_share(0, 3, 100), 0);
	assert_int_equal(scry_share(1, 3, 1000), 333);
	assert_int_equal(scry_share(2, 3, 100), 67);
	assert_int_equal(scry_share(1, 2, 1), 1);
	assert_int_equal(scry_share(UINT64_MAX, UINT64_MAX, 100), 100);
	assert_true(scry_share(UINT64_MAX, 1, 100) == UINT64_MAX);
}

static void plurals(void **state)
{
	scry_text_things(&buf, 1, "objects");
	is("1 object");
	scry_text_things(&buf, 0, "objects");
	is("0 objects");
	scry_text_things(&buf, 2861377, "objects");
	is("2,861,377 objects");
	assert_string_equal(scry_text_s(1), "");
	assert_string_equal(scry_text_s(0), "s");
	assert_string_equal(scry_text_were(1), "was");
}

static void two_digits(void **state)
{
	const uint64_t is_so[][2] = {{0, 0},	     {99, 99},		 {131072, 130000},
				     {996, 1000},    {104, 100},	 {105, 110},
				     {95000, 95000}, {1049999, 1000000}, {19999, 20000}};

	for (size_t i = 0; i < sizeof(is_so) / sizeof(is_so[0]); i++)
		assert_int_equal(scry_two_digits(is_so[i][0], UINT64_MAX), is_so[i][1]);
	assert_int_equal(scry_two_digits(989855744, 989900000), 989900000);
	assert_true(scry_two_digits(UINT64_MAX, UINT64_MAX) == 18000000000000000000u);
}

static void shortened(void **state)
{
	scry_text_shorten(&buf, "libc.so.6 swapcontext+0x8b", 12);
	is("libc.so.6 swap...+0x8b");
	scry_text_shorten(&buf, "a  abcdefgh abcdefghi ", 8);
	is("a  abcdefgh ab...ghi ");
	/* characters, and no parts of them */
	scry_text_shorten(&buf, "\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc", 8);
	is("\u00e4\u00f6...\u00e4\u00f6\u00fc");
	scry_text_shorten(&buf, "", 8);
	is("");
}

static int done(void **state)
{
	scry_buf_done(&buf);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(escapes),   cmocka_unit_test(shown),
		cmocka_unit_test(numbers),   cmocka_unit_test(shares),
		cmocka_unit_test(plurals),   cmocka_unit_test(two_digits),
		cmocka_unit_test(shortened),
	};

	return cmocka_run_group_tests(tests, NULL, done);
}
