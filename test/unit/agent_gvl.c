/*
 * What the agent counts of a VM's lock, against a model that knows nothing but who has it and who
 * wants it: four threads take, give, wait and yield at random, as a VM to 3.2 lets them. The
 * moments are the agent's own, so all sums are compared to the tick.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/agent.h"
#include "agent/gvl.h"

void scry_gvl_let_go(uint32_t waits);

int scry_lane_claim(struct scry_gate *g,
		    void (*moved)(struct scry_gate *)) /* in the agent: lane.c */
{
	(void)g;
	(void)moved;
	return 0;
}

#define THREADS 4
#define NOBODY THREADS
#define NODE 8 /* word of a thread's struct: its links in the queue */
#define ROUNDS 200000

enum { OFF, WANTS, HOLDS };

struct model {
	int state[THREADS];
	bool is_queued[THREADS];
	uint64_t since[THREADS], held[THREADS], wanted[THREADS], lost[THREADS + 1];
	uint64_t takes[THREADS], yields[THREADS], waits[THREADS], overtakes[THREADS];
	uint64_t contended, last;
	int owner;
};

static struct {
	uint64_t head[2]; /* of the queue */
	uint64_t owner;
} vm;
static uint64_t threads[THREADS][16];
static struct scry_gate gate = {.open = 1};
static struct scry_control control = {.lease_end_tsc = INT64_MAX};

static uint64_t th(int i)
{
	return (uint64_t)threads[i];
}

static void join(int i)
{
	uint64_t *node = &threads[i][NODE], *last = (uint64_t *)vm.head[1];

	node[0] = (uint64_t)vm.head;
	node[1] = (uint64_t)last;
	last[0] = (uint64_t)node;
	vm.head[1] = (uint64_t)node;
}

static void part(int i)
{
	uint64_t *node = &threads[i][NODE];

	((uint64_t *)node[1])[0] = node[0];
	((uint64_t *)node[0])[1] = node[1];
	node[0] = node[1] = (uint64_t)node;
}

static uint32_t waiting(const struct model *m)
{
	uint32_t n = 0;

	for (int i = 0; i < THREADS; i++)
		n += m->state[i] == WANTS;
	return n;
}

/* The time since the last event was as the model stands. */
static void pass(struct model *m, uint64_t now)
{
	for (int i = 0; i < THREADS; i++) {
		m->held[i] += m->state[i] == HOLDS ? now - m->last : 0;
		m->wanted[i] += m->state[i] == WANTS ? now - m->last : 0;
	}
	m->lost[m->owner] += waiting(m) * (now - m->last);
	m->contended += waiting(m) ? now - m->last : 0;
	m->last = now;
}

static const struct scry_gvl_table *table(void)
{
	return (const struct scry_gvl_table *)gate.ring;
}

/* The section ends; what has changed in it is seen from this moment on. */
static void end(struct model *m, uint32_t waits)
{
	vm.owner = m->owner == NOBODY ? 0 : th(m->owner);
	scry_gvl_let_go(waits);
}

static void take(struct model *m, int i)
{
	const bool has_waited = m->state[i] == WANTS, is_first = !table()->events;

	if (m->is_queued[i])
		part(i);
	m->is_queued[i] = false;
	vm.owner = th(i);
	scry_gvl_let_go(0);
	pass(m, table()->last);
	m->overtakes[i] += !has_waited && waiting(m) && !is_first;
	m->waits[i] += has_waited;
	m->takes[i]++;
	m->state[i] = HOLDS;
	m->owner = i;
}

static void give(struct model *m, bool yields)
{
	const int i = m->owner;

	vm.owner = 0;
	scry_gvl_let_go(yields);
	pass(m, table()->last);
	m->yields[i] += yields;
	m->state[i] = yields ? WANTS : OFF;
	m->owner = NOBODY;
}

static void want(struct model *m, int i)
{
	join(i);
	end(m, 1);
	pass(m, table()->last);
	m->is_queued[i] = true;
	m->state[i] = WANTS;
}

