/* hook/inject: what a process lost while its threads stood is measured by what it runs. */
#include "hook/inject.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MS 1000000ull

static void lost(void **state)
{
	struct scry_inject inj = {0};

	(void)state;
	assert_int_equal(scry_inject_lost_ns(&inj, 260 * MS, 1000 * MS), 0);
	/* All threads stood for 290 ms, which is 580 of two processors: it uses a quarter of one.
	 */
	inj.pause_wall_ns = 290 * MS;
	inj.pause_cpu_ns = 580 * MS;
	assert_int_equal(scry_inject_lost_ns(&inj, 178 * MS, 1000 * MS) / MS, 72);
	assert_int_equal(scry_inject_lost_ns(&inj, 0, 1000 * MS), 0);
	/* One thread of many stood. */
	inj.pause_cpu_ns = 290 * MS;
	assert_int_equal(scry_inject_lost_ns(&inj, 8000 * MS, 1000 * MS) / MS, 290);
	/* The clocks do not agree. */
	assert_int_equal(scry_inject_lost_ns(&inj, 8000 * MS, 200 * MS) / MS, 290);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
