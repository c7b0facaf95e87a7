/*
 * The agent's walk of its own stack, run in this process: against backtrace(), and with tables that
 * say anything at all, where it must end and never fault.
 */
#include "agent/calls.h"
#include "agent/thread_buffer.h"
#include "agent/walk.h"

#include <alloca.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "sys/cfi.h"
#include "sys/maps.h"

#define TID_AT_GLIBC 720
#define MAP_WORDS (1u << 20)

struct scry_shadow scry_agent_shadow; /* in the agent: shadow.c */
int scry_child_buffer_claim(
	struct scry_state_page *g,
	void (*moved)(struct scry_state_page *g)) /* in the agent: child_buffer.c */
{
	(void)moved;
	(void)g;
	return 0;
}

static struct scry_state_page *state_page;
static struct scry_shared_head shared;
static struct scry_control *const control = &shared.control;
static uint64_t *ring;
static union {
	struct scry_unwind_map map;
	uint64_t words[MAP_WORDS];
} area __attribute__((aligned(64)));
static uint64_t used;

/* what was told */
static uint64_t told[SCRY_WALK_DEPTH_MAX];
static uint32_t told_count, told_id, tellings;

static int tell(struct scry_agent_thread *t, uint32_t id, const uint64_t *frames, uint32_t count)
{
	assert_in_range(count, 1, SCRY_WALK_DEPTH_MAX);
	memcpy(told, frames, count * sizeof(*frames));
	told_count = count;
	told_id = id;
	tellings++;
	return 1;
}

/* The stack of this function's caller; this one's registers are its caller's but for those saved.
 */
static __attribute__((noinline)) uint32_t walk_from_here(uint64_t bp, uint64_t bx)
{
	const struct scry_walk_from from = {
		.slot = (const uint64_t *)__builtin_frame_address(0) + 1, .bp = bp, .bx = bx};
	struct scry_agent_thread *t = scry_thread_buffer_enter();
	uint32_t id;

	assert_non_null(t);
	id = scry_walk_stack(t, &from, tell);
	scry_thread_buffer_leave(t);
	return id;
}

#define WALK()                                                                           \
	({                                                                               \
		uint64_t bp_, bx_;                                                       \
		__asm__ volatile("mov %%rbp, %0; mov %%rbx, %1" : "=r"(bp_), "=r"(bx_)); \
		walk_from_here(bp_, bx_);                                                \
	})

/* With their tables, or with rules made of nothing. */
static void list(const struct scry_map_entry *m, const struct scry_maps *maps, bool is_random)
{
	struct scry_unwind_index *index = &area.map.index[area.map.generation & 1];
	struct scry_unwind_object *o = &index->objects[index->count++];
	struct scry_elf *elf;
	struct scry_image image;
	struct scry_cfi cfi;
	uint64_t bias, *rules;

	if (scry_elf_open_mapped(getpid(), m, &elf) < 0 || scry_elf_bias(elf, maps, m, &bias) < 0 ||
	    scry_image_open(elf, &image) < 0 || scry_cfi_compile(elf, &image, &cfi) < 0)
		fail_msg("%s", scry_error());
	*o = (struct scry_unwind_object){.start = m->start,
					 .end = m->end,
					 .base = bias + cfi.base,
					 .at = (uint32_t)used,
					 .rows = cfi.rows.count,
					 .rules = cfi.rows.rule_count};
	rules = area.words + used;
	memcpy(rules, cfi.rows.rules, cfi.rows.rule_count * 8ul);
	for (uint32_t i = 0; i < cfi.rows.rule_count && is_random; i++)
		rules[i] = (uint64_t)random() << 40 ^ (uint64_t)random() << 20 ^
			   (uint64_t)random() >> (random() % 31);
	used += cfi.rows.rule_count;
	memcpy(area.words + used, cfi.rows.pcs, cfi.rows.count * 4ul);
	used += (cfi.rows.count + 1) / 2;
	memcpy(area.words + used, cfi.rows.which, cfi.rows.count * 2ul);
	used += (cfi.rows.count + 3) / 4;
	assert_true(used < MAP_WORDS);
	scry_cfi_done(&cfi);
	scry_image_close(&image);
	scry_elf_close(elf);
}

