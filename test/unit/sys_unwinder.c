/*
 * sys/unwinder against glibc's backtrace() of a thread of ours that stands in a system call in a
 * known chain of functions; from two registers and from all; and over random stacks.
 */
#include "sys/unwinder.h"

#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "sys/task.h"

#define DEPTH 30

static struct {
	int fds[2];
	_Atomic pid_t tid;
	void *told[128];
	int count;
} stands;

static __attribute__((noinline)) int down(int n)
{
	volatile char keep[64] = {0};
	char byte;

	if (n)
		return down(n - 1) + 1 + keep[n % 64];
	stands.count = backtrace(stands.told, 128);
	stands.tid = gettid();
	return read(stands.fds[0], &byte, 1) == 1;
}

static int compare(const void *a, const void *b)
{
	return down(DEPTH) + (a > b);
}

/* Through libc: qsort calls back. */
static void *stand(void *arg)
{
	int two[2] = {1, 2};

	qsort(two, 2, sizeof(int), compare);
	return arg;
}

static void test_blocked(void **state)
{
	const struct scry_space space = {.pid = getpid()};
	static struct scry_native_frame frames[SCRY_UNWINDER_FRAMES_MAX];
	struct scry_modules *modules;
	struct scry_unwinder *u;
	enum scry_native_end end;
	struct scry_task task;
	struct scry_task_now now;
	struct scry_mem mem;
	pthread_t thread;
	size_t n;

	assert_int_equal(pipe(stands.fds), 0);
	assert_int_equal(pthread_create(&thread, NULL, stand, NULL), 0);
	while (!stands.tid)
		usleep(1000);
	scry_task_open(&task, getpid(), stands.tid);
	do
		scry_task_read(&task, &now);
	while (now.is_running || now.nr != 0);
	assert_int_equal(scry_mem_open(&mem, getpid(), 0), 0);
	modules = scry_modules_of(&space);
	assert_non_null(modules);
	assert_int_equal(scry_unwinder_open(modules, &mem, &u), 0);
	n = scry_unwinder_walk(u, scry_unwinder_blocked(now.pc, now.sp), frames, &end);
	assert_int_equal(end, SCRY_NATIVE_WHOLE);
	assert_true(scry_task_rests(&task, &now));
	assert_true(frames[0].is_exact && !frames[1].is_exact);
	/* read, then the function that called it and backtrace() at another place; its callers */
	assert_true(stands.count > DEPTH + 3 && n > (size_t)stands.count);
	for (int i = 1; i < stands.count; i++)
		assert_int_equal(frames[n - (size_t)i].pc,
				 (uintptr_t)stands.told[stands.count - i]);
	for (int i = 0; i < DEPTH; i++)
		assert_int_equal(frames[n - (size_t)stands.count + 1 + (size_t)i].function,
				 (uintptr_t)down);
	assert_int_equal(scry_unwinder_function(u, (uintptr_t)down + 1), (uintptr_t)down);
	assert_int_equal(scry_unwinder_function(u, 4096), 0);
	scry_unwinder_close(u);
	scry_modules_free(modules);
	scry_mem_close(&mem);
	scry_task_close(&task);
	assert_int_equal(write(stands.fds[1], "x", 1), 1);
	pthread_join(thread, NULL);
	close(stands.fds[0]);
	close(stands.fds[1]);
}

static uint64_t rng = 0x5c73;

static uint64_t next_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

#define STACK_AT 0x7f0000000000ull
#define STACK_BYTES (65536u - 264u) /* a copy ends anywhere */

static int read_stack(const void *image, uint64_t addr, void *buf, size_t size)
{
	if (addr < STACK_AT || addr > STACK_AT + STACK_BYTES ||
	    size > STACK_AT + STACK_BYTES - addr)
		return -EFAULT;
	memcpy(buf, (const uint8_t *)image + (addr - STACK_AT), size);
	return 0;
}

/* Words that are random, places of the stack, or places of code. */
static void test_random(void **state)
{
	const struct scry_space space = {.pid = getpid()};
	static struct scry_native_frame frames[SCRY_UNWINDER_FRAMES_MAX];
	static uint64_t stack[STACK_BYTES / 8];
	const struct scry_mem mem = {.fd = -1, .image = stack, .image_read = read_stack};
	const uint64_t code[] = {(uintptr_t)qsort, (uintptr_t)down, (uintptr_t)pthread_create,
				 (uintptr_t)printf, (uintptr_t)scry_unwinder_walk};
	struct scry_modules *modules;
	struct scry_unwinder *u;
	unsigned int ends[SCRY_NATIVE_TOO_DEEP + 1] = {0}, deep = 0;

	modules = scry_modules_of(&space);
	assert_non_null(modules);
	assert_int_equal(scry_unwinder_open(modules, &mem, &u), 0);
	for (int round = 0; round < 5000; round++) {
		struct user_regs_struct regs = {
			.rip = code[next_random() % 5] + next_random() % 512,
			.rsp = STACK_AT + next_random() % STACK_BYTES / 8 * 8,
			.rbp = STACK_AT + next_random() % STACK_BYTES / 8 * 8,
			.rbx = next_random(),
		};
		enum scry_native_end end = SCRY_NATIVE_TOO_DEEP;
		size_t n;

		for (size_t i = 0; i < 64; i++) {
			uint64_t r = next_random();

			stack[next_random() % (STACK_BYTES / 8)] =
				r % 3 == 0   ? r
				: r % 3 == 1 ? STACK_AT + r % STACK_BYTES / 8 * 8
					     : code[r % 5] + (r >> 8) % 512;
		}
		for (size_t i = 0; i < STACK_BYTES / 8 && round % 500 == 0; i++)
			stack[i] = code[next_random() % 5] + next_random() % 512;
		n = scry_unwinder_walk(u, scry_unwinder_at(&regs), frames, &end);
		assert_true(n >= 1 && n <= SCRY_UNWINDER_FRAMES_MAX);
		ends[end]++;
		deep += n > 3;
	}
	assert_true(deep > 50); /* the stacks led somewhere */
	assert_true(ends[SCRY_NATIVE_NO_RULE] && ends[SCRY_NATIVE_UNREADABLE]);
	scry_unwinder_close(u);
	scry_modules_free(modules);
	scry_error_clear();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocked),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
