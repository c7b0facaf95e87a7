/*
 * What the agent counts of a VM's lock, against a model that knows nothing but who has it and who
 * wants it: four threads take, give, wait and yield at random, as a VM to 3.2 lets them. The
 * moments are the agent's own, so all sums are compared to the tick.
 */
#include "agent_gvl_vm.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

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
	uint64_t runs[THREADS], run_ticks[THREADS], run_most[THREADS], run_takes, run_began;
	int owner, run_lead;
};

static uint64_t threads[THREADS][16];

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

static void end_run(struct model *m, uint64_t now)
{
	if (!m->run_takes)
		return;
	m->runs[m->run_lead]++;
	m->run_ticks[m->run_lead] += now - m->run_began;
	if (m->run_takes > m->run_most[m->run_lead])
		m->run_most[m->run_lead] = m->run_takes;
	m->run_takes = 0;
}

/* Takes it while others wait, who have waited for longer. */
static void overtake(struct model *m, int i, uint64_t now)
{
	m->overtakes[i]++;
	if (m->run_takes++)
		return;
	m->run_lead = i;
	m->run_began = now;
}

/* The section ends; what has changed in it is seen from this moment on. */
static void end(struct model *m, uint32_t waits)
{
	vm.owner = m->owner == NOBODY ? 0 : th(m->owner);
	scry_gvl_let_go((uint64_t)mutex, waits);
}

static void take(struct model *m, int i)
{
	const bool has_waited = m->state[i] == WANTS, is_first = !scry_gvl_events(table());

	if (m->is_queued[i])
		part(i);
	m->is_queued[i] = false;
	vm.owner = th(i);
	scry_gvl_let_go((uint64_t)mutex, 0);
	pass(m, table()->last);
	if (has_waited)
		end_run(m, m->last);
	else if (waiting(m) && !is_first)
		overtake(m, i, m->last);
	m->waits[i] += has_waited;
	m->takes[i]++;
	m->state[i] = HOLDS;
	m->owner = i;
}

