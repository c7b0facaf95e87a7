/* Boost.Context's own switch, by the functions in assembler that its C++ is built on. */
#include "ring.h"

#include <stdlib.h>

/* boost/context/detail/fcontext.hpp, 1.74 */
struct transfer {
	void *from;
	void *data;
};
struct transfer jump_fcontext(void *to, void *data);
void *make_fcontext(void *top, size_t size, void (*function)(struct transfer));

static void *contexts[RING_THREADS], *first;

/* What a jump leaves is known to the one that is jumped to: it puts that where its owner said, by
 * the data. */
static void put(struct transfer came)
{
	*(void **)came.data = came.from;
}

static void body(long me)
{
	long next = (me + 1) % ring.threads;

	for (;;) {
		if (ring.left > 0) {
			ring.left--;
			put(jump_fcontext(contexts[next], &contexts[me]));
		} else {
			put(jump_fcontext(first, &contexts[me]));
		}
	}
}

static long beginning; /* who runs for the first time: threads begin in order */

static void begin(struct transfer came)
{
	put(came);
	ring_grow(ring.frames, body, beginning++);
}

static void start(void)
{
	put(jump_fcontext(contexts[0], &first));
}

void ring_boost(void)
{
	for (int i = 0; i < ring.threads; i++) {
		char *stack = malloc(RING_STACK);

		if (stack == NULL)
			abort();
		contexts[i] = make_fcontext(stack + RING_STACK, RING_STACK, begin);
	}
	ring_time(start);
}
