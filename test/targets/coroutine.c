/* A program on a small stack of its own making: 4 KiB in the midst of a block, as many C libraries
 * of coroutines have them, and beside it bytes that nobody may change.
 *
 *   coroutine alone       one thread, always on that stack
 *   coroutine deep        the same, and the first thread's own stack was in use to its end before
 *   coroutine thread      beside it a thread of libc's, which sleeps
 *   coroutine shallow     the same, and half of the small stack is not in use by itself
 *   coroutine alternates  one thread, each millisecond on the one and on the other stack
 *
 * Prints "pid N", then a line "round N deep D" at least twice a second: so many bytes below the
 * stack pointer of its calls of work_fold were ever written. Ends by SIGTERM with status 0, or,
 * when a byte of its neighbours was changed, with "wrong N bytes" and status 1. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "libwork.h"

#define STACK 4096
#define STACKS 64
#define MINE 32
#define NEIGHBOUR 0x5a
#define UNUSED 0xa5

static volatile unsigned char *block;
static volatile sig_atomic_t stop;
static volatile uintptr_t lowest;
static ucontext_t first, small;
static int alternates, shallow;
static char line[64];

static void on_term(int signal)
{
	(void)signal;
	stop = 1;
}

static char *put(char *to, const char *text, unsigned long n)
{
	char digits[24];
	int count = 0;

	while (*text)
		*to++ = *text++;
	do
		digits[count++] = (char)('0' + n % 10);
	while (n /= 10);
	while (count)
		*to++ = digits[--count];
	return to;
}

/* Without stdio, which needs more of a stack than there is. */
static void say(unsigned long round)
{
	unsigned long i = MINE * STACK;
	char *end;

	while (i < (MINE + 1) * STACK && block[i] == UNUSED)
		i++;
	end = put(line, "round ", round);
	end = put(end, " deep ", lowest - (uintptr_t)(block + i));
	*end++ = '\n';
	if (write(1, line, (size_t)(end - line)) < 0)
		_exit(2);
}

static void check(void)
{
	unsigned long bad = 0;
	char *end;

	for (unsigned long i = 0; i < STACKS * STACK; i++)
		bad += i / STACK != MINE && block[i] != NEIGHBOUR;
	if (!bad)
		return;
	end = put(line, "wrong ", bad);
	memcpy(end, " bytes\n", 7);
	if (write(1, line, (size_t)(end - line) + 7) < 0)
		_exit(2);
	_exit(1);
}

static void rounds(void)
{
	const struct timespec pause = {.tv_nsec = 200000};
	uint64_t values[4] = {1, 2, 3, 4}, here;

	__asm__ volatile("mov %%rsp, %0" : "=r"(here));
	lowest = here;
	for (unsigned long round = 1; !stop; round++) {
		for (int i = 0; i < 100; i++) {
			void *volatile p = malloc(100);

			work_fold(values, 4);
			free(p);
		}
		check();
		if (round % 500 == 1)
			say(round);
		if (alternates)
			swapcontext(&small, &first);
		else
			nanosleep(&pause, NULL);
	}
	check();
	_exit(0);
}

static void deeper(void)
{
	volatile char used[2000];

	memset((void *)used, 1, sizeof(used));
	rounds();
	used[0] = 2;
}

static void coroutine(void)
{
	if (shallow)
		rounds();
	else
		deeper();
}

static __attribute__((noinline)) void use_all(void)
{
	volatile char used[256 * 1024];

	memset((void *)used, 1, sizeof(used));
	used[0] = 2;
}

static void *sleeps(void *unused)
{
	for (;;)
		pause();
	return unused;
}

int main(int argc, char **argv)
{
	struct sigaction act = {.sa_handler = on_term, .sa_flags = SA_ONSTACK};
	const stack_t room = {.ss_sp = malloc(65536), .ss_size = 65536};
	const uint64_t none = 0;
	pthread_t thread;

	const char *how = argc > 1 ? argv[1] : "alone";

	alternates = !strcmp(how, "alternates");
	shallow = !strcmp(how, "shallow");
	if (!strcmp(how, "deep"))
		use_all();
	sigaltstack(&room, NULL);
	sigaction(SIGTERM, &act, NULL);
	work_fold(&none,
		  1); /* what it calls is bound at its first call, here where there is room */
	printf("pid %d\n", getpid());
	fflush(stdout);
	if ((shallow || !strcmp(how, "thread")) && pthread_create(&thread, NULL, sleeps, NULL))
		return 2;
	block = malloc(STACKS * STACK);
	if (!block)
		return 2;
	memset((void *)block, NEIGHBOUR, STACKS * STACK);
	memset((void *)(block + MINE * STACK), UNUSED, STACK);
	getcontext(&small);
	small.uc_stack.ss_sp = (void *)(block + MINE * STACK);
	small.uc_stack.ss_size = STACK;
	makecontext(&small, coroutine, 0);
	for (;;) {
		swapcontext(&first, &small);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}
