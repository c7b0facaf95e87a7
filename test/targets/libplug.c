/* A plug-in for loader.c. Its constructor calls work_mix itself, so that a hook which is there in
 * time counts one call more for each time it is loaded. */
#include <stdint.h>
#include <unistd.h>

#include "libwork.h"

uint64_t plug_run(uint64_t seed, unsigned long rounds);

static uint64_t constructed;

__attribute__((constructor)) static void construct(void)
{
	/* Also a reason to need a C library, in each namespace its own. */
	constructed = work_mix(0, getpid() > 0 ? 42 : 0);
}

/* The constructor's value and `rounds` more are mixed into `seed`. */
uint64_t plug_run(uint64_t seed, unsigned long rounds)
{
	uint64_t sum = work_mix(seed, constructed);

	for (unsigned long i = 0; i < rounds; i++)
		sum = work_mix(sum, i);
	return sum;
}
