/*
 * Contexts of Boost that know where they wait.
 *
 *   fibers_boost COUNT SIZE_KIB guarded|heap
 *
 * Each of COUNT contexts goes 2, 12 or 30 frames deep, waits there once, comes back, and waits: two
 * of three in wait_deep, so deep, the others in wait_shallow, which leaves the block of the first
 * wait as dead memory below them. `fibers`: the same with Boost.Fiber, on a condition, where all wait
 * in wait_deep. Prints "pid N shallow A deep B", then waits for the end of its input.
 */
#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>

namespace ctx = boost::context;

__attribute__((noinline)) static void wait_shallow(ctx::fiber *home)
{
	*home = std::move(*home).resume();
	__asm__ volatile("nop");
}

__attribute__((noinline)) static void wait_deep(ctx::fiber *home)
{
	*home = std::move(*home).resume();
	__asm__ volatile("nop; nop");
}

__attribute__((noinline)) static void descend(ctx::fiber *home, int depth)
{
	volatile char room[256];

	memset((char *)room, depth, sizeof(room));
	if (depth > 1)
		descend(home, depth - 1);
	else
		wait_deep(home);
	__asm__ volatile("" : : "r"(room[0]));
}

template <typename Stack> static ctx::fiber make(int i, size_t size)
{
	static const int depths[] = {2, 12, 30};

	return ctx::fiber(std::allocator_arg, Stack(size), [i](ctx::fiber &&home) {
		ctx::fiber at = std::move(home);

		if (i % 3 == 0)
			descend(&at, depths[2]);
		if (i % 3 == 0)
			wait_shallow(&at);
		else
			descend(&at, depths[i % 3 - 1]);
		return at;
	});
}

int main(int argc, char **argv)
{
	int count = atoi(argv[1]), shallow = 0;
	size_t size = (size_t)atoi(argv[2]) * 1024;
	std::vector<ctx::fiber> all;
	char byte;

	for (int i = 0; i < count; i++) {
		all.push_back(strcmp(argv[3], "heap") ? make<ctx::protected_fixedsize_stack>(i, size)
						      : make<ctx::fixedsize_stack>(i, size));
		all.back() = std::move(all.back()).resume();
		if (i % 3 == 0)
			all.back() = std::move(all.back()).resume();
		shallow += i % 3 == 0;
	}
	printf("pid %d shallow %d deep %d\n", (int)getpid(), shallow, count - shallow);
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	_exit(argc < 3);
}
