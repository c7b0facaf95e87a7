/* Threads that compute all the time through functions that a hook may change.
 *
 *   busy [THREADS [ROUNDS]]     ROUNDS 0 (the default): until SIGTERM
 *
 * Each thread takes checksums through exported functions of this program and, through the PLT, of
 * libwork, and compares each with one computed by code that nobody hooks. A "round N" line comes
 * every half a second; the last line is "checksum X rounds N". Exit 0: every round was right. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libwork.h"

#define THREADS_MAX 256
#define VALUES 32

static atomic_ulong rounds_done;
static atomic_ulong wrong;
static atomic_ullong checksum;
static volatile sig_atomic_t stop;
static unsigned long rounds_wanted;

uint64_t busy_scale(uint64_t value, uint64_t by);
uint64_t busy_six(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
		  uint64_t g);
double busy_float(double a, double b);

HOOKABLE(busy_scale);
BODY uint64_t busy_scale_body(uint64_t value, uint64_t by);
BODY uint64_t busy_scale_body(uint64_t value, uint64_t by)
{
	return value * by + 1;
}

/* Six arguments in registers and one on the stack. */
HOOKABLE(busy_six);
BODY uint64_t busy_six_body(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
			    uint64_t g);
BODY uint64_t busy_six_body(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
			    uint64_t g)
{
	return a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f + 13 * g;
}

/* Arguments and result in vector registers. */
HOOKABLE(busy_float);
BODY double busy_float_body(double a, double b);
BODY double busy_float_body(double a, double b)
{
	return a * 0.5 + b;
}

static uint64_t round_hooked(uint64_t seed)
{
	uint64_t values[VALUES];
	uint64_t sum;

	for (int i = 0; i < VALUES; i++)
		values[i] = busy_scale(seed, (uint64_t)i + 3);
	sum = work_fold(values, VALUES);
	sum = work_mix(sum, busy_six(seed, 1, 2, 3, 4, 5, sum));
	return sum + (uint64_t)busy_float((double)(seed & 0xffff), 7);
}

/* The same, by nobody's leave. */
static inline __attribute__((always_inline)) uint64_t plain_mix(uint64_t sum, uint64_t value)
{
	sum ^= value + 0x9e3779b97f4a7c15ull + (sum << 6) + (sum >> 2);
	return sum * 0xff51afd7ed558ccdull;
}

static uint64_t round_plain(uint64_t seed)
{
	uint64_t sum = 0;

	for (int i = 0; i < VALUES; i++)
		sum = plain_mix(sum, seed * ((uint64_t)i + 3) + 1);
	sum = plain_mix(sum, seed + 2 + 6 + 15 + 28 + 55 + 13 * sum);
	return sum + (uint64_t)((double)(seed & 0xffff) * 0.5 + 7);
}

static void *compute(void *arg)
{
	uint64_t seed = (uint64_t)(uintptr_t)arg * 0x9e3779b97f4a7c15ull + 1;
	unsigned long mine = 0;

	while (!stop && (rounds_wanted == 0 || mine < rounds_wanted)) {
		uint64_t got = round_hooked(seed);

		if (got != round_plain(seed))
			atomic_fetch_add(&wrong, 1);
		atomic_fetch_xor(&checksum, got);
		atomic_fetch_add(&rounds_done, 1);
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		mine++;
	}
	return NULL;
}

static void on_term(int sig)
{
	stop = 1;
}

static void progress(pthread_t *threads, int count)
{
	for (int i = 0; i < count; i++) {
		struct timespec half;

		for (;;) {
			clock_gettime(CLOCK_REALTIME, &half);
			half.tv_nsec += 500000000;
			half.tv_sec += half.tv_nsec / 1000000000;
			half.tv_nsec %= 1000000000;
			if (pthread_timedjoin_np(threads[i], NULL, &half) == 0)
				break;
			printf("round %lu\n", atomic_load(&rounds_done));
		}
	}
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 4;
	struct sigaction action = {.sa_handler = on_term};
	pthread_t threads[THREADS_MAX];

	if (count < 1 || count > THREADS_MAX) {
		fprintf(stderr, "busy: threads must be 1 to %d\n", THREADS_MAX);
		return 2;
	}
	rounds_wanted = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGTERM, &action, NULL);
	printf("pid %d\n", getpid());
	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, compute, (void *)(uintptr_t)(i + 1)) != 0)
			return 2;
	progress(threads, count);
	printf("checksum %016llx rounds %lu wrong %lu\n", atomic_load(&checksum),
	       atomic_load(&rounds_done), atomic_load(&wrong));
	return atomic_load(&wrong) == 0 ? 0 : 1;
}
