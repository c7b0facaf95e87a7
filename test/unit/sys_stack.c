/* sys/stack: stacks whose ends are known, and those that only look like it. */
#include "sys/stack.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/maps.h"
#include "sys/mem.h"
#include "sys/proc.h"
#include "sys/tracee.h"

#define PAGE 4096ul
#define SMALL 65536ul
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

static volatile struct {
	pid_t tid;	 /* who stands where it is looked for */
	uintptr_t floor; /* its stack's end; 0: not to be known */
} * shared;

static void *stands(void *unused)
{
	shared->tid = (pid_t)syscall(SYS_gettid);
	for (;;)
		pause();
	return unused;
}

static void on_first(void)
{
	stands(NULL);
}

static void in_thread(void *stack, size_t size)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	if (stack)
		pthread_attr_setstack(&attr, stack, size);
	if (pthread_create(&thread, &attr, stands, NULL))
		_exit(2);
	for (;;)
		pause();
}

static void on_libcs(void)
{
	in_thread(NULL, 0);
}

/* In the midst of a block; and again in one that a guard happens to lie below. */
static void on_own(void)
{
	char *block =
		mmap(NULL, 8 * SMALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	in_thread(block + 4 * SMALL, SMALL);
}

static void on_own_above_guard(void)
{
	char *block =
		mmap(NULL, 8 * SMALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(block, SMALL, PROT_NONE);
	in_thread(block + 4 * SMALL, SMALL);
}

static ucontext_t first, other;

static void on_context(char *stack, size_t size)
{
	getcontext(&other);
	other.uc_stack.ss_sp = stack;
	other.uc_stack.ss_size = size;
	makecontext(&other, on_first, 0);
	swapcontext(&first, &other);
}

static void on_coroutines(void)
{
	char *block = malloc(8 * SMALL);

	on_context(block + 4 * SMALL, SMALL);
}

/* The first thread's own stack was in use to its end before. */
static void on_coroutines_deep(void)
{
	volatile char used[256 * 1024];

	memset((void *)used, 1, sizeof(used));
	on_coroutines();
	used[0] = 2;
}

static void *onto_coroutine(void *unused)
{
	on_coroutines();
	return unused;
}

static void in_libcs_on_coroutine(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, onto_coroutine, NULL))
		_exit(2);
	for (;;)
		pause();
}

/* Guard and stack by turns, as Ruby makes them: arenas for smaller stacks look the same. */
static void on_fiber(void)
{
	const size_t step = SMALL + PAGE;
	char *row =
		mmap(NULL, 5 * step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; i < 5; i++)
		mprotect(row + i * step, PAGE, PROT_NONE);
	shared->floor = (uintptr_t)row + 2 * step + PAGE;
	on_context(row + 2 * step + PAGE, SMALL);
}

/* As a libc that guards its stacks by advice: block, size and guard stand in the descriptor. */
static void *stands_advised(void *block)
{
	uint64_t tp, record[3] = {(uintptr_t)block, 4 * SMALL, PAGE};

	__asm__("mov %%fs:16, %0" : "=r"(tp));		  /* tcbhead_t: self */
	for (uint64_t at = tp; at < tp + 2048; at += 8) { /* where libc has its own */
		uint64_t *word = (uint64_t *)at;

		if (word[0] == (uintptr_t)block + SMALL && word[1] == 3 * SMALL)
			memcpy(word, record, sizeof(record));
	}
	return stands(NULL);
}

static void on_advised(void)
{
	char *block =
		mmap(NULL, 8 * SMALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attr;
	pthread_t thread;

	shared->floor = (uintptr_t)block + PAGE;
	if (madvise(block, PAGE, MADV_GUARD_INSTALL))
		stands(NULL); /* this kernel knows no such guards */
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, block + SMALL, 3 * SMALL);
	if (pthread_create(&thread, &attr, stands_advised, block))
		_exit(2);
	for (;;)
		pause();
}

static uint64_t spare; /* of the last look */
static bool
	is_spare_own; /* it lies in [stack] for the first thread, else where its descriptor is */

