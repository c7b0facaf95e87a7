/*
 * What tools that watch a program have to know of stacks: AddressSanitizer and ThreadSanitizer
 * when the program was built with one (their functions are there then, whether or not this library
 * was built so), valgrind when it runs under it and its header was there. Where none is, a switch
 * goes by without a look: SCRY_KEEP_NOTIFIED is not in the fibers' state.
 */
#include "fiber/fiber.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#define VALGRIND_STACK_REGISTER(low, high) 0
#define VALGRIND_STACK_DEREGISTER(id) ((void)(id))
#define VALGRIND_DISABLE_ERROR_REPORTING ((void)0)
#define VALGRIND_ENABLE_ERROR_REPORTING ((void)0)
#endif

/* sanitizer/common_interface_defs.h, sanitizer/asan_interface.h, sanitizer/tsan_interface.h */
void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size)
	__attribute__((weak));
void __sanitizer_finish_switch_fiber(void *saved, const void **bottom, size_t *size)
	__attribute__((weak));
void __asan_unpoison_memory_region(const volatile void *low, size_t size) __attribute__((weak));
void *__tsan_get_current_fiber(void) __attribute__((weak));
void *__tsan_create_fiber(unsigned flags) __attribute__((weak));
void __tsan_destroy_fiber(void *fiber) __attribute__((weak));
void __tsan_switch_to_fiber(void *fiber, unsigned flags) __attribute__((weak));

int scry_fiber_report_open(struct scry_fiber_sched *sched, struct scry_fiber *main)
{
	pthread_attr_t attr;
	void *low;
	size_t size;
	int error;

	if (RUNNING_ON_VALGRIND)
		sched->is_on_valgrind = true;
	if (__tsan_create_fiber != NULL)
		main->tsan = __tsan_get_current_fiber();
	if (__sanitizer_start_switch_fiber == NULL && __tsan_create_fiber == NULL)
		return 0;
	sched->keep |= SCRY_KEEP_NOTIFIED;
	error = pthread_getattr_np(pthread_self(), &attr);
	if (error != 0)
		return -error;
	error = pthread_attr_getstack(&attr, &low, &size);
	pthread_attr_destroy(&attr);
	main->stack.low = low;
	main->stack.top = (char *)low + size;
	return -error;
}

/* Whoever was on the stack left it in the middle of functions. Also in the handler of an overflow.
 */
void scry_fiber_report_emptied(struct scry_fiber *fiber)
{
	const struct scry_stack *stack = &fiber->stack;

	if (__asan_unpoison_memory_region != NULL)
		__asan_unpoison_memory_region(stack->low, (char *)stack->top - (char *)stack->low);
}

void scry_fiber_report_new(struct scry_fiber *fiber)
{
	const struct scry_stack *stack = &fiber->stack;

	if (fiber->sched->is_on_valgrind)
		fiber->valgrind = VALGRIND_STACK_REGISTER(stack->low, (char *)stack->top - 1);
	if (__tsan_create_fiber != NULL)
		fiber->tsan = __tsan_create_fiber(0);
	fiber->fake = NULL;
	scry_fiber_report_emptied(fiber);
}

void scry_fiber_report_free(struct scry_fiber *fiber)
{
	if (fiber->sched->is_on_valgrind)
		VALGRIND_STACK_DEREGISTER(fiber->valgrind);
	if (__tsan_destroy_fiber != NULL && fiber->tsan != NULL)
		__tsan_destroy_fiber(fiber->tsan);
	fiber->tsan = NULL;
}

void scry_fiber_report_begin(struct scry_fiber *fiber)
{
	if (__sanitizer_finish_switch_fiber != NULL)
		__sanitizer_finish_switch_fiber(NULL, NULL, NULL);
}

void scry_fiber_report_search(const struct scry_fiber_sched *sched, bool is_on)
{
	if (!sched->is_on_valgrind)
		return;
	if (is_on)
		VALGRIND_DISABLE_ERROR_REPORTING;
	else
		VALGRIND_ENABLE_ERROR_REPORTING;
}

void scry_fiber_report_switch(struct scry_fiber *from, struct scry_fiber *to)
{
	bool is_ending = (from->state & SCRY_STATE_MASK) >= SCRY_STATE_ENDED;
	const struct scry_stack *stack = &to->stack;

	if (__sanitizer_start_switch_fiber != NULL)
		__sanitizer_start_switch_fiber(is_ending ? NULL : &from->fake, stack->low,
					       (char *)stack->top - (char *)stack->low);
	if (__tsan_switch_to_fiber != NULL)
		__tsan_switch_to_fiber(to->tsan, 0);
	scry_fiber_switch(from, to);
	if (__sanitizer_finish_switch_fiber != NULL)
		__sanitizer_finish_switch_fiber(from->fake, NULL, NULL);
}
