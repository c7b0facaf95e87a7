/*
 * A VM for tests of the agent's gvl.c: two words, who has the lock and its queue; a mutex; and
 * pages that the agent counts in. Included once, by the test; begin and end are of each of its
 * tests.
 */
#ifndef TEST_UNIT_AGENT_GVL_VM_H
#define TEST_UNIT_AGENT_GVL_VM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/gvl.h"
#include "agent/thread_buffer.h"
#include "wire/gvl_wait.h"

void scry_gvl_let_go(uint64_t mutex, uint32_t waits);

/* In the agent: child_buffer.c. */
int scry_child_buffer_claim(struct scry_state_page *g, void (*moved)(struct scry_state_page *))
{
	(void)g;
	(void)moved;
	return 0;
}

static struct {
	uint64_t head[2]; /* of the queue */
	uint64_t owner;
} vm;
static uint32_t mutex[10]; /* glibc's: at 2 the tid of who has it */
static struct scry_state_page state_page = {.open = 1};
static struct scry_control control = {.lease_end_tsc = INT64_MAX};

static const struct scry_gvl_table *table(void)
{
	return (const struct scry_gvl_table *)state_page.table;
}

static void find_tid(void)
{
	const uint8_t *self;

	__asm__("mov %%fs:0, %0" : "=r"(self));
	for (uint32_t at = 0; at < 2048; at += 4)
		if (*(const uint32_t *)(self + at) == (uint32_t)gettid())
			scry_agent.tracking.tid_offset = at;
	assert_int_not_equal(scry_agent.tracking.tid_offset, 0);
}

/* Nobody has the lock, nobody waits, the table is empty. */
static void vm_begin(void)
{
	struct scry_gvl_plan *plan = &scry_agent_gvl.plan;

	state_page.gvl = (struct scry_state_page_gvl){0};
	state_page.table = (uint64_t)calloc(SCRY_RING_WORDS, 8);
	assert_int_not_equal(state_page.table, 0);
	scry_agent.state_page = &state_page;
	scry_agent.control = &control;
	find_tid();
	vm.head[0] = vm.head[1] = (uint64_t)vm.head;
	mutex[2] = (uint32_t)gettid();
	plan->state_page = (uint64_t)&state_page;
	plan->watch = 1;
	plan->owner = (uint64_t)&vm.owner;
	plan->queue = (uint64_t)vm.head;
}

static void vm_end(void)
{
	free((void *)state_page.table);
}

#endif
