/*
 * Functions that are traced, called in a known way.
 *
 *   traced THREADS ROUNDS [MORE]
 *
 * "pid N", then after each line on stdin all threads call traced_sum(THREAD, I, THREAD ^ I) for I
 * below ROUNDS, which calls traced_inner(I) when I is a multiple of 4, and check what they get:
 * "round R sum S wrong W". Ends with its input; with MORE at once, after so many rounds.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HOOKED __attribute__((noinline, noclone, noipa))

static long rounds;
static atomic_long sum, wrong;

int traced_inner(int i);
long traced_sum(long thread, long i, long both);

HOOKED int traced_inner(int i)
{
	return -i;
}

HOOKED long traced_sum(long thread, long i, long both)
{
	return thread * 1000003 + i * 7 + both + (i % 4 ? 0 : traced_inner((int)i));
}

static void *work(void *arg)
{
	long thread = (long)arg, all = 0, bad = 0;

	for (long i = 0; i < rounds; i++) {
		long got = traced_sum(thread, i, thread ^ i);

		bad += got != thread * 1000003 + i * 7 + (thread ^ i) - (i % 4 ? 0 : i);
		all += got;
	}
	atomic_fetch_add(&sum, all);
	atomic_fetch_add(&wrong, bad);
	return NULL;
}

static void do_round(int n, long threads)
{
	pthread_t ids[64];

	atomic_store(&sum, 0);
	for (long t = 0; t < threads; t++)
		pthread_create(&ids[t], NULL, work, (void *)t);
	for (long t = 0; t < threads; t++)
		pthread_join(ids[t], NULL);
	printf("round %d sum %ld wrong %ld\n", n, atomic_load(&sum), atomic_load(&wrong));
}

int main(int argc, char **argv)
{
	long threads = argc > 1 ? atol(argv[1]) : 1;
	int n = 0;

	rounds = argc > 2 ? atol(argv[2]) : 1;
	threads = threads > 64 ? 64 : threads;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", getpid());
	if (argc > 3)
		for (int more = atoi(argv[3]); n < more;)
			do_round(++n, threads);
	else
		for (int c; (c = getchar()) != EOF;)
			if (c == '\n')
				do_round(++n, threads);
	return atomic_load(&wrong) != 0;
}
