/* sys/loader against the loader's debug symbols (Debian: libc6-dbg) and the dynamic linker. */
#include "sys/loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "child.h"

static int find(pid_t pid, struct scry_linkmap *lm, struct scry_loader *ret)
{
	struct scry_mem mem;
	int r;

	assert_int_equal(scry_mem_open(&mem, pid, 0), 0);
	assert_int_equal(scry_linkmap_read(pid, &mem, lm), 0);
	r = scry_loader_find(lm, &mem, ret);
	scry_mem_close(&mem);
	return r;
}

/* Its debug file, by build-id; NULL: not installed. */
static struct scry_elf *debug_file(struct scry_elf *elf)
{
	const uint8_t *id = NULL;
	size_t n = scry_elf_build_id(elf, &id);
	char path[200] = "/usr/lib/debug/.build-id/";
	struct scry_elf *debug;

	for (size_t i = 0; i < n && i < 32; i++)
		sprintf(path + strlen(path), "%02x%s", id[i], i == 0 ? "/" : "");
	strcat(path, ".debug");
	return scry_elf_open_path(path, &debug) == 0 ? debug : NULL;
}

static void test_init(void **state)
{
	struct scry_loader loader;
	struct scry_linkmap lm;
	struct scry_elf *debug;
	struct scry_sym sym;

	assert_int_equal(find(getpid(), &lm, &loader), 0);
	assert_true(lm.objects[loader.object].is_loader);
	assert_true(loader.init != 0);
	assert_true(scry_maps_at(&lm.maps, loader.init)->x);
	debug = debug_file(lm.objects[loader.object].elf);
	if (!debug) {
		print_message("skipped: no debug symbols of the loader (Debian: libc6-dbg)\n");
		scry_linkmap_done(&lm);
		skip();
	}
	assert_int_equal(scry_elf_symbol(debug, "_dl_init", &sym), 0);
	assert_true(loader.init == lm.objects[loader.object].bias + sym.value);
	scry_elf_close(debug);
	scry_linkmap_done(&lm);
}

static void test_catch(void **state)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	struct scry_loader loader;
	struct scry_linkmap lm;

	assert_int_equal(find(getpid(), &lm, &loader), 0);
	if (!loader.catch_slot) {
		print_message("skipped: this C library's loader has no _dl_catch_exception slot\n");
		scry_linkmap_done(&lm);
		skip();
	}
	assert_true(loader.catch_value ==
		    (uintptr_t)dlvsym(libc, "_dl_catch_exception", "GLIBC_PRIVATE"));
	assert_true(*(uint64_t *)loader.catch_slot == loader.catch_value);
	dlclose(libc);
	scry_linkmap_done(&lm);
}

static void test_static(void **state)
{
	struct scry_loader loader;
	struct scry_linkmap lm;
	struct child c;

	if (!child_start(&c, "target_caller_static", NULL))
		skip();
	assert_int_equal(find(c.pid, &lm, &loader), -ENOENT);
	assert_non_null(strstr(scry_error(), "static"));
	scry_linkmap_done(&lm);
	child_end(&c);
}

/* musl's entry code is other code, and is not taken for glibc's. */
static void test_musl(void **state)
{
	struct scry_loader loader;
	struct scry_linkmap lm;
	struct child c;

	if (!child_start(&c, "target_caller_musl", NULL))
		skip();
	assert_int_equal(find(c.pid, &lm, &loader), 0);
	assert_true(loader.init == 0 && loader.catch_slot == 0);
	scry_linkmap_done(&lm);
	child_end(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_init),
		cmocka_unit_test(test_catch),
		cmocka_unit_test(test_static),
		cmocka_unit_test(test_musl),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
