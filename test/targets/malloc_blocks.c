/*
 * A program that knows its blocks: threads make, resize and free blocks of all sizes, some of them
 * those of others, then stand still. Prints "pid N", and "table ADDRESS COUNT": rows of {address,
 * size}, size 0: freed; and "held BYTES", what malloc says that it has from the kernel. With the
 * argument "pieces" something else moves the break in between. Ends when its input does.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS 6
#define ROWS 60000

struct row {
	void *address;
	size_t size;
};
static struct row *rows;
static pthread_barrier_t barrier;
static int in_pieces;

static size_t pick(unsigned int *seed)
{
	int kind = rand_r(seed) % 1000;

	if (kind < 900)
		return (size_t)rand_r(seed) % 700;
	if (kind < 997)
		return (size_t)rand_r(seed) % 20000;
	return (size_t)rand_r(seed) % 2000000; /* some are mappings of their own */
}

static void make(struct row *r, unsigned int *seed)
{
	r->size = pick(seed) + 1;
	r->address = rand_r(seed) % 20 ? malloc(r->size) : aligned_alloc(64, r->size | 63);
	if (!r->address)
		abort();
	memset(r->address, 0x5a, r->size);
}

static void show(void)
{
	struct mallinfo2 all;
	char c;

	printf("pid %d\n", getpid());
	fflush(stdout);
	all = mallinfo2();
	printf("table %p %d held %zu\n", (void *)rows, ROWS, all.arena + all.hblkhd);
	fflush(stdout);
	while (read(0, &c, 1) > 0) /* getchar would allocate */
		;
}

static void *work(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	struct row *mine = rows + (uintptr_t)arg * (ROWS / THREADS);
	struct row *others = rows + ((uintptr_t)arg + 1) % THREADS * (ROWS / THREADS);

	for (int i = 0; i < ROWS / THREADS; i++) {
		make(&mine[i], &seed);
		if (in_pieces && !arg && i % 1000 == 0 && sbrk(8192) == (void *)-1)
			abort();
	}
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < ROWS / THREADS; i += 1 + rand_r(&seed) % 3) {
		free(others[i].address);
		others[i].size = 0;
	}
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < ROWS / THREADS; i += 1 + rand_r(&seed) % 5) {
		size_t size = pick(&seed) + 1;

		if (!mine[i].size) {
			make(&mine[i], &seed);
			continue;
		}
		mine[i].address = realloc(mine[i].address, size);
		mine[i].size = size;
	}
	pthread_barrier_wait(&barrier);
	if (!arg)
		show();
	pthread_barrier_wait(&barrier); /* those who have a cache live until the end */
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];

	in_pieces = argc > 1 && !strcmp(argv[1], "pieces");
	rows = mmap(NULL, ROWS * sizeof(*rows), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	if (rows == MAP_FAILED || pthread_barrier_init(&barrier, NULL, THREADS))
		return 1;
	for (uintptr_t i = 1; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)i))
			return 1;
	work((void *)0);
	for (uintptr_t i = 1; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
