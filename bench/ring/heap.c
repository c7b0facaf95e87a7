/* Stacks of malloc, switched by _setjmp and _longjmp, as Ruby 1.8 with "heap stacks" did. */
#include "ring.h"

#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>

static jmp_buf threads[RING_THREADS], first;
static ucontext_t making, making_from;

static void body(long me)
{
	long next = (me + 1) % ring.threads;

	for (;;) {
		if (ring.left > 0) {
			ring.left--;
			if (_setjmp(threads[me]) == 0)
				_longjmp(threads[next], 1);
		} else if (_setjmp(threads[me]) == 0) {
			_longjmp(first, 1);
		}
	}
}

/* Left the first time by the way it was entered; from then on by jumps. */
static void begin(int me)
{
	if (_setjmp(threads[me]) == 0)
		setcontext(&making_from);
	ring_grow(ring.frames, body, me);
}

static void start(void)
{
	if (_setjmp(first) == 0)
		_longjmp(threads[0], 1);
}

void ring_heap(void)
{
	for (int i = 0; i < ring.threads; i++) {
		getcontext(&making);
		making.uc_stack.ss_sp = malloc(RING_STACK);
		making.uc_stack.ss_size = RING_STACK;
		if (making.uc_stack.ss_sp == NULL)
			abort();
		makecontext(&making, (void (*)(void))begin, 1, i);
		swapcontext(&making_from, &making);
	}
	ring_time(start);
}
