/* Pools: what is given out, how it is guarded, how many there can be, what comes back when it is
 * idle. */
#include "fiber/scry_stack.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct scry_stack_pool *pool_of(struct scry_stack_attr attr)
{
	struct scry_stack_pool *pool = NULL;

	assert_int_equal(scry_stack_pool_new(&attr, &pool), 0);
	return pool;
}

static size_t mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	size_t count = 0;
	int c;

	assert_non_null(maps);
	while ((c = getc(maps)) != EOF)
		count += c == '\n';
	fclose(maps);
	return count;
}

/* Bytes in memory, of the whole process. */
static size_t resident(void)
{
	FILE *statm = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	assert_non_null(statm);
	assert_int_equal(fscanf(statm, "%*u %lu", &pages), 1);
	fclose(statm);
	return pages * 4096;
}

/* The signal by which a child ends that touches an address; 0: it ends by itself. */
static int signal_of_touch(volatile char *address)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGSEGV, SIG_DFL); /* cmocka has a handler */
		*address = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void both_ends_are_usable_and_the_guard_is_not(void **state)
{
	struct scry_stack_pool *pool = pool_of((struct scry_stack_attr){.size_bytes = 64 << 10});
	struct scry_stack stack;

	assert_int_equal(scry_stack_get(pool, &stack), 0);
	assert_int_equal((uintptr_t)stack.top % 64, 0);
	assert_int_equal((char *)stack.top - (char *)stack.low, 64 << 10);
	assert_int_equal(signal_of_touch(stack.low), 0);
	assert_int_equal(signal_of_touch((char *)stack.top - 1), 0);
	assert_int_equal(signal_of_touch((char *)stack.low - 1), SIGSEGV);
	assert_int_equal(signal_of_touch((char *)stack.low - (64 << 10)), SIGSEGV);
	scry_stack_put(pool, &stack);
	scry_stack_pool_free(pool);
}

static void the_last_put_is_the_next_got(void **state)
{
	struct scry_stack_pool *pool = pool_of((struct scry_stack_attr){.size_bytes = 16 << 10});
	struct scry_stack a, b, c;

	assert_int_equal(scry_stack_get(pool, &a), 0);
	assert_int_equal(scry_stack_get(pool, &b), 0);
	assert_true(a.low != b.low);
	assert_true((uintptr_t)a.top % 4096 != (uintptr_t)b.top % 4096); /* coloured */
	scry_stack_put(pool, &a);
	scry_stack_put(pool, &b);
	assert_int_equal(scry_stack_get(pool, &c), 0);
	assert_ptr_equal(c.low, b.low);
	assert_int_equal(scry_stack_get(pool, &c), 0);
	assert_ptr_equal(c.low, a.low);
	assert_int_equal(scry_stack_pool_used(pool), 2);
	scry_stack_pool_free(pool);
}

static void sizes_are_by_call_by_environment_and_by_default(void **state)
{
	struct scry_stack_pool *pool;

	unsetenv("SCRY_STACK_SIZE");
	pool = pool_of((struct scry_stack_attr){0});
	assert_int_equal(scry_stack_pool_size(pool), 256 << 10);
	scry_stack_pool_free(pool);
	pool = pool_of((struct scry_stack_attr){.size_bytes = 40 << 10});
	assert_int_equal(scry_stack_pool_size(pool), 64 << 10);
	scry_stack_pool_free(pool);
	setenv("SCRY_STACK_SIZE", "128K", 1);
	pool = pool_of((struct scry_stack_attr){0});
	assert_int_equal(scry_stack_pool_size(pool), 128 << 10);
	scry_stack_pool_free(pool);
	pool = pool_of((struct scry_stack_attr){.size_bytes = 40 << 10});
	assert_int_equal(scry_stack_pool_size(pool), 128 << 10);
	scry_stack_pool_free(pool);
	unsetenv("SCRY_STACK_SIZE");
	assert_int_equal(
		scry_stack_pool_new(&(struct scry_stack_attr){.size_bytes = 2ul << 30}, &pool),
		-EINVAL);
}

static void many_are_guarded_in_few_mappings(void **state)
{
	enum { MANY = 100000 };
	struct scry_stack_pool *pool = pool_of((struct scry_stack_attr){.size_bytes = 64 << 10});
	size_t had = mappings(), memory = resident();
	struct scry_stack *stacks = calloc(MANY, sizeof(*stacks));

	assert_non_null(stacks);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(scry_stack_get(pool, &stacks[i]), 0);
		((volatile char *)stacks[i].top)[-1] = 1;
	}
	assert_in_range(mappings() - had, 1, 100);
	assert_in_range(resident() - memory, (size_t)MANY * 4096, (size_t)MANY * 4300);
	for (int i = 0; i < MANY; i += 9999)
		assert_int_equal(signal_of_touch((char *)stacks[i].low - 1), SIGSEGV);
	for (int i = 0; i < MANY; i++)
		scry_stack_put(pool, &stacks[i]);
	/* they stay while they may be needed, and go when nobody asked for them in between */
	assert_int_equal(scry_stack_pool_tick(pool), 0);
	assert_int_equal(scry_stack_pool_tick(pool), MANY);
	assert_in_range(resident(), 0, memory + (size_t)MANY * 400);
	assert_int_equal(scry_stack_pool_tick(pool), 0);
	assert_int_equal(scry_stack_get(pool, &stacks[0]), 0);
	assert_int_equal(((volatile char *)stacks[0].top)[-1], 0);
	free(stacks);
	scry_stack_pool_free(pool);
}

