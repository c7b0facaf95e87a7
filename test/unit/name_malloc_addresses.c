/* The table of addresses against a plain array, keys close and far. */
#include "name/malloc_addresses.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void as_an_array(void **state)
{
	enum { KEYS = 100000 };
	static uint32_t at[KEYS];
	struct scry_malloc_addresses a;
	uint32_t living = 0;

	(void)state;
	srandom(3);
	memset(at, 0xff, sizeof(at));
	assert_int_equal(scry_malloc_addresses_init(&a, 0), 0);
	for (uint32_t i = 0; i < 2000000; i++) {
		uint32_t k = (uint32_t)random() % KEYS;
		uint64_t key = k % 2 ? 8ull * k + 8 : (uint64_t)k << 30 | 8, *slot;
		bool is_new;

		slot = scry_malloc_addresses_find(&a, key);
		assert_int_equal(slot != NULL, at[k] != UINT32_MAX);
		if (slot && random() % 2) {
			assert_int_equal(scry_malloc_slot_block(slot), at[k]);
			scry_malloc_addresses_take(&a, slot);
			at[k] = UINT32_MAX;
			living--;
			continue;
		}
		assert_int_equal(scry_malloc_addresses_add(&a, key, &slot, &is_new), 0);
		assert_int_equal(is_new, at[k] == UINT32_MAX);
		living += is_new;
		at[k] = i & SCRY_MALLOC_BLOCK_MAX;
		scry_malloc_slot_set(slot, at[k]);
	}
	assert_int_equal(a.count, living);
	assert_true(scry_malloc_addresses_bytes(&a) <= 8ull << 18);
	scry_malloc_addresses_done(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(as_an_array)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
