/*
 * The cache of prototypes: what is written is read back; what is torn, damaged, forged, or of
 * another object or scry is none. Owners, modes and links are base/cache's: vm_cache.
 */
#include "name/proto_cache.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct scry_proto_cache empty(uint8_t key)
{
	struct scry_proto_cache c;

	scry_proto_cache_init(&c, 7);
	c.key[0] = key;
	return c;
}

static struct scry_proto_cache sample(void)
{
	struct scry_proto_cache c = empty(1);

	scry_proto_cache_put(&c, 0x1000, "int ?(string)", 13);
	scry_proto_cache_put(&c, 0x2000, "", 0);
	scry_proto_cache_put(&c, 0, "void ?(addr)", 12);
	return c;
}

static void assert_knows(const struct scry_proto_cache *c, uint64_t address, const char *text)
{
	const char *got;
	size_t size;

	assert_true(scry_proto_cache_get(c, address, &got, &size));
	assert_int_equal(size, strlen(text));
	assert_memory_equal(got, text, size);
}

static void assert_is_sample(const struct scry_proto_cache *c)
{
	const char *got;
	size_t size;

	assert_knows(c, 0x1000, "int ?(string)");
	assert_knows(c, 0x2000, "");
	assert_knows(c, 0, "void ?(addr)");
	assert_false(scry_proto_cache_get(c, 0x3000, &got, &size));
}

static void it_comes_back(void **state)
{
	struct scry_proto_cache c = sample(), again = empty(1), other = empty(2);

	(void)state;
	assert_is_sample(&c);
	scry_proto_cache_store(&c);
	scry_proto_cache_load(&again);
	assert_is_sample(&again);
	assert_false(again.is_changed);
	scry_proto_cache_load(&other);
	assert_int_equal(other.count, 0);
	scry_proto_cache_put(&again, 0x3000, "long ?()", 8);
	scry_proto_cache_store(&again);
	scry_proto_cache_done(&c);
	c = empty(1);
	scry_proto_cache_load(&c);
	assert_int_equal(c.count, 4);
	assert_knows(&c, 0x3000, "long ?()");
	scry_proto_cache_done(&c);
	scry_proto_cache_done(&again);
	scry_proto_cache_done(&other);
}

/* 0 or -ENOENT, of an empty cache; one that refuses takes nothing. */
static int parse(const void *bytes, size_t size, uint8_t key, uint64_t reader)
{
	struct scry_proto_cache c = empty(key);
	const char *text;
	size_t length;
	int r;

	c.reader = reader;
	r = scry_proto_cache_parse(&c, bytes, size);
	if (r < 0) {
		assert_int_equal(c.rows.len + c.count, 0);
		assert_false(scry_proto_cache_get(&c, 0x1000, &text, &length));
	}
	scry_proto_cache_done(&c);
	return r;
}

/* Torn at each length, each byte bent, of another key and scry. */
static void it_is_whole_or_none(void **state)
{
	struct scry_proto_cache c = sample();
	struct scry_buf bytes = {0};

	(void)state;
	assert_int_equal(scry_proto_cache_format(&c, &bytes), 0);
	assert_int_equal(parse(bytes.data, bytes.len, 1, 7), 0);
	assert_int_equal(parse(bytes.data, bytes.len, 2, 7), -ENOENT);
	assert_int_equal(parse(bytes.data, bytes.len, 1, 8), -ENOENT);
	for (size_t i = 0; i < bytes.len; i++) {
		assert_int_equal(parse(bytes.data, i, 1, 7), -ENOENT);
		bytes.data[i] ^= 0x15;
		assert_int_equal(parse(bytes.data, bytes.len, 1, 7), -ENOENT);
		bytes.data[i] ^= 0x15;
	}
	scry_buf_done(&bytes);
	scry_proto_cache_done(&c);
}

/* With a checksum that holds: sizes beyond the end, too many rows, bytes behind them, no text. */
static void forgeries_are_none(void **state)
{
	static const struct {
		size_t at;
		uint32_t word;
	} forged[] = {{20, 0},
		      {20, 2},
		      {20, 4},
		      {20, 0xffffffff},
		      {64 + 8, 14},
		      {64 + 8, 12},
		      {64 + 8, 0},
		      {64 + 8, 0xffffffff},
		      {64 + 8, 0xfffffff0},
		      {64 + 12, 1},
		      {64 + 16, 0x0a746e69},
		      {64 + 16, 0xff746e69}};
	struct scry_proto_cache c = sample();
	struct scry_buf bytes = {0};

	(void)state;
	assert_int_equal(scry_proto_cache_format(&c, &bytes), 0);
	for (size_t i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
		uint32_t was;

		memcpy(&was, bytes.data + forged[i].at, 4);
		memcpy(bytes.data + forged[i].at, &forged[i].word, 4);
		scry_proto_cache_seal(bytes.data, bytes.len);
		assert_int_equal(parse(bytes.data, bytes.len, 1, 7), -ENOENT);
		memcpy(bytes.data + forged[i].at, &was, 4);
	}
	scry_proto_cache_seal(bytes.data, bytes.len);
	assert_int_equal(parse(bytes.data, bytes.len, 1, 7), 0);
	scry_buf_done(&bytes);
	scry_proto_cache_done(&c);
}

static void it_has_an_end(void **state)
{
	static char text[16000];
	struct scry_proto_cache c = empty(1), again = empty(1);

	(void)state;
	memset(text, 'x', sizeof(text));
	for (uint64_t i = 0; i < 100; i++)
		scry_proto_cache_put(&c, i, text, sizeof(text));
	assert_in_range(c.count, 60, 66);
	scry_proto_cache_store(&c);
	scry_proto_cache_load(&again);
	assert_int_equal(again.count, c.count);
	scry_proto_cache_done(&c);
	scry_proto_cache_done(&again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_comes_back), cmocka_unit_test(it_is_whole_or_none),
		cmocka_unit_test(forgeries_are_none), cmocka_unit_test(it_has_an_end)};
	char base[] = "/tmp/scry_protos.XXXXXX", command[100];
	int r;

	if (!mkdtemp(base))
		return 1;
	setenv("XDG_CACHE_HOME", base, 1);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(command, sizeof(command), "rm -r %s", base);
	return system(command) ? 1 : r;
}
