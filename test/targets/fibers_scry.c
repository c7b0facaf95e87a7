/*
 * Fibers of libscryfiber that know what they do.
 *
 *   fibers_scry COUNT SIZE_KIB [second | left | child | preempted | overflowed]
 *
 * COUNT sleep for ever in wait_asleep, called "sleeper"; 3 wait in wait_reading for a descriptor
 * that nobody writes to; 2 were made and not started; 1 has ended and was not joined. The first
 * thread waits for the end of its input, by read; what it reads before makes it another program.
 * With "second" all this is done by another thread, and the first one ends.
 * With "left" it is done by another thread, which ends with its scheduler open.
 * With "child" a forked child has 2 more that sleep, and no other; it speaks for itself, and its
 * parent waits for its end.
 * With "overflowed" one more has ended by an overflow, whose handler ran on the library's stack for
 * signals, and the first thread waits in a handler of its own, on the same.
 * With "preempted" 4 more were taken off the processor in spins, by its timer.
 * Prints "pid N asleep COUNT reading 3 new 2 ended 1".
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fiber/scry_fiber.h"
#include "fiber/scry_preempt.h"

__attribute__((noinline)) static void wait_asleep(void)
{
	scry_fiber_sleep(3600 * INT64_C(1000000000));
	__asm__ volatile("");
}

__attribute__((noinline)) static void wait_reading(int fd)
{
	scry_fiber_wait(fd, POLLIN, -1);
	__asm__ volatile("");
}

static void *sleeper(void *arg)
{
	wait_asleep();
	return arg;
}

static void *reader(void *arg)
{
	wait_reading(*(int *)arg);
	return arg;
}

static void *ender(void *arg)
{
	return arg;
}

__attribute__((section("leaf_safe"), noipa)) static unsigned long spins(volatile int *stop)
{
	unsigned long turns = 0;

	while (!*stop)
		turns++;
	return turns;
}

static void *spinner(void *arg)
{
	static volatile int stop;

	return (void *)spins(&stop);
}

__attribute__((noipa)) static int overflows(int depth)
{
	volatile char room[1000];

	room[depth % 1000] = 1;
	return depth < 0 ? 0 : overflows(depth + 1) + room[3];
}

static void *overflower(void *arg)
{
	return (void *)(long)overflows(1);
}

static int ends_it(struct scry_stack_overflow *overflow, void *arg)
{
	return 1;
}

static void wait_in_handler(int signal)
{
	char byte;

	_exit(read(0, &byte, 1) > 0);
}

static void overflow_one(void)
{
	struct sigaction action = {.sa_handler = wait_in_handler, .sa_flags = SA_ONSTACK};
	struct scry_fiber *fiber;

	if (scry_fiber_spawn(NULL, overflower, NULL, &fiber) || sigaction(SIGUSR1, &action, NULL))
		_exit(1);
	scry_fiber_yield();
}

/* Comes back when each of them has had its slice. */
static void preempt_four(void)
{
	extern const char __start_leaf_safe[], __stop_leaf_safe[];
	struct scry_fiber *fiber;

	for (int i = 0; i < 4; i++)
		if (scry_fiber_spawn(NULL, spinner, NULL, &fiber))
			_exit(1);
	if (scry_preempt_allow(__start_leaf_safe, __stop_leaf_safe) || scry_preempt_start(1000000))
		_exit(1);
	scry_fiber_yield();
	scry_preempt_stop();
}

/* In the child of a fork: all that were there are lost. */
static void be_child(void)
{
	struct scry_fiber_attr attr = {.name = "of the child"};
	struct scry_fiber *fiber;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < 2; i++)
		if (scry_fiber_spawn(&attr, sleeper, NULL, &fiber))
			_exit(1);
	scry_fiber_yield();
	printf("pid %d asleep 2 reading 0 new 0 ended 0\n", (int)getpid());
	fflush(stdout);
	_exit(read(0, &byte, 1) > 0);
}

static void *has_fibers(void *arg)
{
	char **argv = arg;
	int count = atoi(argv[1]), pipes[3][2];
	struct scry_fiber_attr attr = {.size_bytes = (size_t)atoi(argv[2]) * 1024,
				       .name = "sleeper"};
	struct scry_fiber *fiber;
	char byte;

	if (scry_fiber_open(
		    &(struct scry_fiber_sched_attr){.on_overflow = ends_it, .report_fd = -1}, NULL))
		_exit(1);
	for (int i = 0; i < count; i++)
		if (scry_fiber_new(&attr, sleeper, NULL, &fiber) || scry_fiber_start(fiber))
			_exit(1);
	for (int i = 0; i < 3; i++)
		if (pipe(pipes[i]) || scry_fiber_new(NULL, reader, &pipes[i][0], &fiber) ||
		    scry_fiber_start(fiber))
			_exit(1);
	for (int i = 0; i < 2; i++)
		if (scry_fiber_new(NULL, sleeper, NULL, &fiber))
			_exit(1);
	if (scry_fiber_new(NULL, ender, NULL, &fiber) || scry_fiber_start(fiber))
		_exit(1);
	scry_fiber_yield();
	if (argv[3] && strcmp(argv[3], "child") == 0) {
		if (fork() == 0)
			be_child();
		wait(NULL);
		_exit(0);
	}
	if (argv[3] && strcmp(argv[3], "preempted") == 0)
		preempt_four();
	if (argv[3] && strcmp(argv[3], "overflowed") == 0)
		overflow_one();
	if (argv[3] && strcmp(argv[3], "left") == 0)
		return NULL;
	printf("pid %d asleep %d reading 3 new 2 ended 1\n", (int)getpid(), count);
	fflush(stdout);
	if (argv[3] && strcmp(argv[3], "overflowed") == 0)
		raise(SIGUSR1);
	if (read(0, &byte, 1) > 0)
		execl("/bin/sleep", "sleep", "1000", NULL);
	_exit(0);
}

int main(int argc, char **argv)
{
	pthread_t thread;
	char byte;

	if (argc < 3)
		return 1;
	if (argc == 3 || (strcmp(argv[3], "second") != 0 && strcmp(argv[3], "left") != 0))
		has_fibers(argv);
	if (pthread_create(&thread, NULL, has_fibers, argv))
		return 1;
	if (strcmp(argv[3], "second") == 0)
		pthread_exit(NULL);
	pthread_join(thread, NULL);
	printf("pid %d asleep %s reading 3 new 2 ended 1\n", (int)getpid(), argv[1]);
	fflush(stdout);
	return read(0, &byte, 1) > 0;
}
