/*
 * Fibers of Boost.Fiber that know where they wait: COUNT in wait_here, on a condition; a second
 * thread with 5 more of its own. fibers_boost_fiber COUNT [busy]. With "busy" the COUNT of the first
 * thread switch all the time, at eight depths, and it ends with its parent.
 * Prints "pid N waiting A", then the first thread waits for the end of its input, in a fiber called
 * reader, on its own stack.
 */
#include <boost/fiber/all.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>
#include <vector>

struct gate {
	boost::fibers::mutex mutex;
	boost::fibers::condition_variable is_open;
};

__attribute__((noinline)) static void wait_here(gate &g)
{
	std::unique_lock<boost::fibers::mutex> lock(g.mutex);

	g.is_open.wait(lock);
	__asm__ volatile("nop");
}

__attribute__((noinline)) static void descend(int depth)
{
	volatile char room[200];

	room[0] = depth;
	if (depth)
		descend(depth - 1);
	else
		boost::this_fiber::yield();
	room[1] = room[0];
}

static int be_busy(int count)
{
	std::vector<boost::fibers::fiber> all;

	for (int i = 0; i < count; i++)
		all.emplace_back(boost::fibers::launch::post, std::allocator_arg,
				 boost::fibers::protected_fixedsize_stack(65536), [] {
					 for (int turn = 0;; turn++)
						 descend(turn % 8);
				 });
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	printf("pid %d waiting 0\n", (int)getpid());
	fflush(stdout);
	all[0].join();
	return 0;
}

static void make(std::vector<boost::fibers::fiber> &all, int count, gate &g)
{
	for (int i = 0; i < count; i++)
		all.emplace_back(boost::fibers::launch::dispatch, std::allocator_arg,
				 boost::fibers::protected_fixedsize_stack(65536), [&g] { wait_here(g); });
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 0;
	std::vector<boost::fibers::fiber> all;
	gate here, there;
	char byte;

	if (argc > 2)
		return be_busy(count);
	make(all, count, here);
	std::thread([&there] {
		static std::vector<boost::fibers::fiber> others;

		make(others, 5, there);
		pause();
	}).detach();
	sleep(1);
	printf("pid %d waiting %d\n", (int)getpid(), count + 5);
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	_exit(0);
}
