/* sys/dynamic against readelf and dlvsym. */
#include "sys/dynamic.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"

static size_t lines_of(const char *command)
{
	char line[1024];
	FILE *p = popen(command, "r");
	size_t n = 0;

	assert_non_null(p);
	while (fgets(line, sizeof(line), p))
		n++;
	pclose(p);
	return n;
}

static const char *path_of(const char *symbol, uint64_t *ret_base)
{
	struct link_map *map;
	Dl_info info;

	assert_true(dladdr1(dlsym(RTLD_DEFAULT, symbol), &info, (void **)&map, RTLD_DL_LINKMAP));
	*ret_base = map->l_addr;
	return map->l_name;
}

static size_t relocations(const struct scry_dynamic *d)
{
	size_t n = 0;

	for (size_t i = 0; i < d->rela_count; i++)
		n += d->rela[i].count;
	return n;
}

static void open_it(const char *path, struct scry_dynamic *ret)
{
	struct scry_elf *elf;

	assert_int_equal(scry_elf_open_path(path, &elf), 0);
	assert_int_equal(scry_dynamic_open(elf, ret), 0);
}

static void close_it(struct scry_dynamic *d)
{
	struct scry_elf *elf = d->elf;

	scry_dynamic_done(d);
	scry_elf_close(elf);
}

static void test_libc(void **state)
{
	const char *versions[] = {"GLIBC_2.2.5", "GLIBC_2.3.2"};
	struct scry_dynamic d;
	struct scry_dynsym sym;
	char command[500];
	uint64_t base;
	const char *path = path_of("getppid", &base);

	open_it(path, &d);
	assert_string_equal(d.soname, "libc.so.6");
	assert_true(d.needed_count >= 1);
	assert_string_equal(scry_dynamic_string(&d, d.needed[0]), "ld-linux-x86-64.so.2");
	snprintf(command, sizeof(command), "readelf -W --dyn-syms %s | grep '^ *[0-9]*:'", path);
	assert_int_equal(d.symbol_count, lines_of(command));
	snprintf(command, sizeof(command), "readelf -rW %s | grep R_X86_64", path);
	assert_int_equal(relocations(&d), lines_of(command));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(scry_dynamic_find(&d, "pthread_cond_wait", versions[i], &sym), 0);
		assert_string_equal(sym.version, versions[i]);
		assert_true(base + sym.value ==
			    (uintptr_t)dlvsym(RTLD_DEFAULT, "pthread_cond_wait", versions[i]));
	}
	/* Without a version: the default one. */
	assert_int_equal(scry_dynamic_find(&d, "pthread_cond_wait", "", &sym), 0);
	assert_string_equal(sym.version, "GLIBC_2.3.2");
	assert_int_equal(scry_dynamic_find(&d, "pthread_cond_wait", "NO_SUCH", &sym), -ENOENT);
	assert_int_equal(scry_dynamic_find(&d, "no_such_symbol", "", &sym), -ENOENT);
	close_it(&d);
}

/* Every defined name of .dynsym is found again by its hash. */
static void test_find_all(void **state)
{
	struct scry_dynsym sym, again;
	struct scry_dynamic d;
	size_t found = 0;
	uint64_t base;

	open_it(path_of("getppid", &base), &d);
	for (size_t i = 1; i < d.symbol_count; i++) {
		assert_true(scry_dynamic_symbol(&d, i, &sym));
		if (!sym.is_defined || sym.type == STT_TLS)
			continue;
		assert_int_equal(scry_dynamic_find(&d, sym.name, sym.version, &again), 0);
		assert_string_equal(again.name, sym.name);
		assert_string_equal(again.version, sym.version);
		found++;
	}
	assert_true(found > 1000);
	close_it(&d);
}

/* All definitions of a name are found by its hash, and those alone, in the order of the table. */
static void test_named(void **state)
{
	struct scry_dynsym sym, by_hash, by_walk;
	struct scry_dynamic d, walked;
	size_t several = 0;
	uint64_t base;

	open_it(path_of("getppid", &base), &d);
	walked = d;
	walked.hash_size = 0;
	for (size_t i = 1; i < d.symbol_count; i++) {
		size_t hashed = 0, at = 0, versions = 0;

		assert_true(scry_dynamic_symbol(&d, i, &sym));
		while (scry_dynamic_named(&walked, sym.name, &at, &by_walk)) {
			assert_true(scry_dynamic_named(&d, sym.name, &hashed, &by_hash));
			assert_int_equal(hashed, at);
			assert_string_equal(by_hash.version, by_walk.version);
			versions++;
		}
		assert_false(scry_dynamic_named(&d, sym.name, &hashed, &by_hash));
		assert_true(!sym.is_defined || versions > 0);
		several += versions > 1;
	}
	assert_true(several > 10);
	close_it(&d);
}

/* Where section headers are gone, all is as before. */
static void test_no_sections(void **state)
{
	char path[] = "/tmp/scry_dynamic.XXXXXX", command[300];
	struct scry_dynamic whole, bare;
	struct scry_dynsym sym;
	Elf64_Ehdr header;
	int fd = mkstemp(path);

	snprintf(command, sizeof(command), "cp " SCRY_TARGET_DIR "/target_caller_lazy %s", path);
	assert_int_equal(system(command), 0);
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	header.e_shoff = 0;
	header.e_shnum = header.e_shstrndx = 0;
	assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	close(fd);
	open_it(SCRY_TARGET_DIR "/target_caller_lazy", &whole);
	open_it(path, &bare);
	assert_int_equal(bare.symbol_count, whole.symbol_count);
	assert_int_equal(relocations(&bare), relocations(&whole));
	assert_true(relocations(&bare) > 5);
	assert_false(bare.binds_now);
	for (size_t i = 1; i < bare.symbol_count; i++)
		assert_true(scry_dynamic_symbol(&bare, i, &sym));
	close_it(&whole);
	close_it(&bare);
	unlink(path);
}

static void test_flags(void **state)
{
	struct scry_dynamic d;

	open_it(SCRY_TARGET_DIR "/target_caller_now", &d);
	assert_true(d.binds_now);
	assert_false(d.is_symbolic);
	close_it(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_libc),  cmocka_unit_test(test_find_all),
		cmocka_unit_test(test_named), cmocka_unit_test(test_no_sections),
		cmocka_unit_test(test_flags),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
