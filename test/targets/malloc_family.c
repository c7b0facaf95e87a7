/*
 * A program with threads that allocate, whose first thread forks: each child frees 300 blocks that
 * its parent made and has a child that frees 100 of those of its grandparent; none of them calls
 * malloc otherwise. Eight children, or with "run" until SIGTERM. Prints "pid N" and "right".
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 3
#define MINE 400

static atomic_int is_over;

static void on_term(int sig)
{
	(void)sig;
	is_over = 1;
}

static void *churn(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	void *blocks[200] = {0};

	while (!is_over) {
		int i = rand_r(&seed) % 200;

		free(blocks[i]);
		blocks[i] = malloc((size_t)rand_r(&seed) % 800);
		if (i % 32 == 0)
			usleep(500);
	}
	for (int i = 0; i < 200; i++)
		free(blocks[i]);
	return NULL;
}

/* In a child: frees mine[first, last). */
static void end(void **mine, int first, int last)
{
	for (int i = first; i < last; i++)
		free(mine[i]);
}

static int fork_one(void **mine)
{
	int status = 0;
	pid_t pid = fork(), grandchild;

	if (pid == 0) {
		end(mine, 0, 300);
		grandchild = fork();
		if (grandchild == 0) {
			end(mine, 300, MINE);
			_exit(4);
		}
		waitpid(grandchild, &status, 0);
		_exit(status == 4 << 8 ? 3 : 1);
	}
	return waitpid(pid, &status, 0) == pid && status == 3 << 8;
}

int main(int argc, char **argv)
{
	int runs = argc > 1 && !strcmp(argv[1], "run"), right = 1;
	pthread_t threads[THREADS];
	void *mine[MINE];

	signal(SIGTERM, on_term);
	for (int i = 0; i < MINE; i++)
		mine[i] = malloc(100 + (size_t)i);
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, churn, (void *)(i + 1)))
			return 1;
	printf("pid %d\n", getpid());
	fflush(stdout);
	for (int i = 0; runs ? !is_over : i < 8; i++) {
		right &= fork_one(mine);
		if (runs)
			usleep(20000);
	}
	is_over = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	puts(right ? "right" : "wrong");
	return !right;
}
