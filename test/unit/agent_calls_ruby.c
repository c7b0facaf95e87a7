/*
 * The agent's Ruby stacks of calls, run in this process on control frames that are made up: what is
 * told once, what anew, and what not.
 */
#include "agent/calls.h"
#include "agent/lines.h"
#include "wire/call_ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define DEEP 600u
#define UNREADABLE 0x9000u

struct scry_agent_vm scry_agent_vm;			     /* in the agent: code.c */
struct scry_agent_thread scry_agent_call_rows[SCRY_THREADS]; /* in the agent: shadow.c */
int scry_child_buffer_claim(
	struct scry_state_page *g,
	void (*moved)(struct scry_state_page *g)) /* in the agent: child_buffer.c */
{
	(void)moved;
	(void)g;
	return 0;
}

/* In the agent: define.c. Code of one word, on the line that its pc is. */
int scry_code_read(const struct scry_agent_place *place, struct scry_agent_code *ret, uint8_t *text)
{
	*ret = (struct scry_agent_code){.start = place->pc,
					.path_size = place->pc == UNREADABLE ? 0 : 4};
	memcpy(text, "x.rb", 4);
	return 1;
}

void scry_code_at(const struct scry_agent_code *code, uint64_t pc, struct scry_ring_def *def)
{
	def->line_before = (uint32_t)pc;
	def->path_size = code->path_size;
}

static struct scry_state_page state_page;
static struct scry_shared_head shared;
static struct scry_control *const control = &shared.control;
static uint64_t *ring;
static struct frame {
	uint64_t pc, iseq;
} frames[DEEP];
static struct {
	struct frame *cfp, *stack;
	uint64_t words;
} ec;
static __thread void *current_ec;

/* What the last call told: its stack's number, and how many records of each kind came. */
static uint64_t number, told[8], pcs[SCRY_CALL_RUBY_FRAMES + 1], pc_count;

static struct scry_thread_buffer *buffer_at(size_t i)
{
	return (struct scry_thread_buffer *)(ring + i * SCRY_THREAD_BUFFER_WORDS);
}

