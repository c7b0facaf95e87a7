/* Many threads that work a little and sleep a little, as a server's do: crowd [THREADS].
 * Prints "pid N"; ends by SIGTERM with status 0. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "libwork.h"

static void *works(void *number)
{
	const struct timespec nap = {.tv_nsec = 50000000 + (long)(uintptr_t)number * 10000};
	const uint64_t values[4] = {1, 2, 3, 4};

	for (;;) {
		for (int i = 0; i < 100; i++)
			work_fold(values, 4);
		nanosleep(&nap, NULL);
	}
	return NULL;
}

static void ends(int signal)
{
	(void)signal;
	_exit(0);
}

int main(int argc, char **argv)
{
	long count = argc > 1 ? strtol(argv[1], NULL, 10) : 200;
	pthread_t thread;

	signal(SIGTERM, ends);
	for (uintptr_t i = 1; i < (uintptr_t)count; i++)
		if (pthread_create(&thread, NULL, works, (void *)i))
			return 2;
	printf("pid %d\n", getpid());
	fflush(stdout);
	works(NULL);
	return 0;
}
