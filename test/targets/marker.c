/*
 * An allocator that counts its calls and is libc's otherwise: which one a replay calls is seen by
 * it. At the end of the process it writes "calls N" to the file that MARKER names.
 * With MARKER_HALF it has malloc only, and no replay must use it; with MARKER_WRONG calloc does not
 * zero.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
extern void __libc_free(void *p);

static unsigned long calls;

static void count(void)
{
	__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t size)
{
	count();
	return __libc_malloc(size);
}

#ifndef MARKER_HALF
void *calloc(size_t n, size_t size)
{
	void *p = __libc_calloc(n, size);

	count();
#ifdef MARKER_WRONG
	memset(p, 1, p ? n * size : 0);
#endif
	return p;
}

void *realloc(void *p, size_t size)
{
	count();
	return __libc_realloc(p, size);
}

int posix_memalign(void **ret_p, size_t align, size_t size)
{
	count();
	*ret_p = __libc_memalign(align, size);
	return *ret_p ? 0 : ENOMEM;
}

void free(void *p)
{
	count();
	__libc_free(p);
}
#endif

__attribute__((destructor)) static void tell(void)
{
	const char *path = getenv("MARKER");
	unsigned long made = calls;
	FILE *f = path ? fopen(path, "we") : NULL;

	if (!f)
		return;
	fprintf(f, "calls %lu\n", made);
	fclose(f);
}
