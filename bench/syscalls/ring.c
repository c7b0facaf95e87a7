/* Two contexts that hand over to each other: processor time of a switch, each round of 100,000, one
 * a line. */
#include <stdio.h>
#include <time.h>
#include <ucontext.h>

static ucontext_t one, two;
static char stack[65536];

static void hop(void)
{
	for (;;)
		swapcontext(&two, &one);
}

static double cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	getcontext(&two);
	two.uc_stack.ss_sp = stack;
	two.uc_stack.ss_size = sizeof(stack);
	makecontext(&two, hop, 0);
	for (;;) {
		double began = cpu_ns();

		for (int i = 0; i < 50000; i++)
			swapcontext(&one, &two);
		printf("%.1f\n", (cpu_ns() - began) / 100000);
	}
}
