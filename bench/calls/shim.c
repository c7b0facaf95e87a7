/* LD_PRELOAD: counts the calls of callee and goes on to it. */
#define _GNU_SOURCE
#include <dlfcn.h>

unsigned long callee(unsigned long x);
unsigned long shim_count;

unsigned long callee(unsigned long x)
{
	static unsigned long (*next)(unsigned long);

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "callee");
	__atomic_fetch_add(&shim_count, 1, __ATOMIC_RELAXED);
	return next(x);
}
