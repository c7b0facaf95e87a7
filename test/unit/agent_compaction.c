/*
 * The hidden object by which the agent sees compactions, given to VMs whose struct of a data type
 * is longer than the one of today.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/objects.h"

#define TYPE_WORDS 64u /* more than any Ruby has */
#define FIRST_WORDS 5u /* name, mark, free, size, compact */

struct scry_agent_vm scry_agent_vm; /* in the agent: code.c, ring.c */
struct scry_agent_objects scry_agent_objects;

/* What compaction.c calls of other files, and nothing here comes to. */
int scry_ring_reserve(struct scry_state_page *g, uint64_t words)
{
	(void)g;
	(void)words;
	return 0;
}
uint32_t scry_slot_size(uint64_t at)
{
	(void)at;
	return 0;
}
uint64_t scry_asked_for_size(const void *data)
{
	(void)data;
	return 0;
}
void scry_site_forget_all(void)
{
}
void scry_stack_forget_all(void)
{
}
void scry_pages_add(uint64_t page)
{
	(void)page;
}
int scry_pages_walk(void (*moved)(void *, uint64_t from, uint64_t to), void *context)
{
	(void)moved;
	(void)context;
	return 0;
}
void scry_sample_reused(struct scry_state_page *g, uint64_t object)
{
	(void)g;
	(void)object;
}
int scry_sample_moved(struct scry_state_page *g, uint64_t from, uint64_t to)
{
	(void)g;
	(void)from;
	(void)to;
	return 0;
}
void scry_sample_walk(void (*moved)(void *, uint64_t from, uint64_t to), void *context)
{
	(void)moved;
	(void)context;
}

static uint64_t object[5];
static size_t allocated;
static const uint64_t *type_given;

/* Memory of a VM is seldom clean. */
static void *vm_allocate(uint64_t size)
{
	void *block = malloc(size);

	allocated = size;
	return block ? memset(block, 0xa5, size) : NULL;
}

static uint64_t vm_wrap(uint64_t klass, void *data, const void *type)
{
	assert_int_equal(klass, 0);
	type_given = type;
	object[0] = SCRY_TYPE_DATA;
	object[3] = (uint64_t)data;
	return (uint64_t)object;
}

static void vm_root(uint64_t *at)
{
	assert_ptr_equal(at, &scry_agent_objects.anchor);
}

static uint64_t vm_location(uint64_t from)
{
	return from;
}

/* All words that a longer struct would have are ours, and 0: no flags, no parent. */
static void the_type_is_zero_beyond_what_is_documented(void **state)
{
	struct scry_agent_ruby *r = &scry_agent_vm.ruby;

	(void)state;
	r->xmalloc = (uint64_t)vm_allocate;
	r->data_wrap = (uint64_t)vm_wrap;
	r->gc_register = r->gc_unregister = (uint64_t)vm_root;
	r->gc_location = (uint64_t)vm_location;
	scry_compaction_on();
	assert_non_null(type_given);
	assert_true(allocated >= 8 * TYPE_WORDS);
	assert_string_equal((const char *)type_given[0], "scry");
	assert_int_equal(type_given[1], 0);
	assert_int_equal(type_given[2], ~0ull);
	assert_true(type_given[3] != 0 && type_given[4] != 0);
	for (unsigned int i = FIRST_WORDS; i < TYPE_WORDS; i++)
		assert_int_equal(type_given[i], 0);
	scry_compaction_off();
	assert_int_equal(type_given[3], 0);
	assert_int_equal(type_given[4], 0);
	free((void *)(uintptr_t)type_given);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_type_is_zero_beyond_what_is_documented),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
