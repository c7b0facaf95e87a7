/*
 * Calls that sleep where little leads to them, or that are hard to tell apart, for what follows
 * returns.
 *
 *   target_asleep chain         f ends in a jump to g; each reads a line
 *   target_asleep closed FILE   f sleeps on a coroutine's stack in FILE, mapped shared, and closed
 *                               (PROT_NONE) meanwhile
 *   target_asleep child FILE    the same, open, in a fork child: its tables have none of FILE's
 *                               pages; "child N"
 *   target_asleep copied        two coroutines share a place for their stacks, which are copied
 *                               there and away: f runs in each, 1,000 times, in one slot
 *   target_asleep rounding      a function that sets both control words, and what they are behind
 *                               its call
 *
 * Prints "pid N", reads a line, prints "asleep" where f (chain: g) waits for the next line, and at
 * the end "f 127".
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone, noipa))
#define STACK_BYTES 65536

static ucontext_t at_home, asleep;
static long result;
static int is_chain;

static void next_line(void)
{
	char c = 0;

	while (c != '\n')
		if (read(0, &c, 1) != 1)
			_exit(3);
}

/* Nothing of earlier calls is left below this one's frame. */
static __attribute__((noinline, noclone)) void sweep(void)
{
	char room[16384];

	memset(room, 0, sizeof(room));
	__asm__ volatile("" ::"r"(room) : "memory");
}

FUNCTION long g(long x);
FUNCTION long g(long x)
{
	if (is_chain) {
		sweep();
		puts("asleep");
		next_line();
	} else {
		swapcontext(&asleep, &at_home);
	}
	return 3 * x + 1;
}

FUNCTION long f(long x);
FUNCTION long f(long x)
{
	if (is_chain) {
		puts("in f");
		next_line();
	}
	return g(x + 1);
}

static void coroutine(void)
{
	result = f(41);
}

static int on_a_file(int closed, const char *path)
{
	const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	char *stack;
	int status;
	pid_t child = 0;

	if (fd < 0 || ftruncate(fd, STACK_BYTES) < 0)
		return 2;
	stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (stack == MAP_FAILED)
		return 2;
	getcontext(&asleep);
	asleep.uc_stack.ss_sp = stack;
	asleep.uc_stack.ss_size = STACK_BYTES;
	asleep.uc_link = &at_home;
	makecontext(&asleep, coroutine, 0);
	swapcontext(&at_home, &asleep);
	sweep();
	if (closed)
		mprotect(stack, STACK_BYTES, PROT_NONE);
	else
		child = fork();
	if (child) {
		printf("child %d\n", (int)child);
		waitpid(child, &status, 0);
		return status ? 4 : 0;
	}
	puts("asleep");
	next_line();
	mprotect(stack, STACK_BYTES, PROT_READ | PROT_WRITE);
	swapcontext(&at_home, &asleep);
	printf("f %ld\n", result);
	return 0;
}

static char place[STACK_BYTES] __attribute__((aligned(64))), saved[2][STACK_BYTES];
static ucontext_t twins[2];
static long wrong;
static int running;

FUNCTION long switches(long x);
FUNCTION long switches(long x)
{
	swapcontext(&twins[running], &at_home);
	return 3 * x + 1;
}

static void twin(int id)
{
	for (;;) {
		wrong += switches(id) != 3L * id + 1;
		swapcontext(&twins[running], &at_home);
	}
}

static int two_in_one_place(void)
{
	for (int i = 0; i < 2; i++) {
		getcontext(&twins[i]);
		twins[i].uc_stack.ss_sp = place;
		twins[i].uc_stack.ss_size = STACK_BYTES;
		makecontext(&twins[i], (void (*)(void))twin, 1, i);
		memcpy(saved[i], place, STACK_BYTES);
	}
	for (int i = 0; i < 4000; i++) {
		running = i % 2;
		memcpy(place, saved[running], STACK_BYTES);
		swapcontext(&at_home, &twins[running]);
		memcpy(saved[running], place, STACK_BYTES);
	}
	puts("asleep");
	next_line();
	printf("wrong %ld\n", wrong);
	return 0;
}

FUNCTION int rounds(int mode);
FUNCTION int rounds(int mode)
{
	const uint32_t sse = 0x1f80u | (uint32_t)mode << 13;
	const uint16_t x87 = (uint16_t)(0x037f | mode << 10);

	__asm__ volatile("ldmxcsr %0; fldcw %1" ::"m"(sse), "m"(x87));
	return mode;
}

static int round_to_zero(void)
{
	uint32_t sse;
	uint16_t x87;

	rounds(3);
	__asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(sse), "=m"(x87));
	printf("mxcsr %x x87 %x\n", sse, x87);
	return 0;
}

FUNCTION void *asks(int x);
FUNCTION void *asks(int x)
{
	__asm__ volatile("" ::"r"(x));
	return __builtin_return_address(0);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("pid %d\n", (int)getpid());
	next_line();
	if (argc == 2 && !strcmp(argv[1], "copied"))
		return two_in_one_place();
	if (!asks(0))
		return 2;
	if (argc == 2 && !strcmp(argv[1], "rounding"))
		return round_to_zero();
	is_chain = argc == 2;
	if (!is_chain)
		return argc == 3 ? on_a_file(!strcmp(argv[1], "closed"), argv[2]) : 2;
	printf("f %ld\n", f(41));
	return 0;
}
