/*
 * A pool of blocks that come and go, all alike, and beside it a leak or none: what a report says of
 * it is known. malloc_leak SECONDS FROM [exit|main]: the leak begins after FROM seconds; FROM at or
 * behind SECONDS: none. It prints the bytes that leaked in a second. With `exit` all is freed by
 * atexit, with `main` by main.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCKS 4000
#define LEAKED 3000 /* bytes, each turn */
#define TURN_US 10000
#define TURNS_MAX 100000

static char *volatile pool[BLOCKS];
static char *volatile leaked[TURNS_MAX];
static unsigned int leaks_begun;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((noinline)) static char *pooled(size_t size)
{
	char *p = malloc(size);

	return memset(p, 1, size);
}

__attribute__((noinline)) static char *leaks(size_t size)
{
	char *p = malloc(size);

	return memset(p, 1, size);
}

static void clear_up(void)
{
	for (int i = 0; i < BLOCKS; i++)
		free(pool[i]);
	for (unsigned int i = 0; i < leaks_begun; i++)
		free(leaked[i]);
}

int main(int argc, char **argv)
{
	const double seconds = argc > 2 ? atof(argv[1]) : 2, from = argc > 2 ? atof(argv[2]) : 0,
		     start = now();
	unsigned int seed = 7;
	double begun = 0, t;
	size_t bytes = 0;

	if (argc > 3 && !strcmp(argv[3], "exit"))
		atexit(clear_up);
	while ((t = now() - start) < seconds) {
		for (int i = 0; i < 400; i++) {
			seed = seed * 1103515245 + 12345;
			free(pool[(seed >> 8) % BLOCKS]);
			pool[(seed >> 8) % BLOCKS] =
				seed >> 4 & 3 ? pooled(100 + (seed >> 16) % 2000) : NULL;
		}
		if (t >= from && leaks_begun < TURNS_MAX) {
			begun = begun ? begun : t;
			leaked[leaks_begun++] = leaks(LEAKED);
			bytes += LEAKED;
		}
		usleep(TURN_US);
	}
	printf("leaked %.0f\n", begun ? (double)bytes / (t - begun) : 0);
	if (argc > 3 && !strcmp(argv[3], "main"))
		clear_up();
	return 0;
}
