/* Steps of times: each time is in its step, steps follow each other, and are an eighth wide. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/syscall_times.h"

#define LAST (SCRY_SYSCALLS_STEPS - 1)

static void in_its_step(uint64_t ns)
{
	const uint32_t step = scry_syscalls_step(ns);

	assert_in_range(step, 0, LAST);
	assert_true(scry_syscalls_step_ns(step) <= ns);
	if (step < LAST)
		assert_true(ns < scry_syscalls_step_ns(step + 1));
}

static void monotone(void **state)
{
	uint32_t before = 0;

	for (uint64_t ns = 0; ns < 100000; ns++) {
		const uint32_t step = scry_syscalls_step(ns);

		assert_true(step == before || step == before + 1); /* none is left out */
		in_its_step(ns);
		before = step;
	}
	for (uint32_t step = 0; step < LAST; step++)
		assert_true(scry_syscalls_step_ns(step) < scry_syscalls_step_ns(step + 1));
}

static void inverse(void **state)
{
	for (uint32_t step = 0; step < SCRY_SYSCALLS_STEPS; step++) {
		const uint64_t from = scry_syscalls_step_ns(step);

		assert_int_equal(scry_syscalls_step(from), step);
		if (step)
			assert_int_equal(scry_syscalls_step(from - 1), step - 1);
	}
}

static void ends(void **state)
{
	assert_int_equal(scry_syscalls_step(0), 0);
	assert_int_equal(scry_syscalls_step((1u << SCRY_SYSCALLS_STEP_FIRST) - 1), 0);
	assert_int_equal(scry_syscalls_step(1u << SCRY_SYSCALLS_STEP_FIRST), 1);
	assert_int_equal(scry_syscalls_step(UINT64_MAX), LAST);
	for (uint32_t bit = 0; bit < 64; bit++) {
		in_its_step((uint64_t)1 << bit);
		in_its_step(((uint64_t)1 << bit) - 1);
		in_its_step(UINT64_MAX >> bit);
	}
	/* The last, which has no end, begins at two minutes. */
	assert_true(scry_syscalls_step_ns(LAST) > (uint64_t)120 * 1000000000u);
}

static void within_an_eighth(void **state)
{
	for (uint32_t step = 1; step < LAST; step++) {
		const uint64_t from = scry_syscalls_step_ns(step);
		const uint64_t to = scry_syscalls_step_ns(step + 1);

		assert_true((to - from) * 8 <= from);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(monotone),
		cmocka_unit_test(inverse),
		cmocka_unit_test(ends),
		cmocka_unit_test(within_an_eighth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
