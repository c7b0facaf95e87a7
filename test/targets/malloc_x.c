/*
 * Calls what only jemalloc has, as long as it is preloaded: mallocx and its like, which are looked
 * for as programs do, by weak symbols. Prints "right" when all blocks were its own.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS 1000
#define ALIGNED 6 /* flags: the alignment's log2 */
#define ZEROED 64
#define MEGABYTE ((size_t)1 << 20)

void *mallocx(size_t size, int flags) __attribute__((weak));
void *rallocx(void *p, size_t size, int flags) __attribute__((weak));
size_t xallocx(void *p, size_t size, size_t extra, int flags) __attribute__((weak));
void dallocx(void *p, int flags) __attribute__((weak));
void sdallocx(void *p, size_t size, int flags) __attribute__((weak));

static int round_is_right(int i)
{
	unsigned char *a = mallocx(100, 0), *b = mallocx(200, ALIGNED), *c = mallocx(150, ZEROED);
	int right = a && b && (uintptr_t)b % 64 == 0 && c && !c[0] && !c[149];

	memset(c, 1, 150);
	dallocx(c, 0);
	memset(a, i, 100);
	a = rallocx(a, 300, 0);
	right &= a && a[0] == (unsigned char)i && a[99] == (unsigned char)i;
	right &= xallocx(a, 310, 0, 0) >= 310;		    /* there is room for so much */
	right &= xallocx(a, 4 * MEGABYTE, 7, 0) < MEGABYTE; /* not for that: it goes on as it was */
	dallocx(b, ALIGNED);
	if (i % 100)
		sdallocx(a, 310, 0);
	return right;
}

int main(void)
{
	int wrong = 0;

	if (!mallocx || !rallocx || !xallocx || !dallocx || !sdallocx) {
		puts("none");
		return 0;
	}
	for (int i = 0; i < ROUNDS; i++)
		wrong += !round_is_right(i);
	puts(wrong ? "wrong" : "right");
	return wrong != 0;
}
