/*
 * Asks the kernel in a known way: T threads, each N times getppid by its function and lseek on a
 * bad descriptor, beginning when a line comes.
 *
 *   asks T N    "pid P", after the line "asked T*N"; ends with its input
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static long times;

static void *ask(void *arg)
{
	for (long i = 0; i < times; i++) {
		getppid();
		syscall(SYS_lseek, -7, 1000 + i, SEEK_CUR);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = argc > 2 ? atol(argv[1]) : 1;
	pthread_t ids[64];

	times = argc > 2 ? atol(argv[2]) : 1;
	threads = threads > 64 ? 64 : threads;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", getpid());
	for (int c; (c = getchar()) != EOF;) {
		if (c != '\n')
			continue;
		for (long t = 0; t < threads; t++)
			pthread_create(&ids[t], NULL, ask, NULL);
		for (long t = 0; t < threads; t++)
			pthread_join(ids[t], NULL);
		printf("asked %ld\n", threads * times);
	}
	return 0;
}
