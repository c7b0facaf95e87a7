/*
 * Threads fill an arena each, one after the other, and free what was in it but for the last block;
 * all of them live. Says how many arenas malloc has then, by its own count.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8, BLOCKS = 8000, BYTES = 1000 };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t begin, end;
static void *blocks[BLOCKS];

static void *run(void *arg)
{
	(void)arg;
	pthread_barrier_wait(&begin);
	pthread_mutex_lock(&turn);
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = memset(malloc(BYTES), 1, BYTES);
	for (int i = 0; i < BLOCKS - 1; i++)
		free(blocks[i]);
	usleep(20000);
	pthread_mutex_unlock(&turn);
	pthread_barrier_wait(&end);
	pthread_barrier_wait(&end);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	char line[4096];
	int arenas = 0;
	FILE *file = tmpfile();

	pthread_barrier_init(&begin, NULL, THREADS);
	pthread_barrier_init(&end, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, run, NULL);
	pthread_barrier_wait(&end); /* all have had their turn */
	usleep(300000);
	malloc_info(0, file);
	rewind(file);
	while (fgets(line, sizeof(line), file))
		arenas += strstr(line, "<heap nr=") != NULL;
	printf("arenas %d\n", arenas);
	pthread_barrier_wait(&end);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
