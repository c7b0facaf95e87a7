/* See libwork.h. Built as a shared library, so that calls go through the PLT. */
#include "libwork.h"

HOOKABLE(work_mix);
BODY uint64_t work_mix_body(uint64_t sum, uint64_t value);
BODY uint64_t work_mix_body(uint64_t sum, uint64_t value)
{
	sum ^= value + 0x9e3779b97f4a7c15ull + (sum << 6) + (sum >> 2);
	return sum * 0xff51afd7ed558ccdull;
}

HOOKABLE(work_fold);
BODY uint64_t work_fold_body(const uint64_t *values, int count);
BODY uint64_t work_fold_body(const uint64_t *values, int count)
{
	uint64_t sum = 0;

	for (int i = 0; i < count; i++)
		sum = work_mix(sum, values[i]);
	return sum;
}

/* For functions that may leave them in other ways than by returning. */
uint64_t work_call(uint64_t (*function)(void))
{
	return 1 + function();
}

uint64_t work_through(uint64_t (*function)(void))
{
	return 1 + work_call(function);
}
