/* Threads of the kernel: each sleeps on a word of its own until the one before wakes it. */
#include "ring.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct word {
	_Alignas(64) _Atomic int has_token;
} words[RING_THREADS + 1];

static void give(long to)
{
	atomic_store(&words[to].has_token, 1);
	syscall(SYS_futex, &words[to].has_token, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void await(long me)
{
	while (!atomic_load(&words[me].has_token))
		syscall(SYS_futex, &words[me].has_token, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	atomic_store(&words[me].has_token, 0);
}

static void body(long me)
{
	for (;;) {
		await(me);
		if (ring.left > 0) {
			ring.left--;
			give((me + 1) % ring.threads);
		} else {
			give(RING_THREADS);
		}
	}
}

static void *begin(void *me)
{
	ring_grow(ring.frames, body, (long)me);
	return NULL;
}

static void start(void)
{
	give(0);
	await(RING_THREADS);
}

void ring_futex(void)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, RING_STACK);
	for (long i = 0; i < ring.threads; i++) {
		pthread_t thread;

		if (pthread_create(&thread, &attr, begin, (void *)i) != 0)
			abort();
	}
	ring_time(start);
}
