/*
 * What the agent fetches of a call, while somebody else writes into the record: it lies in memory
 * that fork children share, which may have fewer rights than the caller. Another thread stands for
 * them. It changes what a part says, its length and its bytes; none of that may be a pointer, a
 * length or a format to the agent.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "agent/fetch.h"

#define ROUNDS 20000
#define PAGE 4096
#define RECORD_BYTES (8 * SCRY_CALL_MORE_MAX)
#define PART_WORDS (sizeof(struct scry_call_part) / 8)

static struct scry_control control;
static char secret[64] = "that of the parent alone";
static uint64_t *record; /* its end is that of what is mapped */

static struct {
	uint64_t *at;
	uint64_t words[4]; /* what is written there, again and again */
	bool is_over;
} enemy;

static void *write_it(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&enemy.is_over, __ATOMIC_RELAXED))
		for (int i = 0; i < 4; i++)
			__atomic_store_n(&enemy.at[i], enemy.words[i], __ATOMIC_RELAXED);
	return NULL;
}

static int set_up(void **state)
{
	uint8_t *at = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(at, MAP_FAILED);
	assert_int_equal(mprotect(at, 2 * PAGE, PROT_READ | PROT_WRITE), 0);
	record = (uint64_t *)(void *)(at + 2 * PAGE - RECORD_BYTES);
	scry_agent.control = &control;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return munmap((uint8_t *)record + RECORD_BYTES - 2 * PAGE, 3 * PAGE);
}

struct plan {
	struct scry_call_plan head;
	struct scry_fetch ops[2];
};

/* The call that `plan` is of, many times; `check` looks at each record. */
static void fetch(const struct plan *plan, const uint64_t *registers, void (*check)(uint32_t words))
{
	pthread_t thread;

	enemy.is_over = false;
	assert_int_equal(pthread_create(&thread, NULL, write_it, NULL), 0);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t slot[2] = {0};
		struct scry_fetching f = {.plan = &plan->head,
					  .registers = registers,
					  .slot = slot,
					  .string_max = 64};

		check(scry_fetch(&f, record));
	}
	__atomic_store_n(&enemy.is_over, true, __ATOMIC_RELAXED);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static struct named {
	uint64_t number;
	const char *name;
} named = {1, "hello"};

static const struct scry_call_part *second_part(void)
{
	return (const void *)(record + PART_WORDS + sizeof(named) / 8);
}

static void is_hello(uint32_t words)
{
	assert_int_equal(words, 2 * PART_WORDS + sizeof(named) / 8 + 1);
	assert_int_equal(second_part()->address, (uint64_t)named.name);
	assert_int_equal(second_part()->bytes, 5);
	assert_memory_equal(second_part() + 1, "hello", 5);
}

/* struct named *: a pointer in what was read. */
static void pointers(void **state)
{
	const struct plan plan = {
		.head = {.entry = 2},
		.ops = {{.length = SCRY_FETCH_FIXED,
			 .from = SCRY_AT_REGISTER,
			 .max = sizeof(named)},
			{.length = SCRY_FETCH_NUL,
			 .from = SCRY_AT_PART,
			 .part = 0,
			 .offset = offsetof(struct named, name),
			 .max = 32}},
	};
	const uint64_t registers[SCRY_CALL_ARGS_MAX] = {(uint64_t)&named};

	(void)state;
	enemy.at = record;
	memcpy(enemy.words,
	       (uint64_t[]){(uint64_t)&named, UINT32_MAX, (uint64_t)secret, (uint64_t)secret},
	       sizeof(enemy.words));
	fetch(&plan, registers, is_hello);
}

static void has_one_part(uint32_t words)
{
	assert_int_equal(words, PART_WORDS + 1);
}

/* printf("%lx", secret): a format that becomes another one, of any length. */
static void formats(void **state)
{
	static const char format[] = "%lx";
	const struct plan plan = {
		.head = {.entry = 1, .named_registers = 1},
		.ops = {{.flags = SCRY_FETCH_FORMAT,
			 .length = SCRY_FETCH_NUL,
			 .from = SCRY_AT_REGISTER,
			 .max = 64}},
	};
	const uint64_t registers[SCRY_CALL_ARGS_MAX] = {(uint64_t)format, (uint64_t)secret};

	(void)state;
	enemy.at = record;
	memcpy(enemy.words, (uint64_t[]){(uint64_t)format, UINT32_MAX, 0, 0}, sizeof(enemy.words));
	memcpy(&enemy.words[2], "%s%s%s%s", 8);
	fetch(&plan, registers, has_one_part);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(pointers, set_up, tear_down),
		cmocka_unit_test_setup_teardown(formats, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
