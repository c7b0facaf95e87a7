/*
 * malloc_forks BLOCKS CHILDREN: makes blocks ("made"), and after a while forks children, one after
 * the other, that end at once and call nothing ("forked"); then it waits for SIGTERM.
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

int main(int argc, char **argv)
{
	long blocks = argc > 1 ? atol(argv[1]) : 1000, children = argc > 2 ? atol(argv[2]) : 10;
	sigset_t term;
	int sig;

	alarm(120); /* should nobody send it */
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	for (long i = 0; i < blocks; i++)
		if (!malloc(40))
			return 1;
	say("made");
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