static void fill(bool is_random)
{
	struct scry_maps maps;

	area.map.generation++;
	area.map.index[area.map.generation & 1].count = 0;
	used = sizeof(struct scry_unwind_map) / 8;
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	for (size_t i = 0; i < maps.count; i++) {
		const struct scry_map_entry *m = &maps.entries[i];

		if (m->x && m->inode &&
		    (!is_random || strstr(m->path, "agent_walk") || strstr(m->path, "/libc.so.6")))
			list(m, &maps, is_random);
		if (!strcmp(m->path, "[stack]"))
			scry_agent.unwinding.stack_end = m->end;
	}
	scry_maps_done(&maps);
}

static int set_up(void **state)
{
	(void)state;
	if (!ring) {
		ring = mmap(NULL, 8 * SCRY_RING_WORDS, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		state_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0);
	}
	memset(&scry_agent, 0, sizeof(scry_agent));
	memset(&scry_agent_rows, 0, sizeof(scry_agent_rows));
	memset(&scry_agent_walks, 0, sizeof(scry_agent_walks));
	memset(&shared, 0, sizeof(shared));
	control->lease_tsc = control->lease_end_tsc = UINT64_MAX;
	*state_page = (struct scry_state_page){.open = 1, .ring = (uint64_t)(uintptr_t)ring};
	scry_agent.state_page = state_page;
	scry_agent.control = control;
	scry_agent.tracking = (struct scry_agent_tracking){
		.tid_offset = TID_AT_GLIBC,
		.channels[SCRY_CHANNEL_CORE] = {.control = control,
						.pool = (struct scry_thread_buffer *)ring,
						.rows = scry_agent_rows.threads,
						.is_on = 1}};
	scry_agent.unwinding = (struct scry_agent_unwinding){.map = (uint64_t)(uintptr_t)&area,
							     .words = MAP_WORDS,
							     .depth = SCRY_WALK_DEPTH_MAX,
							     .users = SCRY_USER_MALLOC,
							     .pid = (uint32_t)getpid()};
	tellings = 0;
	fill(false);
	return 0;
}

static volatile int sink;

/* From this function's caller on: backtrace() begins in it. */
static __attribute__((noinline)) void compare(void)
{
	void *theirs[SCRY_WALK_DEPTH_MAX + 2];
	int count = backtrace(theirs, SCRY_WALK_DEPTH_MAX + 1);
	uint32_t before = tellings, id = WALK();

	assert_int_not_equal(id, 0);
	assert_int_equal(tellings, before + 1);
	assert_int_equal(told_id, id);
	/* [0] is a place in this function */
	if (told_count == (uint32_t)count + 1 && !told[told_count - 1])
		told_count--;
	assert_int_equal(told_count,
			 count < (int)SCRY_WALK_DEPTH_MAX ? (uint32_t)count : SCRY_WALK_DEPTH_MAX);
	for (uint32_t i = 1; i < told_count; i++)
		assert_true((told[i] & ~SCRY_UNWIND_EXACT) == (uint64_t)(uintptr_t)theirs[i]);
	sink++;
}

static __attribute__((noinline)) void recurse(int n)
{
	if (n)
		recurse(n - 1);
	else
		compare();
	sink++;
}

static __attribute__((noinline)) void with_alloca(int n)
{
	char *p = alloca((size_t)n * 1000 + 1);

	p[0] = (char)n;
	if (n)
		with_alloca(n - 1);
	else
		compare();
	sink += p[0];
}

static void *in_thread(void *arg)
{
	recurse(7);
	with_alloca(20);
	return NULL;
}

