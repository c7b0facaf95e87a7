// A StackAllocator of Boost.Context on scry_stack. With the argument "overflow" the fiber runs out
// of it, which is reported by name.
#include <scry_stack.h>

#include <boost/context/fiber.hpp>

#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

class scry_stack_allocator
{
      public:
	explicit scry_stack_allocator(struct scry_stack_pool *pool) : pool_(pool)
	{
	}

	boost::context::stack_context allocate()
	{
		struct scry_stack stack;
		boost::context::stack_context context;

		if (scry_stack_get(pool_, &stack) != 0)
			throw std::bad_alloc();
		context.sp = stack.top;
		context.size = static_cast<char *>(stack.top) - static_cast<char *>(stack.low);
		return context;
	}

	// Boost keeps top and size only: the pool knows whose they are.
	void deallocate(boost::context::stack_context &context) noexcept
	{
		struct scry_stack stack;

		if (scry_stack_find(pool_, static_cast<char *>(context.sp) - 1, &stack) == 0)
			scry_stack_put(pool_, &stack);
	}

      private:
	struct scry_stack_pool *pool_;
};

static int depth = 10;

static int descend(int left)
{
	volatile char room[500];

	room[0] = static_cast<char>(left);
	return left == 0 ? room[0] : descend(left - 1) + room[0];
}

int main(int argc, char **argv)
{
	struct scry_stack_pool *pool;

	if (argc > 1 && std::strcmp(argv[1], "overflow") == 0)
		depth = 1000000;
	if (scry_stack_watch() != 0 || scry_stack_pool_new(nullptr, &pool) != 0)
		return 1;
	{
		boost::context::fiber fiber{std::allocator_arg, scry_stack_allocator(pool),
					    [](boost::context::fiber &&back) {
						    std::printf("in the fiber: %d\n",
								descend(depth));
						    return std::move(back);
					    }};

		std::move(fiber).resume();
	}
	std::printf("stacks in use: %zu\n", scry_stack_pool_used(pool));
	scry_stack_pool_free(pool);
	return 0;
}