static void only_what_stays_free_is_released(void **state)
{
	struct scry_stack_pool *pool = pool_of((struct scry_stack_attr){.size_bytes = 16 << 10});
	struct scry_stack stacks[8], again;

	for (int i = 0; i < 8; i++)
		assert_int_equal(scry_stack_get(pool, &stacks[i]), 0);
	for (int i = 0; i < 8; i++)
		scry_stack_put(pool, &stacks[i]);
	assert_int_equal(scry_stack_pool_tick(pool), 0);
	assert_int_equal(scry_stack_get(pool, &again), 0);
	assert_int_equal(scry_stack_get(pool, &again), 0);
	assert_int_equal(scry_stack_pool_tick(pool), 6);
	scry_stack_pool_free(pool);
}

static void use_is_measured_and_advised(void **state)
{
	struct scry_stack_pool *pool =
		pool_of((struct scry_stack_attr){.size_bytes = 256 << 10, .is_measured = 1});
	struct scry_stack_use use;
	struct scry_stack stack;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_int_equal(scry_stack_advise(pool, out), -ENODATA);
	for (int round = 0; round < 2; round++) { /* the second user uses less of the same stack */
		assert_int_equal(scry_stack_get(pool, &stack), 0);
		scry_stack_name(pool, &stack, "worker", (void *)(round == 0 ? 0x1000ul : 0x2000ul));
		assert_int_equal(scry_stack_measure(pool, &stack, &use), 0);
		assert_int_equal(use.bytes, 0);
		memset((char *)stack.low + (round == 0 ? 156 : 248) * 1024, 1, 1024);
		assert_int_equal(scry_stack_measure(pool, &stack, &use), 0);
		assert_int_equal(use.bytes, (round == 0 ? 100 : 8) * 1024);
		assert_false(use.is_at_most);
		scry_stack_put(pool, &stack);
	}
	assert_int_equal(scry_stack_advise(pool, out), 0);
	fclose(out);
	assert_non_null(
		strstr(text, "0x1000                      1            100            256\n"));
	assert_non_null(
		strstr(text, "0x2000                      1              8             16\n"));
	free(text);
	scry_stack_pool_free(pool);
}

static void what_an_earlier_user_may_have_done_is_said(void **state)
{
	struct scry_stack_pool *pool = pool_of((struct scry_stack_attr){.size_bytes = 64 << 10});
	struct scry_stack_use use;
	struct scry_stack stack;

	assert_int_equal(scry_stack_get(pool, &stack), 0);
	memset(stack.low, 1, 100);
	scry_stack_put(pool, &stack);
	assert_int_equal(scry_stack_get(pool, &stack), 0);
	assert_int_equal(scry_stack_measure(pool, &stack, &use), 0);
	assert_int_equal(use.bytes, 64 << 10);
	assert_true(use.is_at_most);
	scry_stack_pool_free(pool);
}

/* In a child, as the pool's mappings are gone with it. */
static int in_child(int (*function)(void))
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(function());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int to_the_ceiling(void)
{
	struct scry_stack_pool *pool;
	struct scry_stack stack;
	int count = 0, error, most = 0;
	FILE *file = fopen("/proc/sys/vm/max_map_count", "r");

	if (file == NULL || fscanf(file, "%d", &most) != 1)
		return 1;
	fclose(file);
	setenv("SCRY_STACK_GUARD", "mprotect", 1);
	if (scry_stack_pool_new(&(struct scry_stack_attr){.size_bytes = 16 << 10, .report_fd = -1},
				&pool) != 0)
		return 2;
	while ((error = scry_stack_get(pool, &stack)) == 0)
		count++;
	if (error != -EAGAIN || count != most / 2 - 1000)
		return 3;
	if (strstr(scry_stack_pool_note(pool), "sysctl vm.max_map_count=") == NULL)
		return 4;
	if (signal_of_touch((char *)stack.low - 1) != SIGSEGV)
		return 5;
	/* the program goes on: what is left are mappings of its own */
	if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		return 6;
	scry_stack_pool_free(pool);
	if (scry_stack_pool_new(&(struct scry_stack_attr){.size_bytes = 16 << 10, .report_fd = -1},
				&pool) != 0)
		return 7;
	return scry_stack_get(pool, &stack) == 0 ? 0 : 8;
}

