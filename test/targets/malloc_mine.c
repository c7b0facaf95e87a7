/*
 * Linked statically, beside libc's malloc, are functions of the program's own that are called as
 * jemalloc's are and take other arguments. Prints "right" when all arrived.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 1000

static int wrong;

void *mallocx(size_t size, const char *file, long line, const char *why);
void *rallocx(void *p, size_t size, const char *file, long line, const char *why);
void dallocx(void *p, const char *file, long line, const char *why);

static void look(const char *file, long line, const char *why)
{
	wrong += strcmp(file, "mine.c") || line != 42 || strcmp(why, "why");
}

void *mallocx(size_t size, const char *file, long line, const char *why)
{
	look(file, line, why);
	return malloc(size);
}

void *rallocx(void *p, size_t size, const char *file, long line, const char *why)
{
	look(file, line, why);
	return realloc(p, size);
}

void dallocx(void *p, const char *file, long line, const char *why)
{
	look(file, line, why);
	free(p);
}

int main(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		char *p = mallocx(100, "mine.c", 42, "why");

		p = rallocx(p, 200, "mine.c", 42, "why");
		dallocx(p, "mine.c", 42, "why");
	}
	puts(wrong ? "wrong" : "right");
	return wrong != 0;
}
