/* Filter expressions as ltrace(1) describes them, and what scry adds. */
#include "sys/filter.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"

static const struct scry_filter_object program = {NULL, "/opt/my-app/bin/app", true};
static const struct scry_filter_object libc = {"libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6",
					       false};
static const struct scry_filter_object cxx = {"libstdc++.so.6", "/usr/lib/libstdc++.so.6.0.30",
					      false};
static const struct scry_filter_object plain = {NULL, "/opt/MAIN", false};

static bool takes(const char *text, const char *symbol, const struct scry_filter_object *object)
{
	struct scry_filter *f;
	bool taken;

	if (scry_filter_parse(text, &f) < 0)
		fail_msg("'%s': %s", text, scry_error());
	taken = scry_filter_takes(f, symbol, object);
	if (taken)
		assert_true(scry_filter_concerns(f, object));
	scry_filter_free(f);
	return taken;
}

static void test_chain(void **state)
{
	const char *text = "malloc+free-@libc.so*";

	assert_true(takes(text, "malloc", &program));
	assert_true(takes(text, "free", &cxx));
	assert_false(takes(text, "free", &libc));
	assert_false(takes(text, "calloc", &program));
	assert_true(takes("+malloc", "malloc", &libc));
	assert_true(takes("-free", "malloc", &libc)); /* as if a rule for all stood before it */
	assert_false(takes("-free", "free", &libc));
	assert_true(takes("@libc.*-m*+malloc", "malloc", &libc));
	assert_false(takes("@libc.*-m*", "malloc", &libc));
	assert_true(takes("@libc.*-m*", "free", &libc));
}

static void test_dashes(void **state)
{
	static const struct scry_filter_object glib = {"libglib-2.0.so.0",
						       "/lib/libglib-2.0.so.0.7400.6", false};
	static const struct scry_filter_object loader = {"ld-linux-x86-64.so.2",
							 "/lib64/ld-linux-x86-64.so.2", false};

	(void)state;
	assert_true(takes("g_free@libglib-2.0.so.0", "g_free", &glib));
	assert_false(takes("g_free@libglib-2.0.so.0", "g_free", &libc));
	assert_true(takes("g_free@libglib-2.0*", "g_free", &glib));
	assert_true(takes("+*@libglib-2.0.so.0-g_free", "g_malloc", &glib));
	assert_false(takes("+*@libglib-2.0.so.0-g_free", "g_free", &glib));
	assert_true(takes("*@ld-linux-x86-64.so.2", "__tls_get_addr", &loader));
	assert_false(takes("*@ld-linux-x86-64.so.2", "__tls_get_addr", &libc));
	assert_false(takes("*-@ld-linux-x86-64.so.2", "__tls_get_addr", &loader));
	assert_true(takes("*-@ld-linux-x86-64.so.2", "malloc", &libc));
	assert_false(takes("*@libc.so.6-malloc@libc.so.6", "malloc", &libc)); /* taken away */
	assert_true(takes("*@libc.so.6-malloc@libc.so.6", "free", &libc));
	assert_false(takes("*@ld-linux*", "__tls_get_addr", &loader)); /* as ltrace has it */
	assert_true(takes("*@ld[-]linux*", "__tls_get_addr", &loader));
}

static void test_names(void **state)
{
	assert_true(takes("malloc", "malloc", &libc));
	assert_false(takes("malloc", "__malloc", &libc)); /* the whole name */
	assert_true(takes("*mall?c", "__malloc", &libc));
	assert_true(takes("[a-m]alloc", "malloc", &libc));
	assert_true(takes("^malloc$", "malloc", &libc));
	assert_true(takes("f@libc.so.6", "f", &libc));
	assert_true(takes("f@libstdc++.so.6.0.30", "f", &cxx)); /* the last part of the path */
	assert_true(takes("f@app", "f", &program));
	assert_true(takes("f@MAIN", "f", &program));
	assert_false(takes("f@MAIN", "f", &plain));
	assert_true(takes("f@[M]AIN", "f", &plain));
	assert_true(takes("f@^MAIN", "f", &plain));
	assert_true(takes("f@", "f", &plain));
}

static void test_regex(void **state)
{
	assert_true(takes("/^(m|c)alloc$/", "calloc", &libc));
	assert_false(takes("/^(m|c)alloc$/", "mallocx", &libc));
	assert_true(takes("/alloc/", "__mallocx", &libc)); /* any part */
	assert_true(takes("/alloc/@/c\\.so/", "malloc", &libc));
	assert_false(takes("/alloc/@/c\\.so/", "malloc", &cxx));
	assert_true(takes("/alloc@c\\.so/", "malloc", &libc));
	assert_false(takes("/alloc@c\\.so/", "malloc", &program));
	assert_true(takes("/a[+]?/+free-/^m/", "free", &libc));
	assert_false(takes("/a[+]?/+free-/^m/", "malloc", &libc));
	assert_true(takes("/a-b|malloc/", "malloc", &libc)); /* a sign within slashes */
}

static void test_signs_of_names(void **state)
{
	assert_true(takes("f@libstdc++*", "f", &cxx));
	assert_true(takes("f@libstdc++*-g", "f", &cxx));
	assert_false(takes("@libstdc++*-g", "g", &cxx));
	assert_true(takes("f@/lib/x86_64-linux-gnu/libc.so.6", "f", &libc));
	assert_false(takes("@/lib/x86_64-linux-gnu/libc.so.6-f", "f", &libc));
	assert_true(takes("f@/opt/my-app/*", "f", &program));
	assert_true(takes("operator[+]", "operator+", &cxx));
}

static void test_refused(void **state)
{
	static const char *const bad[] = {"", "malloc+", "+", "/abc", "/a(/", "/a@b/@c", "/a/b"};
	struct scry_filter *f;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		scry_error_clear();
		if (scry_filter_parse(bad[i], &f) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
		assert_true(*scry_error());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chain),	       cmocka_unit_test(test_dashes),
		cmocka_unit_test(test_names),	       cmocka_unit_test(test_regex),
		cmocka_unit_test(test_signs_of_names), cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
