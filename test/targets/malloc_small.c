/*
 * A constructor and main, some calls of malloc, realloc and free, whichever libc it is linked with:
 * prints how many, and its own answer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 1000

static int wrong;

__attribute__((constructor)) static void before_main(void)
{
	free(malloc(500));
}

int main(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		char *p = malloc((size_t)i + 16);

		memset(p, i & 0x7f, 16);
		p = realloc(p, 2 * (size_t)i + 32);
		wrong += p[15] != (i & 0x7f);
		free(p);
	}
	printf("known malloc %d\nknown realloc %d\nknown free %d\n%s\n", ROUNDS + 1, ROUNDS,
	       ROUNDS + 1, wrong ? "wrong" : "right");
	return 3;
}