static void the_ceiling_of_mappings_is_an_error_that_names_the_knob(void **state)
{
	assert_int_equal(in_child(to_the_ceiling), 0);
}

static int ceiling_is_told(void)
{
	int pipes[2];
	char text[300] = "";
	struct scry_stack_pool *pool;
	struct scry_stack stack;

	setenv("SCRY_STACK_GUARD", "mprotect", 1);
	if (pipe(pipes) != 0 ||
	    scry_stack_pool_new(&(struct scry_stack_attr){.report_fd = pipes[1]}, &pool) != 0 ||
	    scry_stack_get(pool, &stack) != 0 || read(pipes[0], text, sizeof(text) - 1) <= 0)
		return 1;
	return strstr(text, "raise vm.max_map_count") != NULL ? 0 : 2;
}

static int put_twice(void)
{
	struct scry_stack_pool *pool;
	struct scry_stack stack;

	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
	if (freopen("/dev/null", "w", stderr) == NULL || scry_stack_pool_new(NULL, &pool) != 0 ||
	    scry_stack_get(pool, &stack) != 0)
		return 1;
	scry_stack_put(pool, &stack);
	signal(SIGABRT, SIG_DFL);
	scry_stack_put(pool, &stack);
	return 2;
}

static void a_stack_that_is_put_twice_ends_the_program(void **state)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(put_twice());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void the_ceiling_is_told_when_it_is_known(void **state)
{
	assert_int_equal(in_child(ceiling_is_told), 0);
}

static int in_locked_memory(void)
{
	struct scry_stack_pool *pool;
	struct scry_stack stack;
	size_t memory;

	if (mlockall(MCL_FUTURE) != 0)
		return 77;
	memory = resident();
	if (scry_stack_pool_new(&(struct scry_stack_attr){.size_bytes = 64 << 10, .report_fd = -1},
				&pool) != 0 ||
	    scry_stack_get(pool, &stack) != 0)
		return 1;
	if (strstr(scry_stack_pool_note(pool), "mprotect") == NULL)
		return 2;
	if (resident() - memory > 3u << 20) /* those that were opened, not the slab of 128 MiB */
		return 3;
	return signal_of_touch((char *)stack.low - 1) == SIGSEGV ? 0 : 4;
}

/* More than are opened at once, and all with guards, though memory is locked after the first. */
static int in_memory_that_is_locked_later(void)
{
	struct scry_stack first, stack;
	struct scry_stack_pool *pool;

	if (scry_stack_pool_new(&(struct scry_stack_attr){.size_bytes = 16 << 10, .report_fd = -1},
				&pool) != 0 ||
	    scry_stack_get(pool, &first) != 0)
		return 1;
	if (mlockall(MCL_CURRENT) != 0)
		return 77;
	for (int i = 0; i < 1500; i++) { /* of two slabs */
		if (scry_stack_get(pool, &stack) != 0)
			return 2;
		*((char *)stack.top - 1) = *(char *)stack.low = 1;
		if (i % 300 == 0 && signal_of_touch((char *)stack.low - 1) != SIGSEGV)
			return 3;
	}
	if (signal_of_touch((char *)first.low - 1) != SIGSEGV ||
	    signal_of_touch((char *)stack.low - 1) != SIGSEGV)
		return 4;
	scry_stack_pool_free(pool);
	return 0;
}

static void memory_that_is_locked_later_has_guards(void **state)
{
	int status;

#ifdef __SANITIZE_ADDRESS__
	skip(); /* AddressSanitizer makes mlockall do nothing */
#endif
	status = in_child(in_memory_that_is_locked_later);
	if (status == 77)
		skip(); /* needs a larger RLIMIT_MEMLOCK */
	assert_int_equal(status, 0);
}

static void locked_memory_has_guards_and_stays_small(void **state)
{
	int status;

#ifdef __SANITIZE_ADDRESS__
	skip(); /* AddressSanitizer makes mlockall do nothing */
#endif
	status = in_child(in_locked_memory);

	if (status == 77)
		skip(); /* needs a larger RLIMIT_MEMLOCK */
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ends_are_usable_and_the_guard_is_not),
		cmocka_unit_test(the_last_put_is_the_next_got),
		cmocka_unit_test(sizes_are_by_call_by_environment_and_by_default),
		cmocka_unit_test(many_are_guarded_in_few_mappings),
		cmocka_unit_test(only_what_stays_free_is_released),
		cmocka_unit_test(use_is_measured_and_advised),
		cmocka_unit_test(what_an_earlier_user_may_have_done_is_said),
		cmocka_unit_test(the_ceiling_of_mappings_is_an_error_that_names_the_knob),
		cmocka_unit_test(a_stack_that_is_put_twice_ends_the_program),
		cmocka_unit_test(the_ceiling_is_told_when_it_is_known),
		cmocka_unit_test(locked_memory_has_guards_and_stays_small),
		cmocka_unit_test(memory_that_is_locked_later_has_guards),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
