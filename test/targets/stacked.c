/*
 * Calls malloc from known places, and says by which callers, as glibc's own backtrace() sees them:
 *
 *   SIZE ADDRESS,... (the innermost first)
 *
 * Each size is asked for once. Recursion, alloca, a realigned stack, a callback of libc, signal
 * handlers on both stacks, threads, a fiber, a library that is loaded late.
 */
#include <alloca.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define FRAMES 128
#define FIRST 100000u
#define LINES 4096

static struct {
	unsigned int size;
	int count;
	void *frames[FRAMES];
} lines[LINES];
static unsigned int line_count;
static volatile int sink;

/* Its own frame is known to differ by the place in it: it is left out on both sides. */
static __attribute__((noinline)) void ask(void)
{
	unsigned int n = __atomic_fetch_add(&line_count, 1, __ATOMIC_RELAXED);
	volatile char *p;

	lines[n].size = FIRST + n;
	lines[n].count = backtrace(lines[n].frames, FRAMES);
	p = malloc(lines[n].size);
	p[0] = 1;
	free((void *)p);
}

static __attribute__((noinline)) void recurse(int n)
{
	if (n)
		recurse(n - 1);
	else
		ask();
	sink++;
}

static __attribute__((noinline)) void with_alloca(int n)
{
	char *p = alloca((size_t)n * 10 + 1);

	memset(p, n, (size_t)n * 10 + 1);
	if (n)
		with_alloca(n - 1);
	else
		ask();
	sink += p[0];
}

static __attribute__((noinline)) void realigned(int n)
{
	char p[64] __attribute__((aligned(64)));
	char *more = alloca((size_t)n + 1);

	memset(p, n, sizeof(p));
	more[0] = p[3];
	if (n)
		realigned(n - 1);
	else
		ask();
	sink += p[1] + more[0];
}

static int in_qsort(const void *a, const void *b)
{
	ask();
	return *(const int *)a - *(const int *)b;
}

static void in_handler(int number)
{
	(void)number;
	realigned(2);
	ask();
}

static void *in_thread(void *arg)
{
	with_alloca((int)(long)arg);
	recurse(3);
	return NULL;
}

static ucontext_t main_context, fiber_context;

static void in_fiber(void)
{
	recurse(2);
	swapcontext(&fiber_context, &main_context);
	with_alloca(3);
	ask();
}

/* A small stack between pages that cannot be read. */
static void fiber(void)
{
	const size_t size = 16384, page = 4096;
	char *stack = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(stack + page, size, PROT_READ | PROT_WRITE);
	getcontext(&fiber_context);
	fiber_context.uc_stack.ss_sp = stack + page;
	fiber_context.uc_stack.ss_size = size;
	fiber_context.uc_link = &main_context;
	makecontext(&fiber_context, in_fiber, 0);
	swapcontext(&main_context, &fiber_context);
	swapcontext(&main_context, &fiber_context);
	munmap(stack, size + 2 * page);
}

/* The same place with two callers: rsp and return address are those of before. */
static __attribute__((noinline)) void one_of_two(int n)
{
	if (n % 2) {
		recurse(1);
		sink++;
	} else {
		recurse(1);
		sink += 2;
	}
}

static void signals(void)
{
	static char other[65536];
	const stack_t stack = {.ss_sp = other, .ss_size = sizeof(other)};
	struct sigaction action = {.sa_handler = in_handler};

	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	sigaltstack(&stack, NULL);
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
}

static void print_line(unsigned int n)
{
	printf("%u ", lines[n].size);
	for (int i = 1; i < lines[n].count; i++)
		printf("%s%p", i > 1 ? "," : "", lines[n].frames[i]);
	printf("\n");
}

/* stacked [ROUNDS [wait]]: waits for a byte before, and after for the end of its input. */
int main(int argc, char **argv)
{
	int numbers[] = {4, 2, 3, 1};
	int rounds = argc > 1 ? atoi(argv[1]) : 3;
	void *warm[4];
	pthread_t thread;

	backtrace(warm, 4); /* it loads libgcc_s */
	if (argc > 2 && !strcmp(argv[2], "fork")) {
		int status = 1;
		pid_t child = fork();

		if (child)
			return waitpid(child, &status, 0) != child || status;
		argc = 2;
	}
	if (argc > 2) {
		printf("pid %d\n", getpid());
		fflush(stdout);
		getchar();
	}
	for (int i = 0; i < rounds; i++) {
		ask();
		recurse(5);
		recurse(40);
		with_alloca(10);
		realigned(5);
		qsort(numbers, 4, sizeof(int), in_qsort);
		for (int k = 0; k < 4; k++)
			one_of_two(k);
		signals();
		fiber();
		pthread_create(&thread, NULL, in_thread, (void *)(long)(5 + i));
		pthread_join(thread, NULL);
	}
	for (unsigned int n = 0; n < line_count; n++)
		print_line(n);
	printf("ok %u\n", line_count);
	fflush(stdout);
	while (argc > 2 && getchar() != EOF)
		;
	return 0;
}
