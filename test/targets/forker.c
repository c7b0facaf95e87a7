/* Makes children all the time: fork whose child computes through hooked functions, vfork and exec
 * of true, posix_spawn, and threads that run meanwhile.
 *
 *   forker [ROUNDS]     0 (the default): until SIGTERM
 *
 * Prints "pid N", an "ok N" line per round; exit 0 if every child came back right. */
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libwork.h"

static volatile sig_atomic_t stop;
static uint64_t expected;
extern char **environ;

static void on_term(int sig)
{
	stop = 1;
}

static uint64_t compute(int rounds)
{
	uint64_t values[16];
	uint64_t sum = 0;

	for (int r = 0; r < rounds; r++) {
		for (int i = 0; i < 16; i++)
			values[i] = (uint64_t)r * 31 + (uint64_t)i;
		sum = work_mix(sum, work_fold(values, 16));
	}
	return sum;
}

static int ended(pid_t pid, const char *what)
{
	int status = 0;

	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		printf("wrong: %s: no child\n", what);
		return 1;
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		printf("wrong: %s: wait status %#x\n", what, status);
		return 1;
	}
	return 0;
}

static int by_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(compute(2000) == expected ? 0 : 1);
	return ended(pid, "fork");
}

static int by_vfork(void)
{
	static char *const argv[] = {"true", NULL};
	pid_t pid = vfork();

	if (pid == 0) {
		execv("/bin/true", argv);
		_exit(127);
	}
	return ended(pid, "vfork");
}

static int by_spawn(void)
{
	static char *const argv[] = {"true", NULL};
	pid_t pid;

	if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) != 0) {
		printf("wrong: posix_spawn\n");
		return 1;
	}
	return ended(pid, "posix_spawn");
}

static void *meanwhile(void *arg)
{
	while (!stop)
		if (compute(2000) != expected) {
			printf("wrong: thread\n");
			_exit(1);
		}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 0;
	struct sigaction action = {.sa_handler = on_term, .sa_flags = SA_RESTART};
	unsigned long done = 0;
	pthread_t thread;

	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGTERM, &action, NULL);
	expected = compute(2000);
	printf("pid %d\n", getpid());
	if (pthread_create(&thread, NULL, meanwhile, NULL) != 0)
		return 2;
	while (!stop && (rounds == 0 || done < rounds)) {
		if (by_fork() || by_vfork() || by_spawn())
			return 1;
		printf("ok %lu\n", ++done);
		usleep(1000);
	}
	stop = 1;
	pthread_join(thread, NULL);
	return 0;
}