static void give(struct model *m, bool yields)
{
	const int i = m->owner;

	vm.owner = 0;
	scry_gvl_let_go((uint64_t)mutex, yields);
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

static int set_up(void **state)
{
	vm_begin();
	scry_agent_gvl.plan.node = 8 * NODE;
	for (int i = 0; i < THREADS; i++) {
		threads[i][0] = (uint64_t)i + 1; /* self */
		threads[i][NODE] = threads[i][NODE + 1] = (uint64_t)&threads[i][NODE];
	}
	return 0;
}

static int tear_down(void **state)
{
	vm_end();
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
		assert_int_equal(r->runs, m->runs[i]);
		assert_int_equal(r->run_ticks, m->run_ticks[i]);
		assert_int_equal(r->run_most, m->run_most[i]);
		assert_int_equal(r->waits, m->waits[i]);
		assert_int_equal(r->passes + r->forced, 0); /* no frame to tell it by */
	}
	for (uint32_t i = 0; i < SCRY_GVL_RUNNABLE; i++)
		by_runnable += t->by_runnable[i];
	assert_int_equal(by_runnable + t->last - t->changed, t->last - t->began);
	contended += t->wanting ? t->last - t->wanted_since : 0;
	assert_int_equal(contended, m->contended);
	assert_int_equal(t->strange + t->busy + t->crowded + t->over, 0);
	assert_int_equal(t->sequence, 2 * scry_gvl_events(t));
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
		pairs += t->pairs[0][i].ticks;
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

/* A thread that finds no row: its turns are counted, and since when. */
static void crowded(void **state)
{
	struct scry_gvl_table *t = (struct scry_gvl_table *)scry_agent.state_page->table;
	struct model m = {.owner = NOBODY};
	uint64_t since;

	take(&m, 0);
	give(&m, false);
	assert_int_equal(t->crowded + t->crowded_since, 0);
	t->rows = SCRY_GVL_THREADS;
	take(&m, 1);
	since = t->last;
	give(&m, false);
	take(&m, 0);
	give(&m, false);
	take(&m, 2);
	assert_int_equal(t->crowded, 2);
	assert_int_equal(t->crowded_since, since);
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

/* ---- where the giver names the next owner ---- */

static uint32_t natives[2][2]; /* the VM's structs of native threads: at 1 the tid */

static int set_up_handing_over(void **state)
{
	struct scry_gvl_plan *plan = &scry_agent_gvl.plan;

	set_up(state);
	plan->hands_over = 1;
	plan->nt = 16;
	plan->tid = 4;
	natives[0][1] = (uint32_t)gettid();
	natives[1][1] = 1; /* of another one */
	threads[0][2] = (uint64_t)natives[0];
	return 0;
}

static int tear_down_handing_over(void **state)
{
	scry_agent_gvl.plan.hands_over = 0;
	return tear_down(state);
}

static void *let_go(void *owner)
{
	mutex[2] = (uint32_t)gettid();
	vm.owner = (uint64_t)owner;
	scry_gvl_let_go((uint64_t)mutex, 0);
	return NULL;
}

/* Of a native thread that is none of the VM's. */
static void *grant(void *unused)
{
	return let_go(threads[0]);
}

static void *move(void *unused)
{
	natives[1][1] = (uint32_t)gettid();
	return let_go(threads[0]);
}

static void elsewhere(void *(*what)(void *))
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, what, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Who gave the lock last, and gets it back while nobody waits, has it only when it has run: else
 * it was granted. */
static void granted(void **state)
{
	for (int i = 0; i < 4; i++)
		let_go(i % 2 ? NULL : threads[0]);
	assert_int_equal(row_of(0)->takes, 2);
	assert_int_equal(table()->recent, 1);
	elsewhere(grant);
	assert_int_equal(row_of(0)->state, SCRY_GVL_GRANTED);
	let_go(threads[0]);
	assert_int_equal(row_of(0)->state, SCRY_GVL_HOLDS);
	let_go(NULL);
	assert_int_equal(row_of(0)->waits, 1);
	assert_int_equal(table()->recent, 1);
	threads[0][2] = (uint64_t)natives[1]; /* a native thread that ran it has another one now */
	let_go(threads[0]);
	assert_int_equal(row_of(0)->state, SCRY_GVL_GRANTED);
	threads[0][2] = (uint64_t)natives[0];
	let_go(threads[0]);
	assert_int_equal(row_of(0)->state, SCRY_GVL_HOLDS);
	assert_int_equal(row_of(0)->takes, 4);
	assert_int_equal(row_of(0)->waits, 2);
	assert_int_equal(table()->moves, 0);
	let_go(NULL);
	threads[0][2] = (uint64_t)natives[1];
	elsewhere(move);
	assert_int_equal(row_of(0)->state, SCRY_GVL_HOLDS);
	assert_int_equal(table()->moves, 1);
	assert_int_equal(table()->moved_from, natives[0][1]);
	assert_int_equal(row_of(0)->moves, 1);
	assert_int_equal(row_of(0)->tid, natives[1][1]);
}

/* The struct of a thread that has ended is another one's: it had to be given the lock, and whoever
 * made it had it in between. */
static void reused(void **state)
{
	struct model m = {.owner = NOBODY};

	take(&m, 0);
	for (int i = 0; i < 4; i++) {
		give(&m, false);
		take(&m, i % 2);
	}
	give(&m, false);
	take(&m, 0);
	threads[1][0] = 77;
	give(&m, false);
	take(&m, 1);
	assert_int_equal(row_of(1)->self, 77);
	assert_int_equal(row_of(1)->threads, 2);
	assert_int_equal(table()->births, 3);
}

/* ---- a table that somebody else has written, who has other rights ---- */

#define FORGED 2000
#define NOWHERE 0x4141414140ull

static void forge(struct scry_gvl_table *t, uint64_t address, uint32_t is)
{
	t->row[FORGED].th = address;
	t->row[FORGED].self = 0;
	t->row[FORGED].state = is;
	t->row[FORGED].is_queued = 0;
	t->owner = FORGED;
	t->busy = is & 1;
}

/* A thread's struct whose address is the table's: nothing is read there. */
static void forged(void **state)
{
	static const uint64_t secret[64] = {0x5ec2e7};
	struct scry_gvl_table *t = (struct scry_gvl_table *)scry_agent.state_page->table;
	struct model m = {.owner = NOBODY};

	take(&m, 0);
	give(&m, false);
	for (uint32_t is = SCRY_GVL_UNKNOWN; is <= SCRY_GVL_HOLDS; is++)
		for (uint32_t waits = 0; waits < 2; waits++) {
			forge(t, (uint64_t)secret, is);
			vm.owner = 0;
			scry_gvl_let_go((uint64_t)mutex, waits);
			assert_int_equal(t->row[FORGED].self, 0);
			forge(t, NOWHERE, is);
			vm.owner = waits ? 0 : th(1);
			scry_gvl_let_go((uint64_t)mutex, waits);
			assert_int_equal(t->row[FORGED].self, 0);
		}
}

#define TABLE_BYTES (8 * (SCRY_GVL_RING_AT + SCRY_GVL_RING))
#define GUARD 4096

/* Between pages without access. */
static uint8_t *guarded(void)
{
	uint8_t *at =
		mmap(NULL, TABLE_BYTES + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	assert_int_equal(mprotect(at + GUARD, TABLE_BYTES, PROT_READ | PROT_WRITE), 0);
	return at + GUARD;
}

static void scribble(uint8_t *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)rand();
}

/* Whatever is in it: all that is written lies in it, and nothing else is read by it. */
static void any_table(void **state)
{
	struct scry_gvl_table *t = (void *)guarded();
	const uint64_t own = state_page.table;
	struct model m = {.owner = NOBODY};

	srand(4712);
	state_page.table = (uint64_t)t;
	scry_agent_gvl.plan.stacks = 1;
	for (uint32_t round = 0; round < 20000; round++) {
		const int i = rand() % THREADS;

		if (round % 8 == 0) {
			scribble((uint8_t *)t, offsetof(struct scry_gvl_table, slots));
			scribble((uint8_t *)t->waiting, 64);
			scribble((uint8_t *)&t->row[rand() % SCRY_GVL_THREADS], sizeof(t->row[0]));
			for (int k = 0; k < 64; k++)
				t->slots[rand() % SCRY_GVL_SLOTS] = (uint16_t)rand();
			t->sequence &= ~1ull;
			t->lease_end = INT64_MAX;
			t->last = 0;
			t->owner = rand() & 1 ? (uint16_t)rand() : t->owner;
		}
		if (vm.owner && !m.is_queued[i] && vm.owner != th(i)) {
			join(i);
			m.is_queued[i] = true;
		} else if (vm.owner) {
			vm.owner = 0;
		} else {
			if (m.is_queued[i])
				part(i);
			m.is_queued[i] = false;
			vm.owner = th(i);
		}
		scry_gvl_let_go((uint64_t)mutex, (uint32_t)rand() & 1);
	}
	assert_int_not_equal(t->sequence, 0);
	scry_agent_gvl.plan.stacks = 0;
	state_page.table = own;
	munmap((uint8_t *)t - GUARD, TABLE_BYTES + 2 * GUARD);
}

/* A fork child that is entered itself is open before its table is there: 0, or 1 after a claim that
 * failed. */
static void no_table(void **state)
{
	const uint64_t own = state_page.table;

	(void)state;
	for (uint64_t none = 0; none < 2; none++) {
		state_page.table = none;
		scry_gvl_let_go((uint64_t)mutex, 0);
		scry_gvl_let_go((uint64_t)mutex, 1);
		assert_int_equal(state_page.table, none);
	}
	state_page.table = own;
}

/* The end of the lease is looked at anew when it has come, and only then. */
static void lease(void **state)
{
	struct model m = {.owner = NOBODY};

	control.lease_end_tsc = 0;
	take(&m, 0);
	assert_int_equal(table()->over, 1);
	assert_int_equal(table()->sequence, 0);
	control.lease_end_tsc = INT64_MAX;
	take(&m, 0);
	assert_int_equal(table()->sequence, 0); /* what was missed stays missed */
	memset((void *)state_page.table, 0, sizeof(struct scry_gvl_table));
	control.lease_end_tsc = scry_tsc() + 1000000000ull;
	take(&m, 0);
	assert_int_equal(table()->lease_end, control.lease_end_tsc);
	control.lease_end_tsc = INT64_MAX;
	while (scry_tsc() <= table()->lease_end)
		;
	give(&m, false);
	assert_int_equal(table()->over, 0);
	assert_int_equal(table()->sequence, 4);
	assert_int_equal(table()->lease_end, INT64_MAX);
}

/* ---- stacks ---- */

#define FRAME 7 /* words of a control frame: pc, iseq, and at 2 its ep */
#define DEPTH 5

static uint64_t ecs[THREADS][4];      /* stack, its size, cfp */
static uint64_t stacks[THREADS][512]; /* values, from the front; frames, from the end */

static void stand(int i)
{
	uint64_t *end = stacks[i] + 512, *cfp = end - DEPTH * FRAME;

	for (int k = 0; k < 512; k++)
		stacks[i][k] = (uint64_t)(i << 16 | k);
	for (int k = 0; k < DEPTH; k++) /* the newest one's is elsewhere: on the heap */
		cfp[k * FRAME + 2] = k ? (uint64_t)(stacks[i] + 40 - k) : (uint64_t)&vm;
	ecs[i][0] = (uint64_t)stacks[i];
	ecs[i][1] = 512;
	ecs[i][2] = (uint64_t)cfp;
	threads[i][1] = (uint64_t)ecs[i];
}

static int set_up_stacks(void **state)
{
	struct scry_gvl_plan *plan = &scry_agent_gvl.plan;

	set_up(state);
	plan->ec = 8;
	plan->ec_stack_size = 8;
	plan->cfp = 16;
	plan->frame_ep = 16;
	plan->frame_size = 8 * FRAME;
	plan->stacks = 1;
	for (int i = 0; i < THREADS; i++)
		stand(i);
	return 0;
}

static int tear_down_stacks(void **state)
{
	scry_agent_gvl.plan.stacks = 0;
	return tear_down(state);
}

/* Takes out what is there: as the keeper does. Returns how many words are a stack's. */
static uint64_t take_out(uint64_t ticks[THREADS], uint64_t waits[THREADS])
{
	struct scry_gvl_table *t = (struct scry_gvl_table *)scry_agent.state_page->table;
	const uint64_t *ring = (const uint64_t *)t + SCRY_GVL_RING_AT;
	uint64_t copied = 0;

	while (t->ring_tail != t->ring_head) {
		uint64_t words[SCRY_GVL_WAIT_WORDS + 2 * 512];
		const struct scry_gvl_wait *w = (const void *)words;
		const uint64_t count = ring[t->ring_tail % SCRY_GVL_RING];
		int i = 0;

		assert_in_range(count, SCRY_GVL_WAIT_WORDS, sizeof(words) / 8);
		for (uint64_t k = 0; k < count; k++)
			words[k] = ring[(t->ring_tail + k) % SCRY_GVL_RING];
		while (i < THREADS && th(i) != w->th)
			i++;
		assert_in_range(i, 0, THREADS - 1);
		ticks[i] += w->ticks;
		waits[i]++;
		copied += count - SCRY_GVL_WAIT_WORDS;
		if (count > SCRY_GVL_WAIT_WORDS) {
			assert_int_equal(w->end - w->cfp, 8 * DEPTH * FRAME);
			assert_int_equal(w->top - w->bottom, 8 * 40); /* that ends with ep */
			assert_memory_equal(words + SCRY_GVL_WAIT_WORDS,
					    stacks[i] + 512 - DEPTH * FRAME, 8 * DEPTH * FRAME);
			assert_memory_equal(words + SCRY_GVL_WAIT_WORDS + DEPTH * FRAME, stacks[i],
					    8 * 40);
		}
		t->ring_tail += count;
	}
	return copied;
}

/* Each wait that is over comes with the stack of its thread, through many rounds of the ring. */
static void waits_with_stacks(void **state)
{
	struct model m = {.owner = NOBODY};
	uint64_t ticks[THREADS] = {0}, waits[THREADS] = {0}, copied = 0;

	srand(4711);
	take(&m, 0);
	m = (struct model){.owner = 0, .state = {HOLDS}, .takes = {1}, .last = table()->last};
	for (uint32_t round = 0; round < ROUNDS; round++) {
		step(&m);
		if (round % 1000 == 999) {
			calm(&m);
			copied += take_out(ticks, waits);
		}
	}
	check(&m);
	assert_in_range(copied, 4 * SCRY_GVL_RING, UINT64_MAX);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(waits[i], m.waits[i]);
		assert_int_equal(ticks[i], m.wanted[i]);
	}
	assert_int_equal(table()->unstacked, 0);
}

/* Of shorter ones no stack is taken, and no room in the ring; they are in all sums. */
static void threshold(void **state)
{
	struct model m = {.owner = NOBODY};
	uint64_t ticks[THREADS] = {0}, waits[THREADS] = {0}, wanted = 0, ended = 0, all = 0;
	uint64_t brief = 0, brief_waits = 0, least = 0;

	srand(4711);
	take(&m, 0);
	m = (struct model){.owner = 0, .state = {HOLDS}, .takes = {1}, .last = table()->last};
	for (uint32_t round = 0; round < 20000; round++) {
		step(&m);
		if (round % 1000 == 999)
			take_out(ticks, waits);
		if (round != 9999)
			continue;
		for (int i = 0; i < THREADS; i++) {
			ended += waits[i];
			all += ticks[i];
		}
		least = scry_agent_gvl.plan.threshold = all / ended; /* some are shorter */
	}
	calm(&m);
	take_out(ticks, waits);
	scry_agent_gvl.plan.threshold = 0;
	check(&m);
	ended = all = 0;
	for (uint32_t i = 1; i < table()->rows; i++) {
		brief += table()->row[i].brief;
		brief_waits += table()->row[i].brief_waits;
	}
	for (int i = 0; i < THREADS; i++) {
		ended += m.waits[i] - waits[i];
		wanted += m.wanted[i];
		all += ticks[i];
	}
	assert_in_range(brief_waits, 1, UINT64_MAX);
	assert_int_equal(ended, brief_waits);
	assert_int_equal(wanted, all + brief);
	assert_in_range(brief, 1, brief_waits * least);
}

/* A keeper that takes nothing out: what finds no room is counted, and no more. */
static void full(void **state)
{
	struct model m = {.owner = NOBODY};
	uint64_t ticks[THREADS] = {0}, waits[THREADS] = {0}, all = 0;

	take(&m, 0);
	m = (struct model){.owner = 0, .state = {HOLDS}, .takes = {1}, .last = table()->last};
	for (uint32_t round = 0; round < ROUNDS; round++)
		step(&m);
	calm(&m);
	check(&m);
	assert_in_range(table()->ring_head, SCRY_GVL_RING - 200, SCRY_GVL_RING);
	take_out(ticks, waits);
	for (int i = 0; i < THREADS; i++)
		all += m.waits[i] - waits[i];
	assert_int_equal(all, table()->unstacked);
	assert_in_range(all, 1, UINT64_MAX);
}

/* Stacks that are none, or deeper than fits: the wait is told without. */
static void no_stacks(void **state)
{
	static uint64_t(*const good)[4] = ecs;
	const uint64_t wrong[][3] = {
		{0, 512, 0},
		{good[1][0], 512, good[1][0] - 8},
		{good[1][0], 512, good[1][2] + 1},
		{good[1][0], 512, good[1][0] + 8 * 512},
		{good[1][0], 1ull << 61, good[1][2]},
		{good[1][0], 1ull << 20, good[1][2]},
		{8, 512, 16},
	};
	struct model m = {.owner = NOBODY};
	uint64_t ticks[THREADS] = {0}, waits[THREADS] = {0};

	take(&m, 0);
	m = (struct model){.owner = 0, .state = {HOLDS}, .takes = {1}, .last = table()->last};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		memcpy(ecs[1], wrong[i], sizeof(wrong[i]));
		want(&m, 1);
		give(&m, false);
		take(&m, 1);
		give(&m, false);
		take(&m, 0);
		assert_int_equal(take_out(ticks, waits), 0);
		assert_int_equal(waits[1], i + 1);
	}
	threads[1][1] = 0;
	want(&m, 1);
	give(&m, false);
	take(&m, 1);
	assert_int_equal(take_out(ticks, waits), 0);
	assert_int_equal(waits[1], sizeof(wrong) / sizeof(wrong[0]) + 1);
	assert_int_equal(table()->unstacked, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(sums, set_up, tear_down),
		cmocka_unit_test_setup_teardown(crowded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(quiet, set_up, tear_down),
		cmocka_unit_test_setup_teardown(granted, set_up_handing_over,
						tear_down_handing_over),
		cmocka_unit_test_setup_teardown(reused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(lease, set_up, tear_down),
		cmocka_unit_test_setup_teardown(forged, set_up, tear_down),
		cmocka_unit_test_setup_teardown(any_table, set_up_stacks, tear_down_stacks),
		cmocka_unit_test_setup_teardown(no_table, set_up_stacks, tear_down_stacks),
		cmocka_unit_test_setup_teardown(waits_with_stacks, set_up_stacks, tear_down_stacks),
		cmocka_unit_test_setup_teardown(threshold, set_up_stacks, tear_down_stacks),
		cmocka_unit_test_setup_teardown(full, set_up_stacks, tear_down_stacks),
		cmocka_unit_test_setup_teardown(no_stacks, set_up_stacks, tear_down_stacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
