/* Columns as planes and back; bytes that are no planes are refused. */
#include "rec/malloc_planes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 4096u

static void known(void **state)
{
	static const uint8_t column[] = {0x01, 0x82, 0x03, 0x84, 0x85, 0x06, 0x07},
			     planes[] = {0x01, 0x82, 0x84, 0x07, 0x03, 0x85, 0x06};
	uint8_t got[sizeof(column)];

	scry_malloc_planes_split(column, sizeof(column), got);
	assert_memory_equal(got, planes, sizeof(planes));
	assert_true(scry_malloc_planes_join(planes, sizeof(planes), got));
	assert_memory_equal(got, column, sizeof(column));
	assert_true(scry_malloc_planes_join(planes, 0, got));
}

/* Any whole varints come back; any other bytes are refused, or are planes of some. */
static void any(void **state)
{
	uint8_t column[BYTES], planes[BYTES], back[BYTES];
	uint64_t random = 88172645463325252u;
	uint32_t refused = 0;

	for (int round = 0; round < 2000; round++) {
		size_t len = (size_t)round * 2 % BYTES;
		unsigned int more = 0;

		for (size_t i = 0; i < len; i++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			planes[i] = (uint8_t)(random >> 40);
			column[i] = more == 9 || i + 1 == len ? planes[i] & 0x7f : planes[i];
			more = column[i] & 0x80 ? more + 1 : 0;
		}
		if (scry_malloc_planes_join(planes, len, back)) {
			scry_malloc_planes_split(back, len, planes);
			assert_true(scry_malloc_planes_join(planes, len, back));
		} else {
			refused++;
		}
		scry_malloc_planes_split(column, len, planes);
		assert_true(scry_malloc_planes_join(planes, len, back));
		assert_memory_equal(back, column, len);
	}
	assert_true(refused > 1000);
}

static void refusals(void **state)
{
	uint8_t back[16];
	static const uint8_t none[] = {0x80}, gap[] = {0x81, 0x81, 0x02, 0x82, 0x01},
			     eleven[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
					 0x80, 0x80, 0x80, 0x80, 0x01};

	assert_false(scry_malloc_planes_join(none, sizeof(none), back));
	assert_false(scry_malloc_planes_join(gap, 4, back));
	assert_false(scry_malloc_planes_join(eleven, sizeof(eleven), back));
	assert_true(scry_malloc_planes_join(eleven + 1, 10, back));
	assert_int_equal(back[9], 0x01);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known),
		cmocka_unit_test(any),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