static int set_up(void **state)
{
	uint64_t fs;

	(void)state;
	if (!ring)
		ring = mmap(NULL, 8 * SCRY_RING_WORDS, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
		memset(buffer_at(i), 0, sizeof(struct scry_thread_buffer));
	memset(&scry_agent, 0, sizeof(scry_agent));
	memset(scry_agent_call_rows, 0, sizeof(scry_agent_call_rows));
	memset(&scry_agent_lines, 0, sizeof(scry_agent_lines));
	memset(&scry_agent_ruby_calls, 0, sizeof(scry_agent_ruby_calls));
	memset(&scry_agent_vm, 0, sizeof(scry_agent_vm));
	memset(frames, 0, sizeof(frames));
	*control = (struct scry_control){.lease_tsc = UINT64_MAX, .lease_end_tsc = UINT64_MAX};
	state_page = (struct scry_state_page){.open = 1, .ring = (uint64_t)(uintptr_t)ring};
	scry_agent.state_page = &state_page;
	scry_agent.control = control;
	scry_agent.tracking = (struct scry_agent_tracking){
		.channels[SCRY_CHANNEL_CALLS] = {.control = control,
						 .pool = (struct scry_thread_buffer *)ring,
						 .rows = scry_agent_call_rows,
						 .time_op = SCRY_CALL_TIME,
						 .is_on = 1}};
	scry_agent.forbidden = 0;
	__asm__("mov %%fs:0, %0" : "=r"(fs));
	scry_agent_vm.hooks.tls_offset = (int64_t)((uint64_t)(uintptr_t)&current_ec - fs);
	scry_agent.line_plan = (struct scry_agent_line_plan){
		.on = SCRY_USER_CALLS,
		.watch = 77,
		.frames = {.frame_iseq = 8, .frame_size = 16, .ec_stack = 8, .ec_stack_size = 16}};
	current_ec = &ec;
	ec.stack = frames;
	ec.words = sizeof(frames) / 8;
	return 0;
}

/* Calls from these frames, the newest first. */
static void call_from(const uint64_t *newest, size_t count)
{
	static uint64_t slot;
	uint64_t before[SCRY_THREAD_BUFFERS];

	ec.cfp = &frames[DEEP - count];
	for (size_t i = 0; i < count; i++)
		ec.cfp[i] = (struct frame){newest[i], 0x1000};
	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
		before[i] = buffer_at(i)->head;
	scry_call_ruby(&slot);
	memset(told, 0, sizeof(told));
	number = pc_count = 0;
	for (size_t i = 0; i < SCRY_THREAD_BUFFERS; i++)
		for (const uint64_t *w = (uint64_t *)(buffer_at(i) + 1) + before[i],
				    *end = (uint64_t *)(buffer_at(i) + 1) + buffer_at(i)->head;
		     w < end;) {
			assert_in_range(w[0], SCRY_CALL_TIME, SCRY_CALL_RUBY);
			told[w[0]]++;
			number = w[0] == SCRY_CALL_RUBY ? w[2] : number;
			if (w[0] == SCRY_CALL_RUBY_STACK) {
				pc_count = w[4];
				memcpy(pcs, w + SCRY_CALL_RUBY_STACK_HEAD, pc_count * 8);
			}
			w += w[0] == SCRY_CALL_TIME	    ? 2
			     : w[0] == SCRY_CALL_RUBY_LINE  ? w[2]
			     : w[0] == SCRY_CALL_RUBY_STACK ? SCRY_CALL_RUBY_STACK_HEAD + w[4]
							    : SCRY_CALL_RUBY_WORDS;
		}
}

static void told_once(void **state)
{
	const uint64_t a[] = {0, 0x2000, 0x3000}, b[] = {0, 0x2008, 0x3000}, c[] = {0x2000, 0x3000};
	uint64_t first;

	(void)state;
	call_from(a, 3);
	first = number;
	assert_int_not_equal(first, 0);
	assert_int_equal(told[SCRY_CALL_RUBY_LINE], 2);
	assert_int_equal(told[SCRY_CALL_RUBY_STACK], 1);
	assert_int_equal(pc_count, 2);
	assert_int_equal(pcs[0], 0x2000);
	call_from(a, 3);
	assert_int_equal(number, first);
	assert_int_equal(told[SCRY_CALL_RUBY_LINE] + told[SCRY_CALL_RUBY_STACK], 0);
	call_from(b, 3);
	assert_int_not_equal(number, first);
	assert_int_equal(told[SCRY_CALL_RUBY_LINE], 1);
	call_from(c, 2); /* the newest frame itself: another line, perhaps */
	assert_int_equal(told[SCRY_CALL_RUBY_LINE], 1);
	assert_int_equal(pcs[0], 0x2000 | SCRY_MALLOC_LINE_TOP);
	call_from(a, 3);
	assert_int_equal(number, first);
}

static void code_that_ends(void **state)
{
	const uint64_t a[] = {0, 0x2000, 0x3000};
	uint64_t first;

	(void)state;
	call_from(a, 3);
	first = number;
	scry_call_ruby_freed(0x4000); /* of no code */
	call_from(a, 3);
	assert_int_equal(number, first);
	scry_call_ruby_freed(0x2000);
	call_from(a, 3);
	assert_int_not_equal(number, first);
	assert_int_equal(told[SCRY_CALL_RUBY_LINE], 2);
	assert_int_equal(scry_agent_lines.generation, 1);
	scry_call_ruby_freed(0x3000);
	scry_call_ruby_freed(0x3000); /* once */
	assert_int_equal(scry_agent_lines.generation, 2);
}

static void not_known(void **state)
{
	const uint64_t bad[] = {0, UNREADABLE, 0x3000}, none[] = {0, 0};
	uint64_t first;

	(void)state;
	call_from(bad, 3); /* perhaps it can be read the next time */
	first = number;
	assert_int_equal(told[SCRY_CALL_RUBY_LINE], 1);
	assert_int_equal(pc_count, 2);
	call_from(bad, 3);
	assert_int_not_equal(number, first);
	assert_int_equal(told[SCRY_CALL_RUBY_STACK], 1);
	call_from(none, 2);
	assert_int_equal(number, 0);
	current_ec = NULL;
	call_from(bad, 3);
	assert_int_equal(number, 0);
	current_ec = &ec;
	scry_agent.forbidden = 1; /* seccomp */
	call_from(bad, 3);
	assert_int_equal(number, 0);
}

static void deep(void **state)
{
	uint64_t all[DEEP];

	(void)state;
	for (size_t i = 0; i < DEEP; i++)
		all[i] = 0x10000 + 8 * (i % 7);
	call_from(all, SCRY_CALL_RUBY_FRAMES);
	assert_int_equal(pc_count, SCRY_CALL_RUBY_FRAMES);
	assert_int_not_equal(pcs[pc_count - 1], 0);
	call_from(all, DEEP);
	assert_int_equal(pc_count, SCRY_CALL_RUBY_FRAMES + 1);
	assert_int_equal(pcs[pc_count - 1], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(told_once, set_up),
		cmocka_unit_test_setup(code_that_ends, set_up),
		cmocka_unit_test_setup(not_known, set_up),
		cmocka_unit_test_setup(deep, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