static void look_for_spare(const struct scry_tracee *t, const struct scry_mem *mem,
			   const struct scry_maps *maps)
{
	const struct scry_map_entry *m;
	static char bytes[2 * SCRY_STACK_SPARE]; /* on the stack children would inherit it */

	spare = scry_stack_spare(t, mem, maps);
	if (!spare)
		return;
	m = scry_maps_at(maps, spare);
	is_spare_own = m && spare - SCRY_STACK_SPARE >= m->start &&
		       spare + SCRY_STACK_SPARE <= m->end &&
		       (t->tid == t->pid ? !strcmp(m->path, "[stack]")
					 : t->regs.fs_base > spare && t->regs.fs_base < m->end);
	assert_int_equal(scry_mem_read(mem, spare - SCRY_STACK_SPARE, bytes, sizeof(bytes)), 0);
	for (size_t i = 0; i < sizeof(bytes); i++)
		assert_int_equal(bytes[i], 0);
}

static void look(void (*body)(void), size_t *ret_room, uintptr_t *ret_end)
{
	struct scry_maps maps = {0};
	struct scry_tracee t;
	struct scry_mem mem;
	pid_t pid, tid;

	shared->tid = 0;
	shared->floor = 0;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		body();
		_exit(0);
	}
	for (int tries = 0; tries < 5000; tries++) {
		if (shared->tid && scry_proc_task_state(pid, shared->tid) == 'S')
			break;
		usleep(1000);
	}
	tid = shared->tid;
	assert_true(tid);
	assert_int_equal(scry_mem_open(&mem, pid, 0), 0);
	assert_int_equal(scry_tracee_seize(&t, pid, tid), 0);
	assert_int_equal(scry_tracee_stop(&t, scry_now_ns() + 1000000000), 0);
	assert_int_equal(scry_maps_read(pid, &maps), 0);
	*ret_room = scry_stack_room(&t, &mem, &maps);
	*ret_end = t.regs.rsp - *ret_room;
	look_for_spare(&t, &mem, &maps);
	scry_tracee_release(&t);
	scry_maps_done(&maps);
	scry_mem_close(&mem);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void known(void **unused)
{
	uintptr_t end;
	size_t room;

	(void)unused;
	look(on_first, &room, &end);
	assert_true(room >= SCRY_CALL_ROOM);
	look(on_libcs, &room, &end);
	assert_true(room >= SCRY_CALL_ROOM);
	assert_int_equal(end % PAGE, 0);
	look(on_advised, &room, &end);
	assert_true(room >= SCRY_CALL_ROOM);
	if (end != shared->floor)
		print_message("no guards by advice on this kernel\n");
}

static void not_known(void **unused)
{
	uintptr_t end;
	size_t room;

	(void)unused;
	look(on_coroutines, &room, &end);
	assert_int_equal(room, 0);
	look(on_fiber, &room, &end);
	assert_int_equal(room, 0);
	look(on_own, &room, &end);
	assert_int_equal(room, 0);
	look(on_own_above_guard, &room, &end);
	assert_int_equal(room, 0);
}

/* Stands on another stack, and has one of its own, of which the end was never used. */
static void spares(void **unused)
{
	uintptr_t end;
	size_t room;

	(void)unused;
	look(on_coroutines, &room, &end);
	assert_true(spare && is_spare_own);
	look(in_libcs_on_coroutine, &room, &end);
	assert_int_equal(room, 0);
	assert_true(spare && is_spare_own);
	look(on_coroutines_deep, &room, &end);
	assert_int_equal(spare, 0);
	look(on_own, &room, &end);
	assert_int_equal(spare, 0);
	look(on_own_above_guard, &room, &end);
	assert_int_equal(spare, 0);
}

static int share(void **unused)
{
	(void)unused;
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return shared == MAP_FAILED;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(known), cmocka_unit_test(not_known),
					   cmocka_unit_test(spares)};

	return cmocka_run_group_tests(tests, share, NULL);
}
