/* Patches of a user's: files that make no sense are refused, and what stands before a function
 * leaves every register as it was. */
#include "patch/object.h"

#include <cpuid.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/err.h"
#include "scry/patch.h"

extern const uint8_t scry_before[], scry_before_words[], scry_before_end[];

#define ADDRESS (1ull << 40)

static uint8_t *read_patch(const char *name, size_t *ret_size)
{
	char path[512];
	uint8_t *bytes;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", SCRY_TARGET_DIR, name);
	f = fopen(path, "re");
	assert_non_null(f);
	bytes = malloc(SCRY_OBJECT_BYTES_MAX);
	*ret_size = fread(bytes, 1, SCRY_OBJECT_BYTES_MAX, f);
	assert_true(*ret_size > 1000);
	fclose(f);
	return bytes;
}

static int find(void *arg, const struct scry_object_import *import, uint64_t *ret)
{
	(*(size_t *)arg)++;
	assert_true(strlen(import->name) < 256);
	*ret = 0x7000;
	return 0;
}

/* 0: it was taken. */
static int try(const uint8_t *bytes, size_t size, struct scry_patch_object *o, size_t *imports)
{
	uint8_t *copy = malloc(size + 1);
	int r;

	memcpy(copy, bytes, size);
	scry_error_clear();
	r = scry_patch_object_read(copy, size, "it", o);
	if (r == 0)
		r = scry_patch_object_bind(o, ADDRESS, "it", find, imports);
	assert_true(r == 0 || *scry_error());
	return r;
}

static void examples(void **state)
{
	struct scry_patch_object o;
	size_t size, imports = 0;
	uint8_t *bytes = read_patch("patch_bounds.so", &size);

	(void)state;
	assert_int_equal(try(bytes, size, &o, &imports), 0);
	assert_int_equal(o.entry_count, 2);
	for (size_t i = 0; i < o.entry_count; i++)
		assert_string_equal(o.entries[i].name, o.entries[i].kind == SCRY_PATCH_REPLACE
							       ? "table_get@libfaulty.so"
							       : "refused");
	assert_int_not_equal(o.entries[0].kind, o.entries[1].kind);
	assert_int_equal(imports, 0);
	scry_patch_object_free(&o);
	free(bytes);
	bytes = read_patch("patch_raise.so", &size);
	assert_int_equal(try(bytes, size, &o, &imports), 0);
	assert_int_equal(imports, 3);
	assert_int_equal(o.entry_count, 2);
	scry_patch_object_free(&o);
	free(bytes);
}

static uint64_t next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

/* Bytes of the head and tables changed at random, and files that are cut: refused with a sentence,
 * or an image whose entries lie in it. Run under sanitizers: make SAN=address,undefined. */
static void mutations(void **state)
{
	size_t size, refused = 0, taken = 0;
	uint64_t seed = 20261126;

	(void)state;
	for (int k = 0; k < 2; k++) {
		uint8_t *bytes = read_patch(k ? "patch_raise.so" : "patch_bounds.so", &size);
		uint8_t *changed = malloc(size);

		for (int i = 0; i < 4000; i++) {
			struct scry_patch_object o;
			size_t imports = 0, keep = i % 8 ? size : next(&seed) % size;

			memcpy(changed, bytes, size);
			for (uint64_t n = next(&seed) % 6 + 1; n; n--)
				changed[next(&seed) % (i % 2 ? 0x600 : size)] =
					(uint8_t)next(&seed);
			if (try(changed, keep, &o, &imports) < 0)
				refused++;
			else
				taken++;
			for (size_t e = 0; e < o.entry_count && *scry_error() == '\0'; e++)
				assert_true(o.entries[e].what <
					    o.text_size + o.constants_size + o.data_size);
			scry_patch_object_free(&o);
		}
		free(changed);
		free(bytes);
	}
	print_message("%zu refused, %zu taken\n", refused, taken);
	assert_true(refused > 2000 && taken > 500);
}

static volatile int seen;

/* Takes every vector and integer register that a function may. */
static void spoil(struct scry_patch_call *call)
{
	seen += (int)call->arguments[0];
	__asm__ volatile("pcmpeqd %%xmm0, %%xmm0; pcmpeqd %%xmm1, %%xmm1; pcmpeqd %%xmm2, %%xmm2;"
			 "pcmpeqd %%xmm3, %%xmm3; pcmpeqd %%xmm4, %%xmm4; pcmpeqd %%xmm5, %%xmm5;"
			 "pcmpeqd %%xmm6, %%xmm6; pcmpeqd %%xmm7, %%xmm7; mov $-1, %%rax;"
			 "mov %%rax, %%rcx; mov %%rax, %%rdx; mov %%rax, %%rsi; mov %%rax, %%r8;"
			 "mov %%rax, %%r9; mov %%rax, %%r10; mov %%rax, %%r11"
			 :
			 :
			 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "rax",
			   "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11");
	if (__builtin_cpu_supports("avx"))
		__asm__ volatile("vzeroall");
}

static double sum(int count, ...)
{
	va_list list;
	double total = 0;

	va_start(list, count);
	for (int i = 0; i < count; i++)
		total += va_arg(list, double) * va_arg(list, int);
	va_end(list);
	return total;
}

static void before_a_function(void **state)
{
	const size_t head = (size_t)((uintptr_t)scry_before_end - (uintptr_t)scry_before),
		     words = (size_t)((uintptr_t)scry_before_words - (uintptr_t)scry_before);
	uint8_t *code =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *const to = (void *)(uintptr_t)sum, *const handler = (void *)(uintptr_t)spoil;
	double (*hooked)(int, ...) = (double (*)(int, ...))(uintptr_t)code;
	uint64_t fill[3];
	uint32_t a, b, c, d;

	(void)state;
	__cpuid_count(0xd, 0, a, b, c, d);
	memcpy(&fill[0], &handler, 8);
	fill[1] = 7;
	fill[2] = b;
	memcpy(code, scry_before, head);
	memcpy(code + words, fill, sizeof(fill));
	memcpy(code + head, "\xff\x25\0\0\0\0", 6);
	memcpy(code + head + 6, &to, 8);
	assert_int_equal(mprotect(code, 4096, PROT_READ | PROT_EXEC), 0);
	seen = 0;
	for (int i = 0; i < 1000; i++)
		assert_true(hooked(10, 1.5, 1, 2.5, 2, 3.5, 3, 4.5, 4, 5.5, 5, 6.5, 6, 7.5, 7, 8.5,
				   8, 9.5, 9, 10.5, i) == sum(10, 1.5, 1, 2.5, 2, 3.5, 3, 4.5, 4,
							      5.5, 5, 6.5, 6, 7.5, 7, 8.5, 8, 9.5,
							      9, 10.5, i));
	assert_int_equal(seen, 10000);
	munmap(code, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(examples),
		cmocka_unit_test(mutations),
		cmocka_unit_test(before_a_function),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
