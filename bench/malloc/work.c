/*
 * Calls malloc and free: work one|paced|many CALLS. one: in a tight loop; paced: some 10 million a
 * second, with work between; many: four threads, which mostly free each other's blocks.
 * Prints "cpu SECONDS calls N", all of the process's own processor time.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BOXES 4096
#define WORKERS 4

static _Atomic(void *) boxes[BOXES];
static unsigned long calls;
static int think;
static volatile uint64_t sink;

static inline unsigned int next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return (unsigned int)(*seed >> 20);
}

static void *one(void *arg)
{
	uint64_t seed = 88172645463325252ull, sum = 0;
	static void *mine[BOXES];

	(void)arg;
	for (unsigned long i = 0; i < calls / 2; i++) {
		unsigned int at = next(&seed) % BOXES;
		size_t size = 16 + next(&seed) % 256;

		free(mine[at]);
		mine[at] = malloc(size);
		*(uint64_t *)mine[at] = i;
		for (int k = 0; k < think; k++)
			sum = sum * 6364136223846793005ull + seed;
	}
	sink = sum;
	return NULL;
}

static void *worker(void *arg)
{
	uint64_t seed = 88172645463325252ull + 977 * (uintptr_t)arg, sum = 0;

	for (unsigned long i = 0; i < calls / 2 / WORKERS; i++) {
		_Atomic(void *) *box = &boxes[next(&seed) % BOXES];
		uint64_t *p = malloc(16 + next(&seed) % 256);

		*p = i;
		free(atomic_exchange_explicit(box, p, memory_order_acq_rel));
		for (int k = 0; k < 16; k++)
			sum = sum * 6364136223846793005ull + seed;
	}
	sink = sum;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[WORKERS];
	struct timespec t;

	if (argc < 3)
		return 2;
	calls = strtoul(argv[2], NULL, 10);
	think = strcmp(argv[1], "paced") == 0 ? 200 : 0;
	if (strcmp(argv[1], "many") != 0) {
		one(NULL);
	} else {
		for (uintptr_t i = 0; i < WORKERS; i++)
			pthread_create(&threads[i], NULL, worker, (void *)i);
		for (int i = 0; i < WORKERS; i++)
			pthread_join(threads[i], NULL);
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	printf("cpu %.6f calls %lu\n", (double)t.tv_sec + (double)t.tv_nsec / 1e9, calls);
	return 0;
}
