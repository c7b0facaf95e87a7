/* The least a switch can do, on stacks as the library gives them: what scryfiber is measured by. */
#include "ring.h"

#include "fiber/scry_stack.h"

#include <stdlib.h>

void prototype_switch(void **save_sp, void *sp);
void prototype_begin(void);

static void *sps[RING_THREADS], *main_sp;

static void body(long me)
{
	void **next = &sps[(me + 1) % ring.threads], **mine = &sps[me];

	for (;;) {
		if (ring.left > 0) {
			ring.left--;
			prototype_switch(mine, *next);
		} else {
			prototype_switch(mine, main_sp);
		}
	}
}

static void begin(long me)
{
	ring_grow(ring.frames, body, me);
}

static void start(void)
{
	prototype_switch(&main_sp, sps[0]);
}

void ring_prototype(void)
{
	struct scry_stack_pool *pool;
	struct scry_stack stack;

	if (scry_stack_pool_new(&(struct scry_stack_attr){.size_bytes = RING_STACK}, &pool) != 0)
		abort();
	for (long i = 0; i < ring.threads; i++) {
		void **sp;

		if (scry_stack_get(pool, &stack) != 0)
			abort();
		sp = (void **)stack.top - 8;
		sp[2] = (void *)begin; /* r13 */
		sp[3] = (void *)i;     /* r12 */
		sp[6] = (void *)prototype_begin;
		/* seven words are popped: the stack is aligned then */
		sps[i] = sp;
		sp[7] = NULL;
	}
	ring_time(start);
}
