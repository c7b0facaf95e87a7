/* Overflows, each in a child: what is reported, what is passed on, who goes on. */
#include "fiber/scry_stack.h"
#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

static char text[8192]; /* what the child wrote */

/* Runs a function on a stack of the pool. */
static ucontext_t outer;
static void on_stack(struct scry_stack_pool *pool, const char *name, void (*function)(void))
{
	static ucontext_t inner;
	struct scry_stack stack;

	if (scry_stack_get(pool, &stack) != 0)
		_exit(90);
	scry_stack_name(pool, &stack, name, (void *)function);
	getcontext(&inner);
	inner.uc_stack.ss_sp = stack.low;
	inner.uc_stack.ss_size = (char *)stack.top - (char *)stack.low;
	inner.uc_link = &outer;
	makecontext(&inner, function, 0);
	swapcontext(&outer, &inner);
}

/* Status of a child that runs a function with standard error in `text`. */
static int child_status(void (*function)(void))
{
	int pipes[2], status;
	size_t held = 0;
	ssize_t got;
	pid_t child;

	assert_int_equal(pipe(pipes), 0);
	child = fork();
	if (child == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGSEGV, SIG_DFL); /* cmocka has handlers */
		signal(SIGBUS, SIG_DFL);
		dup2(pipes[1], STDERR_FILENO);
		close(pipes[0]);
		close(pipes[1]);
		function();
		_exit(0);
	}
	close(pipes[1]);
	while ((got = read(pipes[0], text + held, sizeof(text) - 1 - held)) > 0)
		held += got;
	text[held] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static bool dies_by(int status, int signal)
{
	return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

static struct scry_stack_pool *watched_pool(struct scry_stack_attr attr)
{
	struct scry_stack_pool *pool;

	if (scry_stack_watch() != 0 || scry_stack_pool_new(&attr, &pool) != 0)
		_exit(91);
	return pool;
}

static void call_small(void)
{
	frames_small(0);
}

static void call_40k(void)
{
	volatile char most_of_it[48 << 10];

	most_of_it[0] = 1;
	frames_of_40k(1);
	most_of_it[1] = most_of_it[0];
}

static void call_200k(void)
{
	frames_of_200k(1);
}

static void call_200k_probed(void)
{
	frames_of_200k_probed(1);
}

static void overflow_small(void)
{
	on_stack(watched_pool((struct scry_stack_attr){.size_bytes = 64 << 10}), "worker 7",
		 call_small);
}

static void a_recursion_is_reported_by_name_with_its_frame(void **state)
{
	unsigned long frame = 0;
	const char *at;

	assert_true(dies_by(child_status(overflow_small), SIGSEGV));
	assert_non_null(strstr(text, "scry_stack: overflow of worker 7, stack 0: 65536 bytes"));
	at = strstr(text, "in frames_small+0x");
	assert_non_null(at);
	assert_int_equal(sscanf(strstr(at, ", frame "), ", frame %lu bytes", &frame), 1);
	assert_in_range(frame, 1000, 1100);
	assert_non_null(strstr(text, "called by frames_small+0x"));
	assert_non_null(strstr(text, "SCRY_STACK_SIZE=128K"));
	assert_non_null(strstr(text, " rip 0x"));
}

static void overflow_by_mprotect(void)
{
	setenv("SCRY_STACK_GUARD", "mprotect", 1);
	on_stack(watched_pool((struct scry_stack_attr){.size_bytes = 64 << 10}), "worker 7",
		 call_small);
}

static void so_it_is_with_guards_by_mprotect(void **state)
{
	assert_true(dies_by(child_status(overflow_by_mprotect), SIGSEGV));
	assert_non_null(strstr(text, "in frames_small+0x"));
}

static void overflow_40k(void)
{
	on_stack(watched_pool((struct scry_stack_attr){.size_bytes = 64 << 10}), NULL, call_40k);
}

static void a_frame_up_to_the_guard_is_caught_without_probes(void **state)
{
	unsigned long frame = 0;

	assert_true(dies_by(child_status(overflow_40k), SIGSEGV));
	assert_non_null(strstr(text, "overflow of stack 0"));
	assert_non_null(strstr(text, "in frames_of_40k+0x"));
	assert_int_equal(sscanf(strstr(text, ", frame "), ", frame %lu bytes", &frame), 1);
	assert_in_range(frame, (40 << 10) - 128,
			(40 << 10) + 100); /* of a leaf, 128 bytes may lie below it */
}

/* The second stack lies above the first; a frame larger than the guard steps over it, into the
 * first. */
static void step_over(void)
{
	struct scry_stack_pool *pool =
		watched_pool((struct scry_stack_attr){.size_bytes = 128 << 10});
	struct scry_stack first;

	if (scry_stack_get(pool, &first) != 0)
		_exit(92);
	on_stack(pool, NULL, call_200k);
}

static void step_over_probed(void)
{
	struct scry_stack_pool *pool =
		watched_pool((struct scry_stack_attr){.size_bytes = 128 << 10});
	struct scry_stack first;

	if (scry_stack_get(pool, &first) != 0)
		_exit(92);
	on_stack(pool, NULL, call_200k_probed);
}

static void a_larger_frame_is_caught_with_probes_only(void **state)
{
	assert_int_equal(child_status(step_over), 0);
	assert_null(strstr(text, "scry_stack: overflow")); /* sanitizers talk, too */
	assert_true(dies_by(child_status(step_over_probed), SIGSEGV));
	assert_non_null(strstr(text, "in frames_of_200k_probed+0x"));
}

static void dereference_null(void)
{
	*(volatile int *)NULL = 1;
}

static void null_on_stack(void)
{
	on_stack(watched_pool((struct scry_stack_attr){0}), "worker", dereference_null);
}

static char *stray; /* an address in the guard of another stack */
static void write_stray(void)
{
	*(volatile char *)stray = 1;
}

static void stray_on_stack(void)
{
	struct scry_stack_pool *pool = watched_pool((struct scry_stack_attr){0});
	struct scry_stack other;

	if (scry_stack_get(pool, &other) != 0)
		_exit(92);
	stray = (char *)other.low - 8;
	on_stack(pool, "worker", write_stray);
}

/* In a pool's own guard, but far below the stack pointer: no growing stack reaches there. */
static char *far_below;
static void write_far_below(void)
{
	*(volatile char *)far_below = 1;
}

static void read_far_below(void)
{
	far_below[1] = *(volatile char *)far_below;
}

static void jump_far_below(void)
{
	((void (*)(void))(uintptr_t)far_below)();
}

/* As deep as a jump into the guard has to be to look like an overflow. */
static void jump_near(void)
{
	volatile char room[240 << 10];

	room[0] = 1;
	jump_far_below();
	room[1] = room[0];
}

static void astray(void (*function)(void))
{
	struct scry_stack_pool *pool = watched_pool((struct scry_stack_attr){0});
	struct scry_stack stack;

	if (scry_stack_get(pool, &stack) != 0)
		_exit(92);
	far_below = (char *)stack.low - 8;
	scry_stack_put(pool, &stack);
	on_stack(pool, "worker", function);
}

static void write_astray(void)
{
	astray(write_far_below);
}

static void write_astray_by_mprotect(void)
{
	setenv("SCRY_STACK_GUARD", "mprotect", 1);
	astray(write_far_below);
}

static void read_astray(void)
{
	astray(read_far_below);
}

static void jump_astray(void)
{
	astray(jump_near);
}

/* From a stack that is none of the pool's. */
static void from_main_stack(void)
{
	struct scry_stack_pool *pool = watched_pool((struct scry_stack_attr){0});
	struct scry_stack other;

	if (scry_stack_get(pool, &other) != 0)
		_exit(92);
	stray = (char *)other.low - 8;
	write_stray();
}

static void stray_by_mprotect(void)
{
	setenv("SCRY_STACK_GUARD", "mprotect", 1);
	stray_on_stack();
}

static void what_goes_astray_into_a_guard_is_not_reported(void **state)
{
	static void (*const ways[])(void) = {
		stray_by_mprotect,	  from_main_stack, write_astray,
		write_astray_by_mprotect, read_astray,	   jump_astray,
	};

	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		assert_true(dies_by(child_status(ways[i]), SIGSEGV));
		assert_null(strstr(text, "scry_stack: overflow"));
	}
}

