/*
 * Has an allocator of its own, under its own names, beside libc's: je_malloc and so on, which no
 * other object sees. It looks whether its blocks are its own, and prints how often it has called
 * what.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA (64u << 20)
#define ROUNDS 1000

const char *je_says(void);
void *je_malloc(size_t size);
void *je_calloc(size_t n, size_t size);
void *je_realloc(void *p, size_t size);
void je_free(void *p);
size_t je_malloc_usable_size(void *p);
void *je_mallocx(size_t size, int flags);
void *je_rallocx(void *p, size_t size, int flags);
size_t je_xallocx(void *p, size_t size, size_t extra, int flags);
void je_sdallocx(void *p, size_t size, int flags);
int je_mallctl(void); /* only that it is there */

static char *at, *end;

/* As jemalloc has it, by which one without symbols is known. */
const char *je_says(void)
{
	return "<jemalloc>: out of memory\n";
}

/* Blocks with their size before them, never used again. */
void *je_malloc(size_t size)
{
	size_t whole = (size + 31) & ~(size_t)15;

	if (!at) {
		at = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (at == MAP_FAILED)
			abort();
		end = at + ARENA;
	}
	if (whole > (size_t)(end - at)) {
		fputs(je_says(), stderr);
		return NULL;
	}
	at += whole;
	((size_t *)(void *)(at - whole))[1] = whole - 16;
	return at - whole + 16;
}

void je_free(void *p)
{
	if (p)
		memset(p, 0xdd, je_malloc_usable_size(p));
}

size_t je_malloc_usable_size(void *p)
{
	return p ? ((size_t *)p)[-1] : 0;
}

void *je_calloc(size_t n, size_t size)
{
	return je_malloc(n * size);
}

void *je_realloc(void *p, size_t size)
{
	void *to = je_malloc(size);

	if (to && p)
		memcpy(to, p, size < je_malloc_usable_size(p) ? size : je_malloc_usable_size(p));
	je_free(p);
	return to;
}

void *je_mallocx(size_t size, int flags)
{
	return flags == 5 ? je_malloc(size) : NULL;
}

void *je_rallocx(void *p, size_t size, int flags)
{
	return flags == 5 ? je_realloc(p, size) : NULL;
}

size_t je_xallocx(void *p, size_t size, size_t extra, int flags)
{
	return flags == 5 && !extra ? je_malloc_usable_size(p) : 0;
}

int je_mallctl(void)
{
	return -1;
}

void je_sdallocx(void *p, size_t size, int flags)
{
	if (flags == 5 && je_malloc_usable_size(p) >= size)
		je_free(p);
}

int main(void)
{
	int wrong = 0;
	size_t bytes = 0;

	for (int i = 0; i < ROUNDS; i++) {
		char *a = je_malloc((size_t)i + 1), *b = je_calloc(3, 100), *c = malloc(50);
		char *d = je_mallocx(200, 5);

		memset(a, i, (size_t)i + 1);
		a = je_realloc(a, 2 * (size_t)i + 10);
		wrong += !d || (i && a[i] != (char)i) ||
			 je_malloc_usable_size(a) < 2 * (size_t)i + 10;
		d = je_rallocx(d, 250, 5);
		wrong += je_xallocx(d, 251, 0, 5) < 251 || je_xallocx(d, 5000, 0, 5) >= 5000;
		bytes += (size_t)i + 1 + 300 + 200 + 250 + 251 + 2 * (size_t)i + 10;
		je_free(b);
		je_sdallocx(d, 200, 5);
		if (i % 100)
			je_free(a);
		free(c);
	}
	printf("je_malloc %d\nbytes %zu\n%s\n", ROUNDS, bytes, wrong ? "wrong" : "right");
	return wrong != 0;
}
