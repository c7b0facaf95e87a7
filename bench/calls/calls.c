/*
 * Calls one function in a loop and says what a call costs. For each line "plt N" or "direct N" on
 * stdin: 25 chunks of N calls, through the PLT or to a function of this program; answers with the
 * least and the median of the chunks' ns per call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHUNKS 25

unsigned long callee(unsigned long x);
unsigned long callee_inside(unsigned long x);

__attribute__((noinline, noclone)) unsigned long callee_inside(unsigned long x)
{
	__asm__ volatile("");
	return x * 3 + 1;
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static volatile unsigned long sink;

static double chunk(int plt, unsigned long n)
{
	double began = now_ns();
	unsigned long x = 1;

	if (plt)
		for (unsigned long i = 0; i < n; i++)
			x = callee(x);
	else
		for (unsigned long i = 0; i < n; i++)
			x = callee_inside(x);
	sink = x;
	return (now_ns() - began) / (double)n;
}

int main(void)
{
	double ns[CHUNKS];
	unsigned long n;
	char how[16];

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", getpid());
	while (scanf("%15s %lu", how, &n) == 2) {
		for (int i = 0; i < CHUNKS; i++)
			ns[i] = chunk(!strcmp(how, "plt"), n);
		qsort(ns, CHUNKS, sizeof(*ns), by_value);
		printf("%.3f %.3f\n", ns[0], ns[CHUNKS / 2]);
	}
	return 0;
}
