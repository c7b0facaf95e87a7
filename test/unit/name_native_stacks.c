/*
 * Stacks that an agent numbered -> STACK events: shared callers are told once, names are right, and
 * hostile ones change nothing.
 */
#include "name/native_stacks.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "rec/reader.h"
#include "wire/event.h"
#include "wire/unwind.h"

static int fd;
static struct scry_writer *writer;
static struct scry_modules *native;
static struct scry_native_stacks *stacks;

static int set_up(void **state)
{
	fd = memfd_create("test", 0);
	assert_int_equal(scry_writer_open(fd, 0, &writer), 0);
	native = scry_modules_new(getpid());
	stacks = scry_native_stacks_new(native);
	assert_non_null(stacks);
	return 0;
}

static int tear_down(void **state)
{
	scry_native_stacks_free(stacks);
	scry_modules_free(native);
	close(fd);
	return 0;
}

static void test_tree(void **state)
{
	const uint64_t here = (uint64_t)(uintptr_t)set_up, there = (uint64_t)(uintptr_t)tear_down;
	const uint64_t one[] = {here + 8, there + 16, there + 32};
	const uint64_t two[] = {here + 9, there + 16, there + 32};
	const uint64_t cut[] = {here + 8, (there + 3) | SCRY_UNWIND_EXACT, 0};
	const struct scry_event *event;
	struct scry_ev_stack seen[16] = {0};
	struct scry_reader *r;
	uint32_t ids[3], count = 0;

	assert_int_equal(scry_native_stacks_define(stacks, 7, one, 3), 0);
	assert_int_equal(scry_native_stacks_define(stacks, 8, two, 3), 0);
	assert_int_equal(scry_native_stacks_define(stacks, 9, cut, 3), 0);
	assert_int_equal(scry_native_stacks_define(stacks, 7, one, 3), 0);
	assert_true(scry_native_stacks_is_new(stacks));
	scry_native_stacks_look(stacks);
	assert_false(scry_native_stacks_is_new(stacks));
	assert_true(scry_native_stacks_address(stacks, 8) == here + 9);
	for (uint32_t i = 0; i < 3; i++)
		ids[i] = scry_native_stacks_write(stacks, 7 + i, writer);
	assert_int_equal(scry_native_stacks_write(stacks, 7, writer), ids[0]);
	assert_int_equal(scry_writer_close(writer), 0);
	assert_int_equal(scry_reader_open(fd, &r), 0);
	while (scry_reader_next(r, &event) == 1) {
		const struct scry_ev_stack *stack = (const void *)(event + 1);

		if (event->type != SCRY_EVENT_STACK)
			continue;
		count++;
		assert_in_range(stack->id, 1, 15);
		seen[stack->id] = *stack;
	}
	assert_int_equal(count, 2 + 1 + 1 + 3); /* one's callers are two's */
	assert_int_equal(seen[ids[0]].parent, seen[ids[1]].parent);
	assert_string_equal(scry_reader_string(r, seen[ids[0]].method_str, NULL), "set_up");
	assert_int_equal(seen[ids[0]].offset, 8);
	assert_int_equal(seen[ids[1]].offset, 9);
	assert_true(seen[ids[0]].address == here + 8);
	count = seen[ids[2]].parent; /* a signal interrupted there: the byte itself */
	assert_string_equal(scry_reader_string(r, seen[count].method_str, NULL), "tear_down");
	assert_int_equal(seen[count].offset, 3);
	assert_true(seen[count].address == there + 3);
	assert_int_equal(seen[seen[count].parent].flags, SCRY_STACK_NATIVE | SCRY_STACK_UNKNOWN);
	assert_int_equal(seen[seen[count].parent].parent, 0);
	scry_reader_close(r);
}

static void test_hostile(void **state)
{
	static uint64_t addresses[2000];
	const uint64_t one[] = {5, 6};

	addresses[0] = 1;
	assert_int_equal(scry_native_stacks_define(stacks, 1, addresses, 0), -EINVAL);
	assert_int_equal(scry_native_stacks_define(stacks, 1, addresses, 2000), -EINVAL);
	assert_int_equal(scry_native_stacks_define(stacks, 0, one, 2), -EINVAL);
	assert_int_equal(scry_native_stacks_define(stacks, 1, addresses + 1, 1), -EINVAL);
	assert_int_equal(scry_native_stacks_define(stacks, 1, one, 2), 0);
	assert_int_equal(scry_native_stacks_define(stacks, 1, one, 1), -EINVAL);
	assert_true(scry_native_stacks_address(stacks, 1) == 5);
	assert_int_equal(scry_native_stacks_address(stacks, 2), 0);
	assert_int_equal(scry_native_stacks_write(stacks, 2, writer), 0);
	srandom(3);
	for (int i = 0; i < 20000; i++) {
		size_t count = 1 + (size_t)random() % 64;

		for (size_t k = 0; k < count; k++)
			addresses[k] = (uint64_t)random() << random() % 40;
		scry_native_stacks_define(stacks, (uint64_t)random() % 40000, addresses, count);
	}
	scry_native_stacks_look(stacks);
	for (uint64_t i = 0; i < 40000; i++)
		scry_native_stacks_write(stacks, i, writer);
	assert_int_equal(scry_writer_close(writer), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_tree, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_hostile, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
