/* sys/symbols against dlsym and dlvsym. */
#include "sys/symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"

int sys_symbols_marker(int x);
__attribute__((noinline)) int sys_symbols_marker(int x)
{
	return x * 5 + 3;
}

static struct scry_linkmap lm;

/* The C library's own, whatever stands before it (sanitizers). */
static uint64_t in_libc(const char *name)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	uint64_t at = (uintptr_t)dlsym(libc, name);

	dlclose(libc);
	return at;
}

static int set_up(void **state)
{
	struct scry_mem mem;
	int r = scry_mem_open(&mem, getpid(), 0);

	if (r == 0)
		r = scry_linkmap_read(getpid(), &mem, &lm);
	scry_mem_close(&mem);
	return r;
}

static int tear_down(void **state)
{
	scry_linkmap_done(&lm);
	return 0;
}

static void find(const char *request, struct scry_functions *ret)
{
	*ret = (struct scry_functions){0};
	if (scry_symbols_find(&lm, request, ret) < 0)
		fail_msg("%s: %s", request, scry_error());
}

static void test_exact(void **state)
{
	/* By soname, by the path's last part, by a part of it, and by a glob. */
	const char *requests[] = {"getppid@libc.so.6", "getppid@libc.so", "getppid@libc.so*",
				  "getppid"};
	struct scry_functions f;

	for (int i = 0; i < 4; i++) {
		find(requests[i], &f);
		assert_int_equal(f.count, 1);
		assert_true(f.rows[0].address == in_libc("getppid"));
		assert_string_equal(f.rows[0].name, "getppid");
		assert_string_equal(f.rows[0].version, "GLIBC_2.2.5");
		assert_false(f.rows[0].is_ifunc);
		assert_int_equal(scry_functions_at(&f, f.rows[0].address), 0);
		assert_int_equal(scry_functions_at(&f, f.rows[0].address + 1), -ENOENT);
		scry_functions_done(&f);
	}
}

/* pthread_cond_wait has two versions that differ. */
static void test_versions(void **state)
{
	void *old = dlvsym(RTLD_DEFAULT, "pthread_cond_wait", "GLIBC_2.2.5");
	void *now = dlvsym(RTLD_DEFAULT, "pthread_cond_wait", "GLIBC_2.3.2");
	struct scry_functions f;

	assert_true(old && now && old != now);
	find("pthread_cond_wait@libc.so.6", &f);
	assert_int_equal(f.count, 2);
	assert_true(scry_functions_at(&f, (uintptr_t)old) >= 0);
	assert_true(scry_functions_at(&f, (uintptr_t)now) >= 0);
	scry_functions_done(&f);
}

static void test_glob(void **state)
{
	struct scry_functions f;

	find("pthread_mutex_*lock@libc.so.6", &f);
	assert_true(f.count >= 4);
	assert_true(scry_functions_at(&f, in_libc("pthread_mutex_lock")) >= 0);
	assert_true(scry_functions_at(&f, in_libc("pthread_mutex_unlock")) >= 0);
	for (size_t i = 0; i < f.count; i++)
		assert_int_equal(strncmp(f.rows[i].name, "pthread_mutex_", 14), 0);
	scry_functions_done(&f);

	find("*@libc.so.6", &f);
	assert_true(f.count > 1500);
	for (size_t i = 0; i < f.count; i++) /* data is not asked for */
		assert_true(scry_maps_at(&lm.maps, f.rows[i].address)->x);
	assert_int_equal(scry_functions_at(&f, in_libc("environ")), -ENOENT);
	scry_functions_done(&f);
}

static void test_ifunc(void **state)
{
	struct scry_functions f;

	find("memcpy@libc.so.6", &f);
	assert_true(f.count >= 1);
	for (size_t i = 0; i < f.count; i++) {
		if (strcmp(f.rows[i].version, "GLIBC_2.14") == 0)
			assert_true(f.rows[i].is_ifunc);
		/* The implementation, which dlsym tells, is another function. */
		assert_true(f.rows[i].address !=
			    (uintptr_t)dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.14"));
	}
	scry_functions_done(&f);
}

static void test_address(void **state)
{
	uint64_t at = (uintptr_t)sys_symbols_marker;
	char request[200];
	struct scry_functions f;

	snprintf(request, sizeof(request), "0x%llx@unit_sys_symbols",
		 (unsigned long long)(at - lm.objects[0].bias));
	find(request, &f);
	assert_int_equal(f.count, 1);
	assert_true(f.rows[0].address == at && f.rows[0].object == 0);
	assert_string_equal(f.rows[0].name, "sys_symbols_marker");
	scry_functions_done(&f);
	/* Without a library it is the run-time address; inside of a function it has no name. */
	snprintf(request, sizeof(request), "0x%llx", (unsigned long long)at + 1);
	find(request, &f);
	assert_int_equal(f.count, 1);
	assert_true(f.rows[0].address == at + 1);
	assert_string_equal(f.rows[0].name, "");
	scry_functions_done(&f);
}

/* Local symbols come from .symtab; several requests make one list, without repetition. */
static void test_together(void **state)
{
	struct scry_functions f;

	find("test_together", &f);
	assert_int_equal(f.count, 1);
	assert_true(f.rows[0].address == (uintptr_t)test_together);
	assert_int_equal(scry_symbols_find(&lm, "test_*@unit_sys_symbols", &f), 0);
	assert_true(f.count >= 6);
	assert_int_equal(scry_symbols_find(&lm, "test_together", &f), 0);
	for (size_t i = 0; i < f.count; i++)
		for (size_t j = 0; j < i; j++)
			assert_true(f.rows[i].address != f.rows[j].address);
	scry_functions_done(&f);
}

static void test_refusals(void **state)
{
	const struct {
		const char *request;
		int err;
		const char *says;
	} rows[] = {
		{"", -EINVAL, "fix:"},
		{"@libc.so.6", -EINVAL, "names no function"},
		{"read@", -EINVAL, "names no function"},
		{"0xzz@libc.so.6", -EINVAL, "hexadecimal"},
		{"no_such_function", -ENOENT, "no_such_function"},
		{"read@libnothing.so", -ENOENT, "no object 'libnothing.so'"},
		{"environ@libc.so.6", -ENOENT, "defines"},
		{"0x1@libc.so.6", -ENOENT, "0x1"},
	};
	struct scry_functions f = {0};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(scry_symbols_find(&lm, rows[i].request, &f), rows[i].err);
		if (!strstr(scry_error(), rows[i].says))
			fail_msg("'%s' said: %s", rows[i].request, scry_error());
	}
	assert_int_equal(f.count, 0);
	scry_functions_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact),	 cmocka_unit_test(test_versions),
		cmocka_unit_test(test_glob),	 cmocka_unit_test(test_ifunc),
		cmocka_unit_test(test_address),	 cmocka_unit_test(test_together),
		cmocka_unit_test(test_refusals),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
