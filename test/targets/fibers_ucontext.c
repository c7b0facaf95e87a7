/*
 * Contexts of <ucontext.h> that know where they wait.
 *
 *   fibers_ucontext COUNT SIZE_KIB guarded|heap|static [spin|overflow|abort|freed]
 *
 * Each of COUNT contexts descends: every third one frame deep, every third 10, the others 40, each
 * frame with 512 bytes of its own; then it waits by swapcontext. Those of the last kind wait in
 * wait_deep, the others in wait_shallow. One more has ended, one was never begun. `spin`: the last
 * context runs on, on a processor, for as long as the program does. `overflow`: one more waits in
 * wait_shallow, and goes on to overflow its guarded stack. `abort`: to crash, with a handler on a
 * stack of its own, which aborts. `freed`: the stacks (heap) of those that wait deep are given
 * back. Prints "pid N shallow A deep B ended 1 new 1", then waits for the end of its input.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define STATIC_STACKS 64
#define STATIC_BYTES 65536
#define FRAME 512

static char statics[STATIC_STACKS][STATIC_BYTES] __attribute__((aligned(64)));
static ucontext_t home;
static struct fiber {
	ucontext_t context;
	int depth, is_deep;
} * fibers, *last;

__attribute__((noinline)) static void wait_shallow(struct fiber *f)
{
	swapcontext(&f->context, &home);
	__asm__ volatile("nop"); /* unlike the other, or they would be made one */
}

__attribute__((noinline)) static void wait_deep(struct fiber *f)
{
	swapcontext(&f->context, &home);
	__asm__ volatile("nop; nop");
}

__attribute__((noinline)) static void descend(struct fiber *f, int depth)
{
	volatile char room[FRAME];

	memset((char *)room, depth, sizeof(room));
	if (depth > 1)
		descend(f, depth - 1);
	else if (f->is_deep)
		wait_deep(f);
	else
		wait_shallow(f);
	__asm__ volatile("" : : "r"(room[0]));
}

static void begin(unsigned int low, unsigned int high)
{
	struct fiber *f = (struct fiber *)((unsigned long)high << 32 | low);

	descend(f, f->depth);
}

static void end_at_once(void)
{
}

__attribute__((noinline)) static void spin(void)
{
	for (volatile unsigned long i = 0;; i++)
		;
}

__attribute__((noinline)) static int overflow(int depth)
{
	volatile char room[FRAME];

	room[0] = (char)depth;
	return depth < 0 ? 0 : overflow(depth + 1) + room[0];
}

static void wait_and_overflow(void)
{
	wait_shallow(last);
	overflow(0);
}

static void give_up(int signal)
{
	(void)signal;
	abort();
}

__attribute__((noinline)) static void crash(void)
{
	__asm__ volatile("ud2");
}

static void wait_and_crash(void)
{
	static char alternate[STATIC_BYTES];
	const stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};
	const struct sigaction action = {.sa_handler = give_up, .sa_flags = SA_ONSTACK};

	sigaltstack(&stack, NULL);
	sigaction(SIGILL, &action, NULL);
	wait_shallow(last);
	crash();
}

static char *stack_of(const char *kind, long i, size_t size)
{
	char *stack;

	if (strcmp(kind, "static") == 0)
		return statics[i];
	if (strcmp(kind, "heap") == 0)
		return malloc(size);
	stack = mmap(NULL, size + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(stack + 4096, size, PROT_READ | PROT_WRITE);
	return stack + 4096;
}

static void make(struct fiber *f, char *stack, size_t size)
{
	getcontext(&f->context);
	f->context.uc_stack.ss_sp = stack;
	f->context.uc_stack.ss_size = size;
	f->context.uc_link = &home;
}

int main(int argc, char **argv)
{
	static const int depths[] = {1, 10, 40};
	long count = atol(argv[1]), deep = 0;
	size_t size = (size_t)atol(argv[2]) * 1024;
	char byte;

	fibers = calloc((size_t)count + 3, sizeof(*fibers));
	for (long i = 0; i < count + 2; i++) {
		struct fiber *f = &fibers[i];

		make(f, stack_of(argv[3], i, size), size);
		f->depth = depths[i % 3];
		f->is_deep = i % 3 == 2;
		if (i < count) {
			makecontext(&f->context, (void (*)(void))begin, 2,
				    (unsigned int)(unsigned long)f,
				    (unsigned int)((unsigned long)f >> 32));
			deep += f->is_deep;
		} else {
			makecontext(&f->context, end_at_once, 0);
		}
		if (i <= count)
			swapcontext(&home, &f->context);
	}
	if (argc > 4 && strcmp(argv[4], "freed") == 0)
		for (long i = 0; i < count; i++)
			if (fibers[i].is_deep)
				free(fibers[i].context.uc_stack.ss_sp);
	printf("pid %d shallow %ld deep %ld ended 1 new 1\n", (int)getpid(), count - deep, deep);
	fflush(stdout);
	if (argc > 4 && strcmp(argv[4], "freed") != 0) {
		last = &fibers[count + 2];
		make(last, stack_of("guarded", 0, size), size);
		makecontext(&last->context,
			    strcmp(argv[4], "spin") == 0       ? spin
			    : strcmp(argv[4], "overflow") == 0 ? wait_and_overflow
							       : wait_and_crash,
			    0);
		swapcontext(&home, &last->context);
		swapcontext(&home, &last->context);
	}
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}
