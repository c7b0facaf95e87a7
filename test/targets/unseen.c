/* Who is inside scry's code and is seen in no stop of this program's threads.
 *
 *   shares    a line of input makes processes that run on this program's memory and are none of its
 *             threads (clone with CLONE_VM); the next one ends them
 *   switches  contexts that a handler of SIGALRM switches between: those that do not run have their
 *             signal frames on stacks that no thread stands on; a line of input ends them
 *
 *   waits     sleeps in a function most of the time, till a line of input comes
 *
 * The first two make system calls, by one function. Prints "pid N", "born N", and "right" at its
 * end; the status is 1 where a process did not end well. */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define PROCESSES 8
#define CONTEXTS 100
#define STACK_BYTES 65536
#define PERIOD_US 1000
#define WAIT_US 100000

static char stacks[CONTEXTS][STACK_BYTES] __attribute__((aligned(4096)));
static ucontext_t contexts[CONTEXTS];
static int current;
static volatile int has_ended;

long unseen_work(long i);
long unseen_wait(long i);

__attribute__((noinline)) long unseen_work(long i)
{
	__asm__ volatile("" : "+r"(i));
	return i + 1;
}

static void round_of_work(void)
{
	for (int i = 0; i < 1000; i++)
		if (unseen_work(getppid()) < 0)
			abort();
}

static int has_line(void)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};
	char line[64];

	return poll(&in, 1, 0) == 1 && read(0, line, sizeof(line)) > 0;
}

__attribute__((noinline)) long unseen_wait(long i)
{
	usleep(WAIT_US);
	return 3 * unseen_work(i);
}

static int waits(void)
{
	int wrong = 0;

	for (long i = 0; !wrong && !has_line(); i++)
		wrong = unseen_wait(i) != 3 * i + 3;
	return wrong;
}

static int process(void *unused)
{
	(void)unused;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!has_ended)
		round_of_work();
	_exit(0);
}

static int shares(void)
{
	pid_t pids[PROCESSES];
	int wrong = 0, status;

	while (!has_line())
		round_of_work();
	for (int i = 0; i < PROCESSES; i++)
		pids[i] = clone(process, stacks[i] + STACK_BYTES,
				CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, NULL);
	printf("born %d\n", PROCESSES);
	while (!has_line())
		round_of_work();
	has_ended = 1;
	for (int i = 0; i < PROCESSES; i++)
		wrong |= waitpid(pids[i], &status, 0) != pids[i] || status;
	return wrong;
}

static void switch_over(int signal)
{
	const int old = current;

	(void)signal;
	current = (current + 1) % CONTEXTS;
	swapcontext(&contexts[old], &contexts[current]);
}

static void context(void)
{
	while (!has_line())
		round_of_work();
	puts("right");
	_exit(0);
}

static int switches(void)
{
	const struct sigaction action = {.sa_handler = switch_over, .sa_flags = SA_RESTART};
	const struct itimerval timer = {{0, PERIOD_US}, {0, PERIOD_US}};

	for (int i = 0; i < CONTEXTS; i++) {
		getcontext(&contexts[i]);
		contexts[i].uc_stack.ss_sp = stacks[i];
		contexts[i].uc_stack.ss_size = STACK_BYTES;
		makecontext(&contexts[i], context, 0);
	}
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	setcontext(&contexts[0]);
	return 1;
}

int main(int argc, char **argv)
{
	int wrong;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", (int)getpid());
	if (argc > 1 && !strcmp(argv[1], "waits"))
		wrong = waits();
	else
		wrong = argc > 1 && !strcmp(argv[1], "switches") ? switches() : shares();
	puts(wrong ? "wrong" : "right");
	return wrong;
}
