/* Fibers that stand in places with known names, for gdb: then the program stops by SIGTRAP, or
 * aborts ("core"). */
#include "fiber/scry_fiber.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static void deep_in_sleep(void)
{
	scry_fiber_sleep(3600000000000ll);
}

__attribute__((noinline)) static void deep_in_yield(int left)
{
	volatile int here = left;

	if (left > 0)
		deep_in_yield(left - 1);
	else
		scry_fiber_yield();
	here = here + 1;
}

static void *sleeper(void *arg)
{
	deep_in_sleep();
	return arg;
}

static void *yielder(void *arg)
{
	deep_in_yield(3);
	return arg;
}

static void *never_run(void *arg)
{
	return arg;
}

static void *stopper(void *arg)
{
	if (arg != NULL)
		abort();
	raise(SIGTRAP);
	return arg;
}

int main(int argc, char **argv)
{
	struct scry_fiber *fiber;

	if (scry_fiber_open(NULL, NULL) != 0)
		return 1;
	scry_fiber_spawn(&(struct scry_fiber_attr){.name = "asleep"}, sleeper, NULL, &fiber);
	scry_fiber_spawn(&(struct scry_fiber_attr){.name = "polite"}, yielder, NULL, &fiber);
	scry_fiber_new(&(struct scry_fiber_attr){.name = "fresh"}, never_run, NULL, &fiber);
	scry_fiber_spawn(NULL, stopper, argc > 1 && strcmp(argv[1], "core") == 0 ? argv[1] : NULL,
			 &fiber);
	return scry_fiber_join(fiber, NULL);
}
