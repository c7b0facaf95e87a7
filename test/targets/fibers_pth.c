/*
 * Threads of GNU Pth that know where they wait: COUNT of them in wait_here, for a message that
 * nobody sends. fibers_pth COUNT SIZE_KIB. Pth's scheduler is one more, and it runs: the process
 * waits in it. The first thread is Pth's, too, and waits on its own stack.
 * Prints "pid N waiting COUNT", then waits for the end of its input.
 */
#include <pth.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pth_mutex_t mutex = PTH_MUTEX_INIT;
static pth_cond_t cond = PTH_COND_INIT;

__attribute__((noinline)) static void wait_here(void)
{
	pth_mutex_acquire(&mutex, FALSE, NULL);
	pth_cond_await(&cond, &mutex, NULL);
	pth_mutex_release(&mutex);
}

static void *run(void *arg)
{
	wait_here();
	return arg;
}

int main(int argc, char **argv)
{
	int count = argc > 2 ? atoi(argv[1]) : 0;
	pth_attr_t attr;
	char byte;

	pth_init();
	attr = pth_attr_new();
	pth_attr_set(attr, PTH_ATTR_STACK_SIZE, (unsigned int)atoi(argv[2]) * 1024);
	for (int i = 0; i < count; i++)
		pth_spawn(attr, run, NULL);
	for (int i = 0; i < 3; i++)
		pth_yield(NULL);
	printf("pid %d waiting %d\n", (int)getpid(), count);
	fflush(stdout);
	while (pth_read(0, &byte, 1) > 0)
		;
	return 0;
}
