/* Holds a process by ptrace without stopping it, until its stdin closes or SIGTERM: what a debugger
 * looks like to a second one.
 *
 *   tracer PID
 *
 * Prints "tracing PID". */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	pid_t pid = argc > 1 ? (pid_t)atol(argv[1]) : 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (pid <= 0 || ptrace(PTRACE_SEIZE, pid, 0, 0) < 0) {
		perror("tracer");
		return 1;
	}
	printf("tracing %d\n", pid);
	pause();
	return 0;
}
