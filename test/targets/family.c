/*
 * A family whose members call labs in a known way.
 *
 *   family N       N children; child I calls labs(I) I times, every fourth runs `family leaf I`
 *                  in its place, every fourth forks a child of its own that calls labs(I) once;
 *                  then vfork runs `family leaf 0`. "calls C" at the end: of all labs together.
 *   family leaf I  calls labs(I) once
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long sink;

static void leaf(const char *self, int i)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", i);
	execl(self, self, "leaf", number, (char *)NULL);
	_exit(127);
}

static void child(const char *self, int i)
{
	for (int k = 0; k < i; k++)
		sink = labs(i);
	if (i % 4 == 1)
		leaf(self, i);
	if (i % 4 == 2 && fork() == 0) {
		sink = labs(i);
		_exit(0);
	}
	while (wait(NULL) > 0)
		;
	_exit(0);
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1;
	volatile long calls = 1;

	if (argc > 2) {
		sink = labs(atoi(argv[2]));
		return 0;
	}
	for (int i = 0; i < n; i++) {
		calls += i + (i % 4 == 1) + (i % 4 == 2);
		if (fork() == 0)
			child(argv[0], i);
	}
	while (wait(NULL) > 0)
		;
	if (vfork() == 0)
		leaf(argv[0], 0);
	while (wait(NULL) > 0)
		;
	printf("calls %ld\n", calls);
	return 0;
}