static void other_faults_are_not_reported(void **state)
{
	assert_true(dies_by(child_status(null_on_stack), SIGSEGV));
	assert_null(strstr(text, "scry_stack: overflow")); /* sanitizers talk, too */
	assert_true(dies_by(child_status(stray_on_stack), SIGSEGV));
	assert_null(strstr(text, "scry_stack: overflow")); /* sanitizers talk, too */
}

static char own_signal_stack[32 << 10];

static void own_handler(int signal, siginfo_t *info, void *context)
{
	stack_t stack;

	if (sigaltstack(NULL, &stack) != 0 || stack.ss_sp != own_signal_stack)
		_exit(93);
	_exit(info->si_addr == NULL && (char *)&stack > own_signal_stack &&
			      (char *)&stack < own_signal_stack + sizeof(own_signal_stack)
		      ? 42
		      : 94);
}

static void install_own(void)
{
	struct sigaction action = {.sa_sigaction = own_handler,
				   .sa_flags = SA_SIGINFO | SA_ONSTACK};

	sigaltstack(&(stack_t){.ss_sp = own_signal_stack, .ss_size = sizeof(own_signal_stack)},
		    NULL);
	sigaction(SIGSEGV, &action, NULL);
}

static void null_with_own_handler(void)
{
	install_own();
	null_on_stack();
}

static void overflow_with_own_handler(void)
{
	install_own();
	overflow_small();
}

static void the_programs_handler_and_signal_stack_are_kept(void **state)
{
	int status = child_status(null_with_own_handler);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 42);
	assert_true(dies_by(child_status(overflow_with_own_handler), SIGSEGV));
	assert_non_null(strstr(text, "in frames_small+0x"));
}

