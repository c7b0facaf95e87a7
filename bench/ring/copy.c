/*
 * One stack for all: a thread that stops is copied from it to the heap, the next is copied back to
 * where it was, as Ruby 1.8 did. Who copies back first makes room, and stands below what is
 * written.
 */
#include "ring.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#define COPY_STEP 1024

struct thread {
	jmp_buf at;
	char *copy;
	size_t size, room;
	int has_begun;
};

static struct thread threads[RING_THREADS];
static jmp_buf first;
static char *base; /* the end of what threads have on the stack */

static void body(long me);

__attribute__((noinline)) static void begin(long me)
{
	threads[me].has_begun = 1;
	ring_grow(ring.frames, body, me);
}

/* Its own frame lies below all that is written: see restore. */
__attribute__((noinline)) static void put_back(struct thread *to)
{
	memcpy(base - to->size, to->copy, to->size);
	_longjmp(to->at, 1);
}

static void restore(struct thread *to)
{
	intptr_t missing = (char *)__builtin_frame_address(0) - (base - to->size);
	volatile char *room = __builtin_alloca(missing > 0 ? missing + COPY_STEP : COPY_STEP);

	room[0] = 0;
	put_back(to);
}

__attribute__((noinline)) static void save(struct thread *from)
{
	/* with registers that _setjmp does not keep, as the compiler spilled them below its frame
	 */
	char *sp = (char *)__builtin_frame_address(0) - 512;

	from->size = base - sp;
	if (from->size > from->room) {
		from->room = from->size;
		from->copy = realloc(from->copy, from->room);
		if (from->copy == NULL)
			abort();
	}
	memcpy(from->copy, sp, from->size);
}

/* To a thread that did not begin yet, with the stack as main left it. */
__attribute__((noinline)) static void go(long to)
{
	if (threads[to].has_begun)
		restore(&threads[to]);
	_longjmp(first, 2 + to);
}

static void body(long me)
{
	for (;;) {
		int is_over = ring.left <= 0;

		if (!is_over)
			ring.left--;
		if (_setjmp(threads[me].at) == 0) {
			save(&threads[me]);
			if (is_over)
				_longjmp(first, 1);
			go((me + 1) % ring.threads);
		}
	}
}

__attribute__((noinline)) static void start_below(void)
{
	int to = _setjmp(first);

	if (to == 1)
		return;
	base = (char *)__builtin_frame_address(0) - 256;
	if (to == 0 && threads[0].has_begun)
		restore(&threads[0]);
	/* threads begin below what this function has on the stack */
	char *volatile gap = __builtin_alloca(1024);

	gap[0] = 0;
	begin(to == 0 ? 0 : to - 2);
}

static void start(void)
{
	start_below();
}

void ring_copy(void)
{
	ring_time(start);
}