static ucontext_t home_context, fiber_context;

static void in_fiber(void)
{
	recurse(3);
	with_alloca(2);
}

/* On a stack that ends with its page: what lies behind cannot be read. */
static void on_fiber(void (*run)(void))
{
	const size_t size = 65536;
	char *stack = mmap(NULL, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(stack + 4096, size, PROT_READ | PROT_WRITE);
	getcontext(&fiber_context);
	fiber_context.uc_stack.ss_sp = stack + 4096;
	fiber_context.uc_stack.ss_size = size;
	fiber_context.uc_link = &home_context;
	makecontext(&fiber_context, run, 0);
	swapcontext(&home_context, &fiber_context);
	munmap(stack, size + 8192);
}

static void test_backtrace(void **state)
{
	pthread_t thread;

	(void)state;
	recurse(0);
	recurse(5);
	recurse(100);
	with_alloca(30);
	pthread_create(&thread, NULL, in_thread, NULL);
	pthread_join(thread, NULL);
	on_fiber(in_fiber);
}

/* The same place, reached in two ways: told once each, and never mistaken. */
static __attribute__((noinline)) uint32_t leaf(void)
{
	uint32_t id = WALK();

	sink++;
	return id;
}
static __attribute__((noinline)) uint32_t one(int n)
{
	uint32_t id;

	if (n & 1) {
		id = leaf();
		sink++;
	} else {
		id = leaf();
		sink += 2;
	}
	return id;
}
static __attribute__((noinline)) uint32_t two(int n)
{
	uint32_t id;

	if (n & 2) {
		id = one(n);
		sink++;
	} else {
		id = one(n);
		sink += 2;
	}
	return id;
}

static void test_kept(void **state)
{
	uint32_t ids[4] = {0};

	(void)state;
	for (int i = 0; i < 4000; i++) {
		uint32_t id = two(i % 4);

		if (!ids[i % 4])
			ids[i % 4] = id;
		assert_int_equal(id, ids[i % 4]);
		if (i == 2000) /* the tables are others, and say the same */
			fill(false);
	}
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < i; k++)
			assert_int_not_equal(ids[i], ids[k]);
	assert_int_equal(tellings, 4);
}

static void walk_wild(void)
{
	for (int i = 0; i < 200; i++) {
		walk_from_here((uint64_t)random() << (random() % 32), (uint64_t)random() << 16);
		walk_from_here((uint64_t)(uintptr_t)__builtin_frame_address(0) +
				       8 * (random() % 600),
			       (uint64_t)(uintptr_t)__builtin_frame_address(0) + random() % 64);
	}
	sink++;
}

static void *wild_thread(void *arg)
{
	walk_wild();
	return NULL;
}

/* Rules of any kind lead anywhere: nothing is read but this stack. */
static void test_wild(void **state)
{
	pthread_t thread;

	(void)state;
	srandom(5);
	for (int i = 0; i < 60; i++) {
		fill(true);
		walk_wild();
		on_fiber(walk_wild);
		pthread_create(&thread, NULL, wild_thread, NULL);
		pthread_join(thread, NULL);
	}
	/* and tables that do not fit into their mapping, or are none */
	for (int i = 0; i < 200; i++) {
		struct scry_unwind_index *index = &area.map.index[++area.map.generation & 1];

		fill(true);
		index = &area.map.index[area.map.generation & 1];
		for (uint64_t k = 0; k < index->count; k++) {
			index->objects[k].at = (uint32_t)random();
			index->objects[k].rows = (uint32_t)random() >> random() % 31;
			index->objects[k].rules = (uint32_t)random() >> random() % 31;
		}
		index->count = random() % 3 ? index->count : (uint64_t)random();
		walk_wild();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_backtrace, set_up),
		cmocka_unit_test_setup(test_kept, set_up),
		cmocka_unit_test_setup(test_wild, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
