/*
 * Asks the kernel in a known way: T threads, each N times getppid by its function and lseek on a
 * bad descriptor, beginning when a line comes.
 *
 *   asks T N    "pid P", after the line "asked T*N"; ends with its input
 *   asks T N family    at once, T children instead, a second one of each: without the function. The
 *                      first child has one too, and all but that one end after their parent
 *   asks T N relay     at once, T processes: each is made by the one before, which then ends
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

static void ask_kernel(void)
{
	for (long i = 0; i < times; i++)
		syscall(SYS_lseek, -7, 1000 + i, SEEK_CUR);
}

static int family(long children)
{
	pid_t parent = getpid();

	for (long i = 0; i < 2 * children; i++) {
		if (fork())
			continue;
		while (i && syscall(SYS_getppid) == parent)
			usleep(1000);
		if (i % 2)
			ask_kernel();
		else
			ask(NULL);
		if (i == 0 && fork() == 0)
			ask(NULL);
		_exit(0);
	}
	return 0;
}

static int relay(long processes)
{
	do
		ask_kernel();
	while (--processes > 0 && fork() == 0);
	_exit(0);
}

int main(int argc, char **argv)
{
	long threads = argc > 2 ? atol(argv[1]) : 1;
	pthread_t ids[64];

	times = argc > 2 ? atol(argv[2]) : 1;
	threads = threads > 64 ? 64 : threads;
	if (argc > 3)
		return argv[3][0] == 'r' ? relay(atol(argv[1])) : family(threads);
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
