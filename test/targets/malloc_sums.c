/*
 * Calls every function of the malloc family so many times, keeps some blocks, and prints what it
 * has asked for: what other tools are to find too.
 *
 *   calls FUNCTION N          realloc_null, realloc_zero: of the reallocs
 *   peak BYTES                asked for, of the blocks that lived at once
 *   end BYTES BLOCKS          those that it keeps
 */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 2000
#define AT_ONCE 500
#define KEPT_EVERY 10
#define LARGE (3u << 20) /* of block 7, which is kept: glibc maps it by itself */

static char *blocks[BLOCKS];
static size_t sizes[BLOCKS];
static struct {
	const char *name;
	unsigned long n;
} calls[] = {{"malloc", 0},	  {"calloc", 0},	 {"realloc", 0},
	     {"realloc_null", 0}, {"realloc_zero", 0},	 {"reallocarray", 0},
	     {"free", 0},	  {"posix_memalign", 0}, {"memalign", 0}};
enum {
	MALLOC,
	CALLOC,
	REALLOC,
	REALLOC_NULL,
	REALLOC_ZERO,
	REALLOCARRAY,
	FREE,
	POSIX_MEMALIGN,
	MEMALIGN,
	CALLS
};
static size_t live, peak, kept;

static void has(int i, char *p, size_t size)
{
	if (!p)
		abort();
	live += size - sizes[i];
	peak = live > peak ? live : peak;
	blocks[i] = p;
	sizes[i] = size;
}

static void ends(int i)
{
	live -= sizes[i];
	blocks[i] = NULL;
	sizes[i] = 0;
}

static __attribute__((noinline)) void begin(int i, size_t size)
{
	void *p = NULL;

	switch (i % 8) {
	case 0:
	case 1:
	case 2:
		calls[MALLOC].n++;
		p = malloc(size);
		break;
	case 3:
		calls[CALLOC].n++;
		p = calloc(4, size / 4);
		size = size / 4 * 4;
		break;
	case 4:
		calls[REALLOC].n++;
		calls[REALLOC_NULL].n++;
		p = realloc(NULL, size);
		break;
	case 5:
		calls[POSIX_MEMALIGN].n++;
		if (posix_memalign(&p, 64, size))
			abort();
		break;
	case 6:
		calls[MEMALIGN].n++;
		p = memalign(256, size);
		break;
	default:
		calls[MALLOC].n++;
		p = malloc(i == 7 ? LARGE : size);
		size = i == 7 ? LARGE : size;
	}
	has(i, p, size);
}

static __attribute__((noinline)) void resize(int i)
{
	size_t size = sizes[i] * 2 + 8;

	if (i % 3) {
		calls[REALLOC].n++;
		has(i, realloc(blocks[i], size), size);
	} else {
		calls[REALLOCARRAY].n++;
		has(i, reallocarray(blocks[i], size / 8, 8), size / 8 * 8);
	}
}

/* realloc(p, 0) in the end only: heaptrack takes such blocks for living ones, until others come to
 * their addresses. */
static __attribute__((noinline)) void end(int i)
{
	if (i % 7 == 0 && i >= BLOCKS - AT_ONCE) {
		calls[REALLOC].n++;
		calls[REALLOC_ZERO].n++;
		if (realloc(blocks[i], 0))
			abort();
	} else {
		calls[FREE].n++;
		free(blocks[i]);
	}
	ends(i);
}

int main(void)
{
	static char text[1024];
	int n = 0;

	for (int i = 0; i < BLOCKS; i++) {
		begin(i, 16 + (size_t)i * 7 % 3000);
		if (i % 5 == 0)
			resize(i);
		if (i >= AT_ONCE && i != AT_ONCE + 7)
			end(i - AT_ONCE);
		if (i % 50 == 0) {
			calls[FREE].n++;
			free(NULL);
		}
	}
	for (int i = 0; i < BLOCKS; i++)
		if (blocks[i] && i % KEPT_EVERY && i != 7)
			end(i);
	for (int i = 0; i < BLOCKS; i++)
		kept += blocks[i] != NULL;
	for (int i = 0; i < CALLS; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "calls %s %lu\n", calls[i].name,
			      calls[i].n);
	n += snprintf(text + n, sizeof(text) - (size_t)n, "peak %zu\nend %zu %zu\n", peak, live,
		      kept);
	return write(1, text, (size_t)n) != n;
}
