/* Contexts that hand on to each other in a ring, as coroutines do that are made of swapcontext().
 * glibc sets the signal mask at each switch; here it is always the same.
 *
 *   ring ROUNDS [WORK]     ROUNDS times around, or for ever (0); WORK steps of arithmetic at each
 *                          place
 *   ring 0 WORK apart      the first context, on the first thread's own stack, is left for good
 *
 * Prints "pid N", and at the end "switches N": so often swapcontext() was called, by pass_on(). */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

#define CONTEXTS 7
#define STACK 65536

static ucontext_t contexts[CONTEXTS];
static long rounds, work, switches;
static int first; /* the lowest place that is handed on to */
static volatile uint64_t result = 1;

static __attribute__((noipa)) void pass_on(int from)
{
	switches++;
	swapcontext(&contexts[from], &contexts[from + 1 < CONTEXTS ? from + 1 : first]);
	__asm__ volatile(""); /* so that it is no jump */
}

static void stand(int place)
{
	for (;;) {
		for (long i = 0; i < work; i++)
			result = result * 6364136223846793005u + 1442695040888963407u;
		pass_on(place);
	}
}

int main(int argc, char **argv)
{
	rounds = argc > 1 ? atol(argv[1]) : 0;
	work = argc > 2 ? atol(argv[2]) : 0;
	first = argc > 3;
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	for (int i = 1; i < CONTEXTS; i++) {
		getcontext(&contexts[i]);
		contexts[i].uc_stack.ss_sp = malloc(STACK);
		contexts[i].uc_stack.ss_size = STACK;
		makecontext(&contexts[i], (void (*)(void))stand, 1, i);
	}
	for (long i = 0; !rounds || i < rounds; i++)
		pass_on(0);
	printf("switches %ld\n", switches);
	return 0;
}
