/*
 * deep DEPTH STACKS CALLS: malloc and free below DEPTH recursive frames, through one of STACKS (a
 * power of two) different ways that all end at the same place and stack pointer. Prints
 * "ns N": its own processor time for a pair.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static __attribute__((noinline)) void *right(int depth, uint32_t way);

static __attribute__((noinline)) void *left(int depth, uint32_t way)
{
	void *p = !depth		   ? malloc(24)
		  : way >> (depth - 1) & 1 ? left(depth - 1, way)
					   : right(depth - 1, way);

	__asm__ volatile("" ::"r"(p));
	return p;
}

static __attribute__((noinline)) void *right(int depth, uint32_t way)
{
	void *p = !depth		   ? malloc(24)
		  : way >> (depth - 1) & 1 ? left(depth - 1, way)
					   : right(depth - 1, way);

	__asm__ volatile("" ::"r"(p));
	return p;
}

static double cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	int depth = argc > 1 ? atoi(argv[1]) : 8;
	uint32_t ways = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
	long calls = argc > 3 ? atol(argv[3]) : 1000000;
	double began = cpu_ns();

	for (long i = 0; i < calls; i++)
		free(left(depth, (uint32_t)i * 2654435761u >> 7 & (ways - 1)));
	printf("ns %.1f\n", (cpu_ns() - began) / (double)calls);
	return 0;
}
