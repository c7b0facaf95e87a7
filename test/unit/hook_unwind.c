/*
 * Unwind tables that lie in memory which the target can write: whatever it writes there, what is
 * listed next is right, and nothing is written beside it.
 */
#include "hook/unwind.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "wire/account.h"
#include "wire/unwind.h"

#define TURNS 20
#define FAR 0x1000000u /* as a count: far behind the mapping's end */

static struct scry_unwinding u;
static struct scry_inject inj;
static union {
	struct scry_control control;
	uint8_t bytes[SCRY_SHARED_HEAD];
} head __attribute__((aligned(64)));
static bool is_over;

/* This process is the target, too. As if it had been entered. */
static int set_up(void **state)
{
	void *map = mmap(NULL, SCRY_UNWIND_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	(void)state;
	inj.control = &head.control;
	u = (struct scry_unwinding){.inj = &inj,
				    .modules = scry_modules_new(getpid()),
				    .map = map,
				    .lists = calloc(2, sizeof(*u.lists)),
				    .words = SCRY_UNWIND_BYTES / sizeof(uint64_t),
				    .used = sizeof(*u.map) / sizeof(uint64_t)};
	if (map == MAP_FAILED || !u.modules || !u.lists)
		return -1;
	scry_unwind_list(&u);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	munmap(u.map, SCRY_UNWIND_BYTES);
	scry_unwind_done(&u);
	return 0;
}

/* Something is mapped that was not there, or is unmapped. */
static void turn(void)
{
	u.maps_hash ^= 1;
	u.looked_ns = 0;
	scry_unwind_turn(&u);
}

static void forge(uint64_t generation, uint64_t count)
{
	volatile struct scry_unwind_map *map = u.map;

	map->generation = generation;
	map->index[0].count = map->index[1].count = count;
}

static void *scribble(void *unused)
{
	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED))
		forge(1, FAR);
	return unused;
}

static void forged_counts(void **state)
{
	struct scry_unwind_index was;
	uint64_t generation = u.map->generation;

	(void)state;
	memcpy(&was, &u.map->index[generation & 1], sizeof(was));
	assert_in_range(was.count, 1, SCRY_UNWIND_OBJECTS);
	for (uint64_t i = 1; i <= 4; i++) {
		const struct scry_unwind_index *index;

		forge(i % 3 * 7, i & 1 ? FAR : UINT64_MAX);
		turn();
		assert_int_equal(u.map->generation, generation + i);
		index = &u.map->index[(generation + i) & 1];
		assert_int_equal(index->count, was.count);
		/* since when each has been there, too */
		assert_memory_equal(index->objects, was.objects, was.count * sizeof(*was.objects));
	}
}

static void counts_forged_meanwhile(void **state)
{
	pthread_t thread;

	(void)state;
	is_over = false;
	assert_int_equal(pthread_create(&thread, NULL, scribble, NULL), 0);
	for (int i = 0; i < TURNS; i++) {
		turn();
		usleep(100);
	}
	__atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	turn();
	assert_in_range(u.map->index[u.map->generation & 1].count, 1, SCRY_UNWIND_OBJECTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(forged_counts, set_up, tear_down),
		cmocka_unit_test_setup_teardown(counts_forged_meanwhile, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
