/* glibc's ucontext, which sets the signal mask by a system call at each switch. */
#include "ring.h"

#include <stdlib.h>
#include <ucontext.h>

static ucontext_t contexts[RING_THREADS], first;

static void body(long me)
{
	ucontext_t *next = &contexts[(me + 1) % ring.threads], *mine = &contexts[me];

	for (;;) {
		if (ring.left > 0) {
			ring.left--;
			swapcontext(mine, next);
		} else {
			swapcontext(mine, &first);
		}
	}
}

static void begin(int me)
{
	ring_grow(ring.frames, body, me);
}

static void start(void)
{
	swapcontext(&first, &contexts[0]);
}

void ring_ucontext(void)
{
	for (int i = 0; i < ring.threads; i++) {
		getcontext(&contexts[i]);
		contexts[i].uc_stack.ss_sp = malloc(RING_STACK);
		contexts[i].uc_stack.ss_size = RING_STACK;
		if (contexts[i].uc_stack.ss_sp == NULL)
			abort();
		makecontext(&contexts[i], (void (*)(void))begin, 1, i);
	}
	ring_time(start);
}
