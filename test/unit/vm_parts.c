/* The parts of src/vm that need no Ruby: facts, the page cache, strings and the succinct table from
 * byte arrays. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "vm/ruby.h"
#include "vm/ruby_calib.h"
#include "vm/ruby_iseq.h"
#include "vm/ruby_still.h"

#define BASE 0x10000000ull

static uint8_t image[0x4000];
static unsigned int reads;

static int image_read(const void *bytes, uint64_t addr, void *buf, size_t size)
{
	reads++;
	if (addr < BASE || addr >= BASE + sizeof(image) || size > BASE + sizeof(image) - addr)
		return -EFAULT;
	memcpy(buf, (const uint8_t *)bytes + (addr - BASE), size);
	return 0;
}

static const struct scry_mem mem = {.fd = -1, .image = image, .image_read = image_read};

static void put(uint64_t at, uint64_t word)
{
	memcpy(image + at, &word, sizeof(word));
}

static void test_facts(void **state)
{
	struct scry_calib c = {0};
	const struct scry_fact *f;
	char text[16];

	assert_int_equal(
		scry_calib_parse(&c, strdup("a ff -3 68656c6c6f\n\nb\na 0x10  7 -\nready\n")), 0);
	f = scry_fact_next(&c, NULL, "a");
	assert_true(scry_fact_addr(f, 1) == 0xff && scry_fact_number(f, 2) == -3);
	assert_int_equal(scry_fact_text(f, 3, text, sizeof(text)), 5);
	assert_string_equal(text, "hello");
	assert_int_equal(scry_fact_text(f, 3, text, 3), 2);
	assert_string_equal(text, "he");
	assert_true(scry_fact_addr(f, 9) == 0 && scry_fact_text(f, 9, text, sizeof(text)) == 0);
	f = scry_fact_next(&c, f, "a");
	assert_true(scry_fact_addr(f, 1) == 0x10 && scry_fact_number(f, 2) == 7);
	assert_int_equal(scry_fact_text(f, 3, text, sizeof(text)), 0);
	assert_null(scry_fact_next(&c, f, "a"));
	scry_calib_stop(&c);
	assert_int_equal(scry_calib_parse(&c, strdup("a 1\nb 2\n")), -EPROTO);
	scry_calib_stop(&c);
	assert_int_equal(scry_calib_parse(&c, strdup("")), -EPROTO);
	scry_calib_stop(&c);
}

static void test_still(void **state)
{
	struct scry_still *still = scry_still_new(&mem);
	struct scry_mem cached = scry_still_mem(still);
	uint8_t buf[0x2000];
	uint64_t word = 0;

	for (size_t i = 0; i < sizeof(image); i++)
		image[i] = (uint8_t)(i * 31 + i / 256);
	reads = 0;
	for (int i = 0; i < 100; i++)
		assert_true(scry_still_word(still, BASE + 8 * (uint64_t)i, &word));
	assert_int_equal(reads, 1);
	assert_memory_equal(&word, image + 8 * 99, 8);
	assert_int_equal(scry_mem_read(&cached, BASE + 0xff0, buf, sizeof(buf)), 0);
	assert_memory_equal(buf, image + 0xff0, sizeof(buf));
	assert_int_equal(scry_mem_read(&cached, BASE + 0x3ff0, buf, 0x20), -EFAULT);
	assert_false(scry_still_word(still, BASE + 4, &word));
	assert_false(scry_still_word(still, 0, &word));
	assert_false(scry_still_word(still, BASE + sizeof(image), &word));
	scry_still_free(still);
	scry_still_free(NULL);
}

/* A table built the slow way from a list of marked positions, and read back by rank. */
static void test_succinct_table(void **state)
{
	enum { SIZE = 54 + 512 + 512 + 100 };
	static uint8_t marked[SIZE];
	uint32_t rank = 0, got;

	memset(image, 0, sizeof(image));
	srand(7);
	for (int pos = 0; pos < SIZE; pos++)
		marked[pos] = pos == 0 || rand() % 3 == 0;
	for (int pos = 0; pos < 54; pos++) {
		uint64_t word;

		rank += marked[pos];
		memcpy(&word, image + pos / 9 * 8, 8);
		put((uint64_t)(pos / 9 * 8), word | (uint64_t)rank << (pos % 9 * 7));
	}
	for (int start = 54; start < SIZE; start += 512) {
		uint64_t at = 48 + (uint64_t)(start - 54) / 512 * 80, small = 0;
		uint32_t in_block = 0;

		put(at, rank);
		for (int group = 0; group < 8; group++) {
			uint64_t bits = 0;

			if (group)
				small |= (uint64_t)in_block << ((group - 1) * 9);
			for (int i = 0; i < 64; i++) {
				int pos = start + group * 64 + i;

				if (pos < SIZE && marked[pos]) {
					bits |= 1ull << i;
					in_block++;
				}
			}
			put(at + 16 + (uint64_t)group * 8, bits);
		}
		put(at + 8, small);
		rank += in_block;
	}
	rank = 0;
	for (uint32_t pos = 0; pos < SIZE; pos++) {
		rank += marked[pos];
		assert_int_equal(scry_ruby_succ_rank(&mem, BASE, pos, &got), 0);
		assert_int_equal(got, rank);
	}
	assert_int_equal(scry_ruby_succ_rank(&mem, BASE, 1u << 20, &got), -EFAULT);
}

static const char *string_at(uint64_t at)
{
	static char buf[64];
	static struct scry_ruby r;

	r.mem = mem;
	r.layout = (struct scry_ruby_layout){.string_noembed = 0x2000,
					     .string_ptr = 24,
					     .string_len = 16,
					     .string_embed = 16,
					     .string_embed_len_mask = 0x7c000,
					     .string_embed_len_shift = 14};
	return scry_ruby_string(&r, at, buf, sizeof(buf)) < 0 ? "refused" : buf;
}

static void test_strings(void **state)
{
	memset(image, 0, sizeof(image));
	put(0, 5 | 3 << 14);
	memcpy(image + 16, "abcdef", 6);
	assert_string_equal(string_at(BASE), "abc");
	put(0x100, 5 | 0x2000);
	put(0x110, 10);
	put(0x118, BASE + 0x200);
	memcpy(image + 0x200, "\x1b[31m\xc3\xa4\xff\n\0x", 12);
	assert_string_equal(string_at(BASE + 0x100), "?[31m\xc3\xa4???" + 0);
	put(0x110, 1ull << 62); /* hostile length: cut, and the buffer is not overrun */
	assert_int_equal(strlen(string_at(BASE + 0x100)), 63);
	put(0x118, 0x4141414141414141ull);
	assert_string_equal(string_at(BASE + 0x100), "refused");
	put(0, 7 | 3 << 14);
	assert_string_equal(string_at(BASE), "refused");
	assert_string_equal(string_at(BASE + 1), "refused");
	assert_string_equal(string_at(8), "refused");
	/* Overlong, surrogate, beyond the end, C1 control, cut sequence. */
	put(0, 5 | 15 << 14);
	memcpy(image + 16, "\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xc2\x85zz\xe2\x82", 15);
	assert_string_equal(string_at(BASE), "???????????zz??");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_facts),
		cmocka_unit_test(test_still),
		cmocka_unit_test(test_succinct_table),
		cmocka_unit_test(test_strings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
