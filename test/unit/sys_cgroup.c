/* How much memory a control group has left, by its files: of both versions, made up here. */
#include "sys/cgroup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char top[] = "/tmp/scry-cgroup-XXXXXX";

static void put(const char *group, const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s%s", top, group);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s%s/%s", top, group, name);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	fclose(f);
}

static int setup(void **state)
{
	(void)state;
	return mkdtemp(top) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", top);
	return system(command);
}

static void version2(void **state)
{
	(void)state;
	put("/two", "memory.max", "1000000\n");
	put("/two", "memory.current", "700000\n");
	put("/two", "memory.stat",
	    "anon 500000\nfile 200000\ninactive_file 150000\nactive_file 50000\n");
	put("/two/in", "memory.max", "max\n");
	put("/two/in", "memory.current", "600000\n");
	assert_int_equal(scry_cgroup_left_at(top, "/two", 2), 500000);
	assert_int_equal(scry_cgroup_left_at(top, "/two/in", 2), 500000); /* that above it */
	put("/two/in", "memory.max", "610000\n");
	assert_int_equal(scry_cgroup_left_at(top, "/two/in", 2), 10000);
	put("/two/in", "memory.current", "620000\n"); /* as it may be for a moment */
	assert_int_equal(scry_cgroup_left_at(top, "/two/in", 2), 0);
	assert_true(scry_cgroup_left_at(top, "/none", 2) == UINT64_MAX);
	assert_true(scry_cgroup_left_at(top, "", 2) == UINT64_MAX);
}

static void version1(void **state)
{
	(void)state;
	put("/one", "memory.limit_in_bytes", "9223372036854771712\n"); /* none */
	put("/one", "memory.usage_in_bytes", "700000\n");
	assert_true(scry_cgroup_left_at(top, "/one", 1) == UINT64_MAX);
	put("/one", "memory.limit_in_bytes", "1000000\n");
	put("/one", "memory.stat",
	    "inactive_file 7\ntotal_inactive_file 100000\ntotal_active_file 1\n");
	assert_int_equal(scry_cgroup_left_at(top, "/one", 1), 400001);
	assert_true(scry_cgroup_left_at(top, "/one", 2) == UINT64_MAX);
}

/* Whatever group this is in: it answers, and not zero. */
static void own(void **state)
{
	(void)state;
	assert_true(scry_cgroup_memory_left(getpid()) > 0);
	assert_true(scry_cgroup_memory_left(0x7ffffff) == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(version2),
		cmocka_unit_test(version1),
		cmocka_unit_test(own),
	};

	return cmocka_run_group_tests_name("sys_cgroup", tests, setup, teardown);
}