static struct sigaction before_own;

static void passes_on(int signal, siginfo_t *info, void *context)
{
	static const char said[] = "passed on\n";

	if (write(STDERR_FILENO, said, sizeof(said) - 1) < 0)
		_exit(97);
	before_own.sa_sigaction(signal, info, context);
}

static void counts(int signal)
{
	static int calls;

	(void)signal;
	if (++calls == 2)
		_exit(9);
}

static void null_with_handler_for_once(void)
{
	struct sigaction action = {.sa_handler = counts, .sa_flags = (int)SA_RESETHAND};

	sigaction(SIGSEGV, &action, NULL);
	stray_on_stack();
}

/* Its instruction runs again when it returns, and then nobody is there. */
static void a_handler_for_once_is_called_once(void **state)
{
	(void)state;
	assert_true(dies_by(child_status(null_with_handler_for_once), SIGSEGV));
}

/* The program's handler calls the library's, which then puts itself in front of it again. */
static void null_in_a_circle(void)
{
	struct sigaction action = {.sa_sigaction = passes_on, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	if (scry_stack_watch() != 0)
		_exit(91);
	sigaction(SIGSEGV, &action, &before_own);
	null_on_stack();
}

static sigjmp_buf back_to;

static void jumps_out(int signal)
{
	siglongjmp(back_to, signal);
}

static void null_deeper(void)
{
	volatile char room[8192];

	room[0] = 0;
	dereference_null();
	room[1] = room[0];
}

/* In a thread without a signal stack, so that the second fault's frames lie below the first one's.
 */
static void jump_out_twice(void)
{
	const stack_t none = {.ss_flags = SS_DISABLE};

	signal(SIGSEGV, jumps_out);
	if (scry_stack_watch() != 0)
		_exit(91);
	sigaltstack(&none, NULL);
	if (sigsetjmp(back_to, 1) == 0)
		dereference_null();
	if (sigsetjmp(back_to, 1) == 0)
		null_deeper();
	_exit(43);
}

static void a_handler_may_leave_by_a_jump(void **state)
{
	int status = child_status(jump_out_twice);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 43);
}

static void handlers_that_call_each_other_end(void **state)
{
	assert_true(dies_by(child_status(null_in_a_circle), SIGSEGV));
	assert_non_null(strstr(text, "passed on\n"));
	assert_null(strstr(strstr(text, "passed on\n") + 1, "passed on\n")); /* once */
}

static void goes_on(void *argument)
{
	_exit(argument == own_signal_stack ? 43 : 95);
}

static int resume_elsewhere(struct scry_stack_overflow *overflow, void *arg)
{
	if (strncmp(overflow->function, "frames_small+0x", 15) != 0 || overflow->frame_bytes < 1000)
		return 0;
	overflow->resume_ip = (uintptr_t)goes_on;
	overflow->resume_sp = overflow->top - 8;
	overflow->resume_argument = (uintptr_t)arg;
	return 1;
}

static void overflow_with_callback(void)
{
	on_stack(watched_pool((struct scry_stack_attr){.size_bytes = 64 << 10,
						       .on_overflow = resume_elsewhere,
						       .arg = own_signal_stack}),
		 NULL, call_small);
}

static void a_callback_may_go_on_elsewhere(void **state)
{
	int status = child_status(overflow_with_callback);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 43);
}

static void read_into_guard(void)
{
	int zero = open("/dev/zero", 0);
	ssize_t got = read(zero, stray, 8);

	_exit(got < 0 && errno == EFAULT ? 44 : 96);
}

static void system_call_on_stack(void)
{
	struct scry_stack_pool *pool = watched_pool((struct scry_stack_attr){0});
	struct scry_stack other;

	if (scry_stack_get(pool, &other) != 0)
		_exit(92);
	stray = (char *)other.low - 8;
	on_stack(pool, "worker", read_into_guard);
}

static void a_system_call_gets_efault(void **state)
{
	int status = child_status(system_call_on_stack);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 44);
	assert_null(strstr(text, "scry_stack: overflow")); /* sanitizers talk, too */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_recursion_is_reported_by_name_with_its_frame),
		cmocka_unit_test(so_it_is_with_guards_by_mprotect),
		cmocka_unit_test(a_frame_up_to_the_guard_is_caught_without_probes),
		cmocka_unit_test(a_larger_frame_is_caught_with_probes_only),
		cmocka_unit_test(other_faults_are_not_reported),
		cmocka_unit_test(what_goes_astray_into_a_guard_is_not_reported),
		cmocka_unit_test(the_programs_handler_and_signal_stack_are_kept),
		cmocka_unit_test(a_handler_for_once_is_called_once),
		cmocka_unit_test(handlers_that_call_each_other_end),
		cmocka_unit_test(a_handler_may_leave_by_a_jump),
		cmocka_unit_test(a_callback_may_go_on_elsewhere),
		cmocka_unit_test(a_system_call_gets_efault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
