/*
 * What a call costs: for each line of input, prints the least time of a call of pace_work in ns,
 * over CHUNKS of CALLS calls, and of a pair of clock readings (rdtsc). For bench/returns.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define CHUNKS 200
#define CALLS 10000

long pace_work(long a, long b);

__attribute__((noinline, noclone, noipa)) long pace_work(long a, long b)
{
	return (a ^ b) * 3 + (a >> 7);
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double chunk(void)
{
	double began = now_ns();
	volatile long sum = 0;
	long x = 1;

	for (int i = 0; i < CALLS; i++)
		x = pace_work(x, i);
	sum += x;
	(void)sum;
	return (now_ns() - began) / CALLS;
}

static double clocks(void)
{
	double began = now_ns();
	uint64_t x = 0;

	for (int i = 0; i < CALLS; i++) {
		x ^= __rdtsc();
		x ^= __rdtsc();
	}
	__asm__ volatile("" : : "r"(x));
	return (now_ns() - began) / CALLS;
}

int main(void)
{
	char line[64];

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", getpid());
	while (fgets(line, sizeof(line), stdin)) {
		double call = 1e9, clock = 1e9, x;

		for (int i = 0; i < CHUNKS; i++) {
			x = chunk();
			call = x < call ? x : call;
			x = clocks();
			clock = x < clock ? x : clock;
		}
		printf("call %.2f clocks %.2f\n", call, clock);
	}
	return 0;
}
