/* The u64 map, against a plain array as the truth. */
#include "base/map.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define KEYS 512

static uint64_t rng = 88172645463325252u;

static uint64_t next_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static void edge_keys(void **state)
{
	struct scry_map map;
	uint64_t value = 7;

	scry_map_init(&map, 10);
	assert_false(scry_map_get(&map, 0, &value));
	assert_false(scry_map_get(&map, UINT64_MAX, &value));
	assert_false(scry_map_remove(&map, 5, NULL));
	assert_int_equal(value, 7);
	assert_int_equal(scry_map_put(&map, 0, 11), 0);
	assert_int_equal(scry_map_put(&map, UINT64_MAX, 12), 0);
	assert_true(scry_map_get(&map, 0, &value));
	assert_int_equal(value, 11);
	assert_true(scry_map_get(&map, UINT64_MAX, &value));
	assert_int_equal(value, 12);
	assert_true(scry_map_remove(&map, 0, &value));
	assert_int_equal(value, 11);
	assert_false(scry_map_get(&map, 0, &value));
	assert_int_equal(map.count, 1);
	scry_map_done(&map);
	assert_int_equal(map.count, 0);
}

static void limit_holds(void **state)
{
	struct scry_map map;
	uint64_t i, value;

	scry_map_init(&map, 100);
	for (i = 0; i < 100; i++)
		assert_int_equal(scry_map_put(&map, i * 8, i), 0);
	assert_int_equal(scry_map_put(&map, 4, 1), -ENOSPC);
	assert_null(scry_map_ref(&map, 4));
	assert_int_equal(scry_map_put(&map, 8, 99), 0); /* replacing is not growing */
	assert_true(scry_map_remove(&map, 0, NULL));
	assert_int_equal(scry_map_put(&map, 4, 1), 0);
	assert_true(scry_map_get(&map, 8, &value));
	assert_int_equal(value, 99);
	scry_map_done(&map);
}

/* Every way to change the map, 300,000 times over few keys, so that runs collide and wrap around.
 */
static void random_walk(void **state)
{
	uint64_t truth[KEYS] = {0};
	struct scry_map map;
	size_t live = 0, i;
	uint64_t value;

	scry_map_init(&map, KEYS);
	for (i = 0; i < 300000; i++) {
		uint64_t key = next_random() % KEYS, fresh = next_random() | 1;

		if (next_random() % 2) {
			live += !truth[key];
			truth[key] = fresh;
			if (next_random() % 2)
				assert_int_equal(scry_map_put(&map, key * 40, fresh), 0);
			else
				*scry_map_ref(&map, key * 40) = fresh;
		} else {
			bool was = truth[key] != 0;

			assert_int_equal(scry_map_remove(&map, key * 40, &value), was);
			if (was)
				assert_int_equal(value, truth[key]);
			live -= was;
			truth[key] = 0;
		}
		assert_int_equal(map.count, live);
		key = next_random() % KEYS;
		assert_int_equal(scry_map_get(&map, key * 40, &value), truth[key] != 0);
		if (truth[key])
			assert_int_equal(value, truth[key]);
	}
	scry_map_done(&map);
}

static void walks_all(void **state)
{
	struct scry_map_slot slot;
	struct scry_map map;
	uint64_t sum = 0, i;
	size_t cursor = 0, seen = 0;

	scry_map_init(&map, 100000);
	assert_false(scry_map_next(&map, &cursor, &slot));
	for (i = 0; i < 50000; i++)
		assert_int_equal(scry_map_put(&map, i << 40, i), 0);
	cursor = 0;
	while (scry_map_next(&map, &cursor, &slot)) {
		assert_int_equal(slot.key, slot.value << 40);
		sum += slot.value;
		seen++;
	}
	assert_false(scry_map_next(&map, &cursor, &slot));
	assert_int_equal(seen, 50000);
	assert_int_equal(sum, UINT64_C(50000) * 49999 / 2);
	scry_map_done(&map);
}

/* The longest run of slots in use: what a key that is not there costs at most. */
static size_t longest_run(const struct scry_map *map)
{
	size_t run = 0, longest = 0;

	for (size_t i = 0; i <= map->mask; i++) {
		run = map->slots[i].key ? run + 1 : 0;
		longest = run > longest ? run : longest;
	}
	return longest;
}

/* Keys that would share a home if the hash were that of the golden ratio alone, each a multiple of
 * its inverse. */
static void chosen_keys(void **state)
{
	const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
	uint64_t inverse = 1, i;
	struct scry_map map;

	for (i = 0; i < 6; i++) /* Newton's, modulo 2^64 */
		inverse *= 2 - golden * inverse;
	assert_true(golden * inverse == 1);
	scry_map_init(&map, 20000);
	for (i = 1; i <= 20000; i++)
		assert_int_equal(scry_map_put(&map, i * inverse, i), 0);
	assert_true(longest_run(&map) < 1000);
	scry_map_done(&map);
}

/* Addresses as they come: aligned, one behind the other. */
static void aligned_keys(void **state)
{
	for (unsigned int shift = 3; shift < 48; shift += 5) {
		struct scry_map map;

		scry_map_init(&map, 20000);
		for (uint64_t i = 1; i <= 20000; i++)
			assert_int_equal(scry_map_put(&map, i << shift, i), 0);
		assert_true(longest_run(&map) < 1000);
		scry_map_done(&map);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(edge_keys),   cmocka_unit_test(limit_holds),
		cmocka_unit_test(random_walk), cmocka_unit_test(walks_all),
		cmocka_unit_test(chosen_keys), cmocka_unit_test(aligned_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
