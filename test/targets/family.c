/*
 * A family whose members call labs in a known way.
 *
 *   family N       N children; child I calls labs(I) I times, every fourth runs `family leaf I`
 *                  in its place, every fourth forks a child of its own that calls labs(I) once;
 *                  then vfork runs `family leaf 0`. "calls C" at the end: of all labs together.
 *   family leaf I  calls labs(I) once
 *   family stay N  "pid P", then one line "child P" for each of N children, which call labs without
 *                  end and check it; a line more forks two more; at the end of its input they are
 *                  ended: "stayed right", or "wrong" if one had come to another end
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STAY_MAX 64

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

static pid_t staying(int i)
{
	pid_t parent = getpid(), pid = fork();
	volatile int same = i;

	while (!pid) {
		if (getppid() != parent)
			_exit(1);
		sink = labs(-same);
		if (sink != i)
			abort();
		usleep(200);
	}
	printf("child %d\n", pid);
	return pid;
}

static int stay(int n)
{
	pid_t children[STAY_MAX];
	int count = 0, status, wrong = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", getpid());
	while (count < n && count < STAY_MAX - 2)
		children[count] = staying(count), count++;
	for (int c; (c = getchar()) != EOF && count < STAY_MAX - 2;)
		for (int i = 0; i < 2 && c == '\n'; i++)
			children[count] = staying(count), count++;
	for (int i = 0; i < count; i++)
		kill(children[i], SIGTERM);
	for (int i = 0; i < count; i++)
		wrong += waitpid(children[i], &status, 0) < 0 || !WIFSIGNALED(status) ||
			 WTERMSIG(status) != SIGTERM;
	puts(wrong ? "wrong" : "stayed right");
	return wrong;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1;
	volatile long calls = 1;

	if (argc > 2 && strcmp(argv[1], "stay") == 0)
		return stay(atoi(argv[2]));
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
