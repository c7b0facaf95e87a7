/*
 * The unwind information of the switch, at each of its instructions: the trap flag stops the
 * processor after every one, and the handler walks the stack with the unwinder of libgcc. Before
 * the stacks are exchanged the walk must end in the fiber that leaves, and after it in the one that
 * comes; never anywhere else, and never too early.
 */
#include "fiber/scry_fiber.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unwind.h>

#include <cmocka.h>

#define TRAP_FLAG 0x100
#define FRAMES 40
#define INTERRUPTED 3 /* the handler and what it returns to are before it */

enum walk { WALK_LOST, WALK_LEAVER, WALK_COMER };

static int (*volatile way)(struct scry_fiber *); /* to the comer */
static struct scry_fiber *leaver, *comer;
static volatile bool is_over;
static enum walk walked;
static bool ends_at_once; /* the one that comes */
static unsigned steps, lost, in_leaver, in_comer, changes, wrong_registers;
static uintptr_t lost_at;

/* Of the library: where each fiber's stack begins. Its unwind information begins a byte before. */
void scry_fiber_begin(void);

/* Two functions that a walk can be told by. */
static void *leaves(void *arg);
static void *comes(void *arg);

struct found {
	enum walk where;
	int frames;
	uintptr_t last;
};

/* The byte before ip is what is asked for. */
static bool is_in(uintptr_t ip, void *(*function)(void *))
{
	return _Unwind_FindEnclosingFunction((void *)ip) == (void *)function;
}

/* What callee-saved registers have in a function that called the switch: the same at each step of
 * the call. */
static struct kept {
	bool is_known;
	uintptr_t value[6];
} kept[2];

static void look_at_registers(struct _Unwind_Context *context, struct kept *of, bool is_innermost)
{
	static const int numbers[6] = {3,  6,  12,
				       13, 14, 15}; /* rbx, rbp, r12 to r15: psABI figure 3.36 */

	for (int i = 0; i < 6 && !is_innermost; i++) {
		uintptr_t value = _Unwind_GetGR(context, numbers[i]);

		if (!of->is_known)
			of->value[i] = value;
		wrong_registers += of->value[i] != value;
	}
	of->is_known = !is_innermost; /* it may change them itself while it runs */
}

static _Unwind_Reason_Code each_frame(struct _Unwind_Context *context, void *argument)
{
	struct found *found = argument;
	uintptr_t ip = _Unwind_GetIP(context);

	if (ip == 0 || ++found->frames == FRAMES)
		return _URC_END_OF_STACK;
	if (is_in(ip, leaves)) {
		found->where = WALK_LEAVER;
		look_at_registers(context, &kept[0], found->frames == INTERRUPTED);
	}
	if (is_in(ip, comes)) {
		found->where = WALK_COMER;
		look_at_registers(context, &kept[1], found->frames == INTERRUPTED);
	}
	found->last = ip;
	return _URC_NO_REASON;
}

static void on_step(int signal, siginfo_t *info, void *argument)
{
	ucontext_t *context = argument;
	struct found found = {WALK_LOST, 0, 0};

	if (is_over) {
		context->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
		return;
	}
	steps++;
	_Unwind_Backtrace(each_frame, &found);
	/* each fiber's stack ends where fibers begin */
	if ((uintptr_t)_Unwind_FindEnclosingFunction((void *)found.last) + 1 !=
	    (uintptr_t)scry_fiber_begin)
		found.where = WALK_LOST;
	else if (found.where == WALK_LOST) /* a new one, whose entry is not called yet */
		found.where = WALK_COMER;
	if (found.where == WALK_LOST && lost++ == 0)
		lost_at = context->uc_mcontext.gregs[REG_RIP];
	in_leaver += found.where == WALK_LEAVER;
	in_comer += found.where == WALK_COMER;
	changes += found.where != walked;
	walked = found.where;
}

/* These instructions are stepped through, too, and have to be walked from. */
#define set_flags(operation)                                                               \
	__asm__ volatile("pushf\n\t.cfi_adjust_cfa_offset 8\n\t" operation ", (%%rsp)\n\t" \
			 "popf\n\t.cfi_adjust_cfa_offset -8" ::                            \
				 : "cc", "memory")

static void step(void)
{
	set_flags("orq $0x100");
}

static void no_step(void)
{
	set_flags("andq $~0x100");
}

static void back(struct scry_fiber *to)
{
	if (way == scry_fiber_transfer)
		scry_fiber_transfer(to);
	else
		scry_fiber_yield();
}

__attribute__((noinline)) static void *comes(void *arg)
{
	while (!is_over && !ends_at_once)
		back(leaver);
	return arg;
}

__attribute__((noinline)) static void *leaves(void *arg)
{
	/* the first time to a fiber that is new, then to one that was there before */
	for (int i = 0; i < (ends_at_once ? 1 : 2); i++) {
		step();
		way(comer);
		no_step();
	}
	is_over = true;
	return arg;
}

static void single_steps(unsigned flags)
{
	struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO}, before;
	struct scry_fiber_sched_attr attr = {.flags = flags};

	walked = WALK_LEAVER;
	steps = lost = in_leaver = in_comer = changes = wrong_registers = 0;
	memset(kept, 0, sizeof(kept));
	lost_at = 0;
	is_over = false;
	assert_int_equal(scry_fiber_open(&attr, NULL), 0);
	assert_int_equal(scry_fiber_new(NULL, leaves, NULL, &leaver), 0);
	assert_int_equal(scry_fiber_new(NULL, comes, NULL, &comer), 0);
	assert_int_equal(sigaction(SIGTRAP, &action, &before), 0);
	assert_int_equal(scry_fiber_resume(leaver), 1);
	sigaction(SIGTRAP, &before, NULL);
	if (lost > 0)
		print_error("lost at %#lx, transfer is at %#lx\n", (unsigned long)lost_at,
			    (unsigned long)(uintptr_t)scry_fiber_transfer);
	assert_int_equal(lost, 0);
	assert_int_equal(wrong_registers, 0);
	assert_in_range(steps, 100, 100000);
	assert_true(in_leaver > 30 && in_comer > 30);
	assert_int_equal(changes, ends_at_once ? 2 : 4); /* there and back, twice */
	assert_int_equal(scry_fiber_join(leaver, NULL), 0);
	if (!ends_at_once)
		assert_int_equal(scry_fiber_start(comer), 0); /* it sees that all is over */
	assert_int_equal(scry_fiber_join(comer, NULL), 0);
	assert_int_equal(scry_fiber_close(), 0);
}

static void transfer_is_walked_at_each_instruction(void **state)
{
	way = scry_fiber_transfer;
	single_steps(0);
}

static void so_it_is_without_control_words(void **state)
{
	way = scry_fiber_transfer;
	single_steps(SCRY_FIBER_NO_FP);
}

static void resume_is_walked_at_each_instruction(void **state)
{
	way = scry_fiber_resume;
	single_steps(0);
}

/* An ended fiber leaves its stack without keeping anything. */
static void the_end_is_walked_at_each_instruction(void **state)
{
	way = scry_fiber_resume;
	ends_at_once = true;
	single_steps(0);
	single_steps(SCRY_FIBER_NO_FP);
	ends_at_once = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(transfer_is_walked_at_each_instruction),
		cmocka_unit_test(so_it_is_without_control_words),
		cmocka_unit_test(resume_is_walked_at_each_instruction),
		cmocka_unit_test(the_end_is_walked_at_each_instruction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
