/* Kills scry at an exact place: runs a command of scry under ptrace, finds its keeper (the first
 * process the front forks) and, at the keeper's Nth syscall stop (entry and exit each count one),
 * sends SIGKILL.
 *
 *   killer front|keeper|both N -- scry ARGS...      N 0: kill nobody, only count
 *
 * Syscalls by which the keeper only waits are not counted: how many there are depends on the
 * machine's load, and the world is the same before and after them. So N means much the same place
 * in every run.
 *
 * Says on stderr "killer: keeper PID", then "killer: killed at N (syscall NR)" or, when the keeper
 * ended before, "killer: stops N"; at last "killer: front ended S", S as a shell says it. Exit 0:
 * killed; 1: N was not reached; 2: it could not work. A tracer may be traced itself: the keeper
 * holds its target as usual meanwhile. Processes the keeper or the front start besides are let
 * go. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SYSCALL_STOP (SIGTRAP | 0x80)

static pid_t front, keeper, early;
static int kill_front, kill_keeper;
static unsigned long wanted, stops;
static long long nr = -1; /* of the keeper's syscall */
static int is_killed, front_status = -1;

static int failed(const char *what)
{
	fprintf(stderr, "killer: %s: %s\n", what, strerror(errno));
	if (keeper)
		kill(keeper, SIGKILL);
	if (front)
		kill(front, SIGKILL);
	return 2;
}

static void start_front(char **argv)
{
	front = fork();
	if (front == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execvp(argv[0], argv);
		_exit(127);
	}
}

/* A process was forked by the front: the first is the keeper, others are none of our business. */
static void on_fork(void)
{
	unsigned long message = 0;
	pid_t child;
	int status;

	if (ptrace(PTRACE_GETEVENTMSG, front, 0, &message) < 0)
		return;
	child = (pid_t)message;
	if (early != child && waitpid(child, &status, __WALL) != child)
		return;
	early = 0;
	if (keeper) {
		ptrace(PTRACE_DETACH, child, 0, 0);
		return;
	}
	keeper = child;
	fprintf(stderr, "killer: keeper %d\n", keeper);
	/* Not its forks: only its syscalls. */
	ptrace(PTRACE_SETOPTIONS, keeper, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
	ptrace(PTRACE_SYSCALL, keeper, 0, 0);
}

static void do_kill(void)
{
	fprintf(stderr, "killer: killed at %lu (syscall %lld)\n", stops, nr);
	is_killed = 1;
	if (kill_front)
		kill(front, SIGKILL);
	if (kill_keeper) {
		kill(keeper, SIGKILL);
	} else {
		ptrace(PTRACE_DETACH, keeper, 0, 0);
		keeper = -1;
	}
}

static int only_waits(void)
{
	static const long long waits[] = {SYS_wait4,	       SYS_nanosleep, SYS_clock_nanosleep,
					  SYS_restart_syscall, SYS_poll,      SYS_recvfrom};

	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
		if (nr == waits[i])
			return 1;
	return 0;
}

/* A stop at a syscall that counts. */
static int is_counted(void)
{
	struct __ptrace_syscall_info info = {0};

	if (ptrace(PTRACE_GET_SYSCALL_INFO, keeper, sizeof(info), &info) < 0)
		return 0;
	if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
		nr = (long long)info.entry.nr;
	return !only_waits();
}

static void on_keeper(int status)
{
	int signal = 0;

	if (WIFEXITED(status) || WIFSIGNALED(status)) {
		keeper = -1;
		return;
	}
	if (WSTOPSIG(status) == SYSCALL_STOP) {
		if (is_counted() && ++stops == wanted) {
			do_kill();
			if (keeper < 0 || kill_keeper)
				return;
		}
	} else if (status >> 16 == 0) {
		signal = WSTOPSIG(status);
	}
	ptrace(PTRACE_SYSCALL, keeper, 0, signal);
}

static void on_front(int status)
{
	if (WIFEXITED(status) || WIFSIGNALED(status)) {
		front_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		return;
	}
	if (status >> 16 == PTRACE_EVENT_FORK)
		on_fork();
	ptrace(PTRACE_CONT, front, 0, status >> 16 ? 0 : WSTOPSIG(status));
}

int main(int argc, char **argv)
{
	int status;

	if (argc < 5 || strcmp(argv[3], "--") != 0) {
		fprintf(stderr, "usage: killer front|keeper|both N -- COMMAND...\n");
		return 2;
	}
	kill_front = strcmp(argv[1], "keeper") != 0;
	kill_keeper = strcmp(argv[1], "front") != 0;
	wanted = strtoul(argv[2], NULL, 0);
	start_front(argv + 4);
	if (front < 0 || waitpid(front, &status, __WALL) != front || !WIFSTOPPED(status))
		return failed("cannot start the command");
	if (ptrace(PTRACE_SETOPTIONS, front, 0,
		   PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_EXITKILL) < 0 ||
	    ptrace(PTRACE_CONT, front, 0, 0) < 0)
		return failed("cannot follow the command");
	while (front_status < 0 || keeper > 0) {
		pid_t pid = waitpid(-1, &status, __WALL);

		if (pid < 0 && errno == EINTR)
			continue;
		if (pid < 0)
			break;
		if (pid == front)
			on_front(status);
		else if (pid == keeper)
			on_keeper(status);
		else if (WIFSTOPPED(status))
			early = pid;
	}
	if (!is_killed)
		fprintf(stderr, "killer: stops %lu\n", stops);
	fprintf(stderr, "killer: front ended %d\n", front_status);
	return is_killed ? 0 : 1;
}
