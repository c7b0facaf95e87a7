/* makecontext on a stack of scry_stack. With the argument "overflow" the context runs out of it,
 * which is reported by name. */
#include <scry_stack.h>

#include <stdio.h>
#include <string.h>
#include <ucontext.h>

static ucontext_t outer, inner;
static int depth = 10;

static int descend(int left)
{
	volatile char room[500];

	room[0] = (char)left;
	return left == 0 ? room[0] : descend(left - 1) + room[0];
}

static void run(void)
{
	printf("in the context: %d\n", descend(depth));
}

int main(int argc, char **argv)
{
	struct scry_stack_pool *pool;
	struct scry_stack stack;

	if (argc > 1 && strcmp(argv[1], "overflow") == 0)
		depth = 1000000;
	if (scry_stack_watch() != 0 || scry_stack_pool_new(NULL, &pool) != 0 ||
	    scry_stack_get(pool, &stack) != 0)
		return 1;
	scry_stack_name(pool, &stack, "my context", (const void *)run);
	getcontext(&inner);
	inner.uc_stack.ss_sp = stack.low;
	inner.uc_stack.ss_size = (char *)stack.top - (char *)stack.low;
	inner.uc_link = &outer;
	makecontext(&inner, run, 0);
	swapcontext(&outer, &inner);
	scry_stack_put(pool, &stack);
	scry_stack_pool_free(pool);
	return 0;
}
