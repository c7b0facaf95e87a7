/* Names of C++ and Rust functions; those that make more than there is room for; patterns. */
#include "base/demangle.h"

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

static void names(void **state)
{
	static const char *const known[][3] = {
		/* mangled, with parameters, without */
		{"_Z3fooi", "foo(int)", "foo"},
		{"_ZN3app5Store3putERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEi",
		 "app::Store::put(std::__cxx11::basic_string<char, std::char_traits<char>, "
		 "std::allocator<char> > const&, int)",
		 "app::Store::put"},
		{"_Znwm", "operator new(unsigned long)", "operator new"},
		{"_ZL5firstiRi.cold", "first(int, int&) [clone .cold]", "first"},
		{"_ZN4core3ptr13drop_in_place17h0123456789abcdefE", "core::ptr::drop_in_place",
		 "core::ptr::drop_in_place"},
		{"_RNvCsbFYJioi4cCO_2rs5tally", "rs::tally", "rs::tally"},
		{"malloc", "malloc", "malloc"},
		{"_Zebra", "_Zebra", "_Zebra"},
		{"_Rebus", "_Rebus", "_Rebus"},
		{"_Z", "_Z", "_Z"},
		{"", "", ""},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		const size_t length = strlen(known[i][0]);

		scry_demangle_put(known[i][0], length, &buf);
		is(known[i][1]);
		scry_demangle_show(known[i][0], length, &buf);
		is(known[i][1]);
		scry_demangle_show_bare(known[i][0], length, &buf);
		is(known[i][2]);
		assert_int_equal(scry_demangle(known[i][0], length, &buf),
				 strcmp(known[i][0], known[i][1]) != 0);
		scry_buf_clear(&buf);
	}
}

/* Each pair holds the one before it twice: 36 of them are more than any memory. */
static void endless(void **state)
{
	char name[1024] = "_Z1fSt4pairIiiE";

	for (char digit = '0'; digit <= '9'; digit++)
		sprintf(name + strlen(name), "S_IS%c_S%c_E", digit, digit);
	for (char digit = 'A'; digit <= 'Z'; digit++)
		sprintf(name + strlen(name), "S_IS%c_S%c_E", digit, digit);
	assert_false(scry_demangle(name, strlen(name), &buf));
	assert_int_equal(buf.len, 0);
	scry_demangle_put(name, strlen(name), &buf);
	is(name);
}

static void long_names(void **state)
{
	static char name[3 * SCRY_DEMANGLE_MAX];

	memset(name, 'a', sizeof(name) - 1);
	memcpy(name, "_Z9000", 6);
	assert_false(scry_demangle(name, strlen(name), &buf));
	memset(name + 3, 'P', 3000); /* pointers, the one in the other */
	assert_false(scry_demangle(name, SCRY_DEMANGLE_MAX - 1, &buf));
	assert_int_equal(buf.len, 0);
}

/* What an identifier holds is its program's choice. */
static void escaped(void **state)
{
	scry_demangle_show("_Z3a\x1b"
			   "bi",
			   8, &buf);
	is("a\\x1bb(int)");
}

static bool is_same(const char *name, const void *wanted)
{
	return strcmp(name, wanted) == 0;
}

static void patterns(void **state)
{
	static const char name[] = "_ZN3app5Store3putEi";

	assert_true(scry_demangle_any(name, is_same, name));
	assert_true(scry_demangle_any(name, is_same, "app::Store::put(int)"));
	assert_true(scry_demangle_any(name, is_same, "app::Store::put"));
	assert_false(scry_demangle_any(name, is_same, "put"));
	assert_false(scry_demangle_any("_Z3fooi.cold", is_same, "foo"));
	assert_true(scry_demangle_any("malloc", is_same, "malloc"));
	assert_false(scry_demangle_any("malloc", is_same, "free"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),   cmocka_unit_test(endless),  cmocka_unit_test(long_names),
		cmocka_unit_test(escaped), cmocka_unit_test(patterns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