static void step(struct model *m)
{
	const int i = rand() % THREADS;

	if (m->owner == NOBODY)
		take(m, i);
	else if (i == m->owner)
		give(m, waiting(m) && rand() % 3 == 0);
	else if (!m->is_queued[i] && rand() % 4 == 0)
		want(m, i);
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

static int set_up(void **state)
{
	struct scry_gvl_plan *plan = &scry_agent_gvl.plan;

	gate.ring = (uint64_t)calloc(1, sizeof(struct scry_gvl_table));
	assert_int_not_equal(gate.ring, 0);
	scry_agent.gate = &gate;
	scry_agent.control = &control;
	find_tid();
	vm.head[0] = vm.head[1] = (uint64_t)vm.head;
	plan->owner = (uint64_t)&vm.owner;
	plan->queue = (uint64_t)vm.head;
	plan->node = 8 * NODE;
	for (int i = 0; i < THREADS; i++) {
		threads[i][0] = (uint64_t)i + 1; /* self */
		threads[i][NODE] = threads[i][NODE + 1] = (uint64_t)&threads[i][NODE];
	}
	return 0;
}

static int tear_down(void **state)
{
	free((void *)gate.ring);
	return 0;
}

static const struct scry_gvl_row *row_of(int i)
{
	for (uint32_t k = 1; k < table()->rows; k++)
		if (table()->row[k].th == th(i))
			return &table()->row[k];
	return NULL;
}

/* The states that last are in the model, and not yet in the table. */
static void check(const struct model *m)
{
	const struct scry_gvl_table *t = table();
	uint64_t by_runnable = 0, contended = t->contended;

	for (int i = 0; i < THREADS; i++) {
		const struct scry_gvl_row *r = row_of(i);
		const uint64_t rest = t->last - r->since;

		assert_non_null(r);
		assert_int_equal(r->held + (r->state == SCRY_GVL_HOLDS ? rest : 0), m->held[i]);
		assert_int_equal(r->wanted + (r->state == SCRY_GVL_WANTS ? rest : 0), m->wanted[i]);
		assert_int_equal(r->takes, m->takes[i]);
		assert_int_equal(r->yields, m->yields[i]);
		assert_int_equal(r->overtakes, m->overtakes[i]);
		assert_int_equal(r->waits, m->waits[i]);
		assert_int_equal(r->passes + r->forced, 0); /* no frame to tell it by */
	}
	for (uint32_t i = 0; i < SCRY_GVL_RUNNABLE; i++)
		by_runnable += t->by_runnable[i];
	assert_int_equal(by_runnable + t->last - t->changed, t->last - t->began);
	contended += t->wanting ? t->last - t->wanted_since : 0;
	assert_int_equal(contended, m->contended);
	assert_int_equal(t->strange + t->busy + t->crowded + t->over, 0);
	assert_int_equal(t->sequence, 2 * t->events);
}

static void settle(const struct model *m) /* nobody waits: what was lost is all in the rows */
{
	const struct scry_gvl_table *t = table();
	uint64_t pairs = 0, lost = 0;

	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(row_of(i)->lost, m->lost[i]);
		lost += m->lost[i];
	}
	assert_int_equal(t->row[0].lost, m->lost[NOBODY]);
	for (uint32_t i = 0; i < SCRY_GVL_PAIRS; i++)
		pairs += t->pairs[i].ticks;
	assert_int_equal(pairs + t->lost_pairs, lost + m->lost[NOBODY]);
}

/* Until nobody waits. */
static void calm(struct model *m)
{
	for (int i = 0; i < THREADS; i++) {
		if (m->owner != NOBODY)
			give(m, false);
		if (m->state[i] == WANTS)
			take(m, i);
	}
	if (m->owner != NOBODY)
		give(m, false);
}

static void sums(void **state)
{
	struct model m = {.owner = NOBODY};

	srand(4711);
	take(&m, 0);
	m = (struct model){.owner = 0, .state = {HOLDS}, .takes = {1}, .last = table()->last};
	for (uint32_t round = 0; round < ROUNDS; round++) {
		step(&m);
		if (round % 1000 == 999) {
			calm(&m);
			check(&m);
			settle(&m);
		}
	}
}

/* What mostly happens: one thread, and then another one, takes and gives it, and nobody waits. */
static void quiet(void **state)
{
	struct model m = {.owner = NOBODY};

	take(&m, 0);
	m = (struct model){.owner = 0, .state = {HOLDS}, .takes = {1}, .last = table()->last};
	for (int i = 0; i < 4 * THREADS; i++)
		for (int k = 0; k < 1000; k++) {
			if (m.owner != NOBODY)
				give(&m, false);
			take(&m, i % THREADS);
		}
	check(&m);
	assert_int_equal(table()->contended, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(sums, set_up, tear_down),
		cmocka_unit_test_setup_teardown(quiet, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
