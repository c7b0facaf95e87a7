/*
 * A tracer that skips calls of its child: at the entry it gives them the number -1 and a result of
 * its own. The child makes N times getppid, of which each second one is skipped, and takes N
 * signals, from whose handlers it returns. Prints the child's pid, goes on when a byte can be read,
 * and prints "skipped N".
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static void handle(int signal)
{
}

static int child(long n)
{
	char byte;

	ptrace(PTRACE_TRACEME, 0, 0, 0);
	signal(SIGUSR1, handle);
	raise(SIGSTOP);
	if (read(0, &byte, 1) != 1)
		return 1;
	for (long i = 0; i < n; i++) {
		getppid();
		syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const long n = argc > 1 ? atol(argv[1]) : 100;
	const pid_t pid = fork();
	long seen = 0, skipped = 0;
	int is_entry = 1, status, pass = 0;

	if (!pid)
		_exit(child(n));
	waitpid(pid, &status, 0);
	ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
	printf("pid %d\n", (int)pid);
	fflush(stdout);
	while (ptrace(PTRACE_SYSCALL, pid, 0, pass) == 0 && waitpid(pid, &status, 0) == pid &&
	       WIFSTOPPED(status)) {
		struct user_regs_struct regs;

		pass = WSTOPSIG(status) == (SIGTRAP | 0x80) || WSTOPSIG(status) == SIGTRAP
			       ? 0
			       : WSTOPSIG(status);
		if (WSTOPSIG(status) != (SIGTRAP | 0x80))
			continue;
		ptrace(PTRACE_GETREGS, pid, 0, &regs);
		if (is_entry && regs.orig_rax == SYS_getppid && seen++ & 1) {
			regs.orig_rax = (unsigned long long)-1;
			regs.rax = 4711; /* and some have an error for a result */
			if (skipped & 1)
				regs.rax = (unsigned long long)-EBADF;
			ptrace(PTRACE_SETREGS, pid, 0, &regs);
			skipped++;
		}
		is_entry = !is_entry;
	}
	printf("skipped %ld\n", skipped);
	return !WIFEXITED(status) || WEXITSTATUS(status);
}
