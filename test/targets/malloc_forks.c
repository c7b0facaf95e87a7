/*
 * malloc_forks BLOCKS CHILDREN [CALLS]: makes blocks ("made"), and after a while forks children,
 * one after the other, that end at once and call nothing ("forked"); then it waits for SIGTERM.
 * With CALLS all children are there before one of them calls anything; each makes so many calls
 * then, the first of which frees a block of its parent, and ends before the next begins.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what)
{
	puts(what);
	fflush(stdout);
}

static void call(long calls, void *of_parent)
{
	free(of_parent);
	for (long i = 1; i < calls; i++)
		if (!malloc(50))
			_exit(1);
	_exit(0);
}

static int in_turn(long children, long calls, void *of_parent)
{
	int turns[2], status;
	char turn = 0;

	if (pipe(turns))
		return 1;
	for (long i = 0; i < children; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return 1;
		if (!pid && read(turns[0], &turn, 1) == 1)
			call(calls, of_parent);
		if (!pid)
			_exit(1);
	}
	say("forked");
	for (long i = 0; i < children; i++) {
		if (write(turns[1], &turn, 1) != 1 || wait(&status) < 0 || status)
			return 1;
		usleep(5000); /* child buffers are fewer than children */
	}
	say("right");
	return 0;
}

int main(int argc, char **argv)
{
	long blocks = argc > 1 ? atol(argv[1]) : 1000, children = argc > 2 ? atol(argv[2]) : 10;
	sigset_t term;
	void *block = NULL;
	int sig;

	alarm(120); /* should nobody send it */
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	for (long i = 0; i < blocks; i++)
		if (!(block = malloc(40)))
			return 1;
	say("made");
	if (argc > 3)
		return in_turn(children, atol(argv[3]), block);
	sleep(2);
	for (long i = 0; i < children; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		if (waitpid(pid, NULL, 0) != pid)
			return 1;
		usleep(20000);
	}
	say("forked");
	sigwait(&term, &sig);
	return 0;
}
