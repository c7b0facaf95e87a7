/* A function that threads are interrupted in, in ways that hide it from who looks at their stacks;
 * each call's result is checked.
 *
 *   hides green      contexts that a timer's handler switches: frames on stacks that nobody is on
 *   hides greener    the same, their stacks in shared memory
 *   hides copied     what was interrupted is kept in memory of the program's own: once in `step`,
 *                    until a line on the input, then no more
 *   hides much       the same as green in a program that has written to 256 MiB
 *   hides reserved   and in one that has reserved 20 TiB, which it does not use
 *   hides large      threads with stacks of 128 MiB, whose handler has a buffer of 400 KiB
 *   hides restorer   handlers return by a restorer of the program's own
 *   hides closed     a context that is suspended within what `step` calls, its stack unreadable
 *   hides shared     the same in a fork child, which has touched nothing of the shared stack
 *
 * Prints "pid N" (of the child), and ends by SIGTERM with status 0 when no result was wrong. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define CONTEXTS 64
#define STACK 65536
#define THREADS 4

/* Most of its time is spent in the bytes that a jump at its entry replaces. */
unsigned long step(unsigned long a);
__asm__(".globl step\n.type step, @function\nstep:\n.cfi_startproc\n"
	"rdtsc\npush %rbp\n.cfi_adjust_cfa_offset 8\nmov %rsp, %rbp\nrdtsc\n"
	"lea 1(%rdi, %rdi, 2), %rax\npop %rbp\n.cfi_adjust_cfa_offset -8\nret\n"
	".cfi_endproc\n.size step, . - step\n"
	".globl own_restorer\nown_restorer:\npush $15\npop %rax\nsyscall\n");
extern char own_restorer[];
#define SECOND 2 /* where the second instruction of `step` lies */

static ucontext_t contexts[CONTEXTS], first;
static char own_stacks[CONTEXTS][STACK], (*stacks)[STACK] = own_stacks;
static volatile int current;
static volatile sig_atomic_t stop;
static char *closed;
static int is_closed;

static void check(unsigned long i)
{
	if (step(i) != 3 * i + 1)
		_exit(9);
}

static void on_term(int signal)
{
	(void)signal;
	_exit(0);
}

static void on_tick(int signal)
{
	int from = current;

	(void)signal;
	current = (from + 1) % CONTEXTS;
	swapcontext(&contexts[from], &contexts[current]);
}

static void rounds(void)
{
	for (unsigned long i = 0;; i++)
		check(i);
}

/* A context begins as one that was interrupted goes on: with the signal blocked until it stands on
 * its own stack. */
static void begins(void)
{
	sigset_t ticks;

	sigemptyset(&ticks);
	sigaddset(&ticks, SIGALRM);
	if (current == CONTEXTS - 1) {
		printf("pid %d\n", (int)getpid());
		fflush(stdout);
	}
	sigprocmask(SIG_UNBLOCK, &ticks, NULL);
	rounds();
}

static void green(void)
{
	struct sigaction act = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
	const struct itimerval each = {{0, 1000}, {0, 1000}};

	for (int i = 1; i < CONTEXTS; i++) {
		getcontext(&contexts[i]);
		contexts[i].uc_stack.ss_sp = stacks[i];
		contexts[i].uc_stack.ss_size = STACK;
		sigaddset(&contexts[i].uc_sigmask, SIGALRM);
		makecontext(&contexts[i], begins, 0);
	}
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
	rounds();
}

static void keeps(int signal, siginfo_t *info, void *context)
{
	static gregset_t kept;
	static int is_over;
	greg_t *now = ((ucontext_t *)context)->uc_mcontext.gregs;
	char line;

	(void)signal, (void)info;
	if (is_over || now[REG_RIP] != (greg_t)step + SECOND)
		return;
	memcpy(kept, now, sizeof(kept));
	now[REG_RIP] = 0;
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	while (read(0, &line, 1) != 1)
		;
	memcpy(now, kept, sizeof(kept));
	memset(kept, 0, sizeof(kept));
	is_over = 1;
	printf("resumed\n");
	fflush(stdout);
}

static void copied(void)
{
	struct sigaction act = {.sa_sigaction = keeps, .sa_flags = SA_RESTART | SA_SIGINFO};
	const struct itimerval each = {{0, 1000}, {0, 1000}};

	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
	rounds();
}

static void *memory(size_t size, int flags)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		_exit(3);
	return at;
}

static void waits(int signal)
{
	volatile char buffer[400 << 10];

	(void)signal;
	memset((void *)buffer, 1, sizeof(buffer));
	nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
	buffer[0] = buffer[1];
}

static void *thread(void *unused)
{
	rounds();
	return unused;
}

static void threads(size_t stack, int is_own)
{
	const struct {
		void (*handler)(int);
		unsigned long flags;
		char *restorer;
		unsigned long mask;
	} act = {waits, SA_RESTART | 0x04000000, own_restorer, 0};
	pthread_t all[THREADS];
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, stack);
	signal(SIGUSR1, waits);
	if (is_own)
		syscall(SYS_rt_sigaction, SIGUSR1, &act, NULL, 8);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&all[i], &attr, thread, NULL))
			_exit(2);
	for (int i = 0;; i = (i + 1) % THREADS) {
		pthread_kill(all[i], SIGUSR1);
		usleep(2000);
	}
}

/* Called by what stands before `within`, or by `within` itself. */
void within(unsigned long i);
__attribute__((noipa)) void within(unsigned long i)
{
	(void)i;
	swapcontext(&contexts[1], &first);
	__asm__ volatile("");
}

static void suspends(void)
{
	for (unsigned long i = 0;; i++)
		within(i);
}

static void resume(void)
{
	if (is_closed)
		mprotect(closed, STACK, PROT_READ | PROT_WRITE);
	swapcontext(&first, &contexts[1]);
	if (is_closed)
		mprotect(closed, STACK, PROT_NONE);
}

static void suspended(int is_shared)
{
	volatile int times = 0;

	is_closed = !is_shared;
	closed = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
		      (is_shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
	getcontext(&contexts[1]);
	contexts[1].uc_stack.ss_sp = closed;
	contexts[1].uc_stack.ss_size = STACK;
	makecontext(&contexts[1], suspends, 0);
	resume();
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	for (;;) { /* resumed by SIGUSR1; a line on the input forks, and the child goes on */
		char line[8];

		if (read(0, line, 1) != 1)
			for (;;)
				pause();
		if (line[0] == 'f') {
			pid_t child = fork();

			if (child)
				for (;;)
					pause();
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			printf("child %d\n", (int)getpid());
		} else if (line[0] == 'r') {
			resume();
			printf("resumed %d\n", ++times);
		}
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "green";

	signal(SIGTERM, on_term);
	if (!strcmp(how, "closed") || !strcmp(how, "shared"))
		suspended(how[0] == 's');
	if (!strcmp(how, "copied"))
		copied();
	if (!strcmp(how, "greener"))
		stacks = memory(sizeof(own_stacks), MAP_SHARED);
	else if (!strcmp(how, "much"))
		memset(memory(256ul << 20, MAP_PRIVATE), 1, 256ul << 20);
	else if (!strcmp(how, "reserved"))
		memory(20ul << 40, MAP_PRIVATE | MAP_NORESERVE);
	if (!strncmp(how, "green", 5) || !strcmp(how, "much") || !strcmp(how, "reserved"))
		green();
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	threads(!strcmp(how, "large") ? 128ul << 20 : 8ul << 20, !strcmp(how, "restorer"));
}
