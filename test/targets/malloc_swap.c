/* Threads that hand over each block at once: the next moment another one frees it.
 *
 * malloc_swap THREADS BLOCKS [OWN]     each makes so many blocks, and before each up to OWN that it
 * frees itself: so one thread records alone for a while, and then another one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#define THREADS_MAX 64
#define BOXES 4

static _Atomic(void *) boxes[BOXES];
static long blocks, own;

static void *swap(void *arg)
{
	uint32_t random = (uint32_t)(uintptr_t)arg * 7919 + 1;

	for (long i = 0; i < blocks; i++) {
		random = random * 1103515245 + 12345;
		for (long k = own ? (random >> 16) % own : 0; k; k--) {
			void *volatile mine = malloc(40);

			free(mine);
		}
		free(atomic_exchange(&boxes[random >> 16 & (BOXES - 1)],
				     malloc(24 + (random >> 20 & 63))));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS_MAX];
	long count = argc > 2 ? strtol(argv[1], NULL, 10) : 0;

	if (count < 1 || count > THREADS_MAX)
		return 2;
	blocks = strtol(argv[2], NULL, 10);
	own = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
	for (long i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, swap, (void *)i))
			return 1;
	for (long i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < BOXES; i++)
		free(boxes[i]);
	return 0;
}
