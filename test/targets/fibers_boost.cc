/*
 * Contexts of Boost that know where they wait.
 *
 *   fibers_boost COUNT SIZE_KIB guarded|heap [room|within]
 *
 * Each of COUNT contexts goes 2, 12 or 30 frames deep, waits there once, comes back, and waits: two
 * of three in wait_deep, so deep, the others in wait_shallow, which leaves the block of the first
 * wait as dead memory below them. With `room` each waits once, comes
 * back, and waits: two of three in wait_deep, with 8 KiB of room that nobody writes in a frame
 * above, in which the block of the first wait stays as it was, the others in wait_shallow. Prints
 * "pid N shallow A deep B", then waits for the end of its input.
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

/* Calls nothing after it went on: what it has left below itself stays. */
__attribute__((noinline)) static void wait_first(ctx::fiber *home)
{
	new (home) ctx::fiber(std::move(*home).resume());
	__asm__ volatile("nop; nop; nop");
}

__attribute__((noinline)) static void wait_with_room(ctx::fiber *home)
{
	char room[8192];

	__asm__ volatile("" : : "r"(room) : "memory");
	wait_deep(home);
	__asm__ volatile("" : : "r"(room) : "memory");
}

template <typename Stack> static ctx::fiber make_roomy(bool is_deep, size_t size)
{
	return ctx::fiber(std::allocator_arg, Stack(size), [is_deep](ctx::fiber &&home) {
		ctx::fiber at = std::move(home);

		wait_first(&at);
		if (is_deep)
			wait_with_room(&at);
		else
			wait_shallow(&at);
		return at;
	});
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

__attribute__((noinline)) static void wait_for_end(void)
{
	char byte;

	while (read(0, &byte, 1) > 0)
		;
}

int main(int argc, char **argv)
{
	const bool is_heap = strcmp(argv[3], "heap") == 0;
	const bool has_room = argc > 4 && strcmp(argv[4], "room") == 0;
	int count = atoi(argv[1]), shallow = 0;
	size_t size = (size_t)atoi(argv[2]) * 1024;
	std::vector<ctx::fiber> all;

	for (int i = 0; i < count; i++) {
		if (has_room)
			all.push_back(
				is_heap ? make_roomy<ctx::fixedsize_stack>(i % 3, size)
					: make_roomy<ctx::protected_fixedsize_stack>(i % 3, size));
		else
			all.push_back(is_heap ? make<ctx::fixedsize_stack>(i, size)
					      : make<ctx::protected_fixedsize_stack>(i, size));
		all.back() = std::move(all.back()).resume();
		if (has_room || i % 3 == 0)
			all.back() = std::move(all.back()).resume();
		shallow += i % 3 == 0;
	}
	printf("pid %d shallow %d deep %d\n", (int)getpid(), shallow, count - shallow);
	fflush(stdout);
	if (argc > 4 && !has_room)
		ctx::fiber(std::allocator_arg, ctx::fixedsize_stack(size), [](ctx::fiber &&home) {
			wait_for_end();
			return std::move(home);
		}).resume();
	else
		wait_for_end();
	_exit(argc < 3);
}
