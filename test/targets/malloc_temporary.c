/*
 * Makes temporary blocks, and others, and says how many: blocks that the thread which made them
 * frees or resizes before it makes another.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { TEMPORARY = 500, OF_THREAD = 1000, PAIRS = 700, GROWN = 300, STEPS = 5, HANDED = 200 };

static void *volatile kept[GROWN];
static void *volatile handed;
static pthread_barrier_t barrier;

static void temporary(int count)
{
	while (count--) {
		void *volatile block = malloc(100);

		free(block);
	}
}

/* Of each pair the second one is the newest when it is freed. */
static void pairs(void)
{
	for (int i = 0; i < PAIRS; i++) {
		void *volatile first = malloc(10), *volatile second = malloc(3000);

		free(first);
		free(second);
	}
}

/* What is resized is temporary, but for the last one, which stays. */
static void grows(void)
{
	for (int i = 0; i < GROWN; i++) {
		char *volatile block = malloc(10);

		for (int step = 0; step < STEPS; step++)
			block = realloc(block, 20u << step);
		kept[i] = block;
	}
}

/* Freed by another thread: never temporary. */
static void hands_over(void)
{
	for (int i = 0; i < HANDED; i++) {
		handed = malloc(64);
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
	}
}

static void *run(void *arg)
{
	(void)arg;
	for (int i = 0; i < HANDED; i++) {
		pthread_barrier_wait(&barrier);
		free(handed);
		pthread_barrier_wait(&barrier);
	}
	temporary(OF_THREAD);
	return NULL;
}

/* An argument: so many more are temporary, and so many more KiB are kept. */
int main(int argc, char **argv)
{
	const int more = argc > 1 ? atoi(argv[1]) : 0;
	void *volatile keep;

	pthread_t thread;

	setvbuf(stdout, NULL, _IONBF, 0); /* no block of its own */
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, run, NULL);
	hands_over();
	pthread_join(thread, NULL);
	keep = more ? malloc((size_t)more << 10) : NULL;
	temporary(TEMPORARY + more);
	pairs();
	grows();
	free(malloc(1)); /* nobody's newest is among those that are freed now */
	for (int i = 0; i < GROWN; i++)
		free(kept[i]);
	free(keep);
	printf("temporary %d\npairs %d\ngrows %d\nhands_over 0\n", TEMPORARY + more + OF_THREAD,
	       PAIRS, GROWN * STEPS);
	return 0;
}
