/* The agent's SIGTRAP handler, as it is when no keeper is there: run by real int3s. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/agent.h"

void scry_agent_trap(int signal, const uint8_t *info, uint8_t *context);

static uint8_t *page;

static void on_trap(int signal, siginfo_t *info, void *context)
{
	scry_agent_trap(signal, (const uint8_t *)info, context);
}

/* mov $value, %eax; ret */
static void put_function(uint8_t *at, uint8_t value)
{
	memcpy(at, (const uint8_t[]){0xb8, value, 0, 0, 0, 0xc3}, 6);
}

static void put_copy(int number, const uint8_t *of, uint8_t value)
{
	uint8_t *copy = page + 2048 + SCRY_BREAKS_HEAD + number * (int)SCRY_BREAKS_SLOT;

	put_function(copy, value);
	memcpy(copy + SCRY_BREAKS_COPY, &of, sizeof(of));
}

static int call(const uint8_t *at)
{
	int (*function)(void);

	memcpy(&function, &at, sizeof(at));
	return function();
}

/* Two slabs; breakpoints at page + 64 and page + 128, both copied in the second one. */
static int setup(void **state)
{
	struct sigaction act = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};

	(void)state;
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	if (page == MAP_FAILED)
		return -1;
	scry_agent.trap.slab_count = 2;
	for (int i = 0; i < 2; i++) {
		scry_agent.trap.slabs[i].code = (uint64_t)(page + 1024 * (i + 1));
		scry_agent.trap.slabs[i].copies = 4;
	}
	put_copy(0, page + 64, 10);
	put_copy(1, page + 128, 11);
	put_function(page + 64, 1);
	put_function(page + 128, 2);
	return sigaction(SIGTRAP, &act, NULL);
}

static void test_copies(void **state)
{
	(void)state;
	assert_int_equal(call(page + 64), 1);
	page[64] = page[128] = 0xcc;
	assert_int_equal(call(page + 64), 10);
	assert_int_equal(call(page + 128), 11);
	page[128] = 0xb8;
	assert_int_equal(call(page + 128), 2);
}

/* Where it goes on from `ip`. */
static uint64_t next(const uint8_t *ip)
{
	siginfo_t info = {.si_signo = SIGTRAP, .si_code = SI_KERNEL};
	ucontext_t context = {0};

	context.uc_mcontext.gregs[REG_RIP] = (greg_t)ip;
	scry_agent_trap(SIGTRAP, (const uint8_t *)&info, (uint8_t *)&context);
	return (uint64_t)context.uc_mcontext.gregs[REG_RIP];
}

static void test_in_between(void **state)
{
	const uint8_t *copy = page + 2048 + SCRY_BREAKS_HEAD;

	(void)state;
	page[64] = 0xcc;
	page[128] = 0xb8;
	assert_int_equal(next(page + 65), (uint64_t)copy);
	assert_int_equal(next(page + 129), (uint64_t)(page + 128)); /* undone meanwhile */
	assert_int_equal(next(copy), (uint64_t)copy);		    /* sent on already */
	assert_int_equal(next(page + 128), (uint64_t)(page + 128));
	assert_int_equal(next(page + 300), (uint64_t)(page + 300)); /* to make a call of ours */
}

/* How a child ends in which `run` is done. */
static int end_of(void (*run)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		run();
		_exit(0);
	}
	assert_true(waitpid(pid, &status, 0) == pid);
	return status;
}

static void own_int3(void)
{
	page[512] = 0xcc;
	page[513] = 0xc3;
	call(page + 512);
}

static void own_signal(void)
{
	raise(SIGTRAP);
}

static void test_own(void **state)
{
	int status = end_of(own_int3);

	(void)state;
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTRAP);
	status = end_of(own_signal);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTRAP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_in_between),
		cmocka_unit_test(test_own),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
