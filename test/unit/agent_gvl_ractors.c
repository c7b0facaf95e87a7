/*
 * Locks of other ractors: which mutex is one, which table counts it, and that a mutex made where a
 * lock was is none. One native thread, and ractors of four words each: mutex and owner as a VM to
 * 3.2 has them, then a queue that is empty.
 */
#include "agent_gvl_vm.h"

#include <stdbool.h>
#include <string.h>

#include "wire/gvl_others.h"

#define RACTORS 40
#define MUTEX_AT 24 /* in a ractor */
#define TH_RACTOR 16

static struct ractor {
	uint64_t pad[2], owner, mutex[5], queue[2];
} ractors[RACTORS];
static uint64_t threads[RACTORS][4];
_Static_assert(offsetof(struct ractor, mutex) == MUTEX_AT, "see above");

static uint64_t mutex_of(int i)
{
	return (uint64_t)ractors[i].mutex;
}

static int set_up(void **state)
{
	vm_begin();
	memset(scry_agent_gvl.known, 0,
	       sizeof(scry_agent_gvl) - offsetof(struct scry_agent_gvl, known));
	memset(state_page.gvl_others, 0, sizeof(state_page.gvl_others));
	scry_agent_gvl.plan.mutex = (uint64_t)mutex;
	scry_agent_gvl.plan.owner = (uint64_t)mutex - 8;
	scry_agent_gvl.plan.queue =
		(uint64_t)mutex + (offsetof(struct ractor, queue) - offsetof(struct ractor, mutex));
	scry_agent_gvl.plan.ractor = TH_RACTOR;
	scry_agent_gvl.plan.mutex_at = MUTEX_AT;
	scry_agent_gvl.plan.node = 3 * 8;
	for (int i = 0; i < RACTORS; i++) {
		ractors[i] = (struct ractor){
			.queue = {(uint64_t)ractors[i].queue, (uint64_t)ractors[i].queue}};
		threads[i][0] = (uint64_t)i + 1;
		threads[i][TH_RACTOR / 8] = (uint64_t)&ractors[i];
	}
	return 0;
}

static int tear_down(void **state)
{
	scry_agent_gvl.plan = (struct scry_gvl_plan){0};
	vm_end();
	return 0;
}

static void let_go(int i, uint64_t owner)
{
	ractors[i].owner = owner;
	scry_gvl_let_go_other(mutex_of(i), 0);
}

static struct scry_gvl_table *first_table(void)
{
	return (struct scry_gvl_table *)state_page.table;
}

/* The table that counts its lock; NULL: none does. */
static struct scry_gvl_table *table_of(int i)
{
	struct scry_gvl_table *found = NULL;

	for (uint32_t k = 0; k < SCRY_GVL_OTHERS; k++) {
		struct scry_gvl_table *t = scry_gvl_other_at(first_table(), k);

		if (t->mutex == mutex_of(i) && !t->is_over) {
			assert_null(found);
			found = t;
		}
	}
	return found;
}

/* The threads make it, take it and give it: it is counted from the first time on. */
static void known_at_once(void **state)
{
	const struct scry_gvl_row *row;

	scry_gvl_made(mutex_of(0));
	let_go(0, (uint64_t)threads[0]);
	assert_non_null(table_of(0));
	assert_int_equal(scry_gvl_events(table_of(0)), 1);
	let_go(0, 0);
	row = scry_gvl_row_at(&scry_gvl_shape_other, table_of(0), 1);
	assert_int_equal(row->th, threads[0]);
	assert_int_equal(row->takes, 1);
	assert_int_equal(row->held, table_of(0)->last - table_of(0)->began);
	assert_int_equal(scry_gvl_events(table_of(0)), 2);
	assert_int_equal(scry_gvl_events(table()), 0); /* the first one's has nothing of it */
}

/* Who is not made in the watch, is no lock, or lies beside words that name no thread, is none. */
static void others_are_none(void **state)
{
	uint64_t far[8] = {0};

	let_go(1, (uint64_t)threads[1]); /* not made */
	assert_null(table_of(1));
	scry_gvl_made(mutex_of(2));
	let_go(2, (uint64_t)threads[3]); /* a thread of another ractor */
	assert_null(table_of(2));
	scry_gvl_made((uint64_t)&far[1]);
	for (uint64_t word = 0x7f0000000000; word < 0x7f0000000010; word += 5) {
		far[0] = word; /* no pointer, or to where nothing is */
		scry_gvl_made((uint64_t)&far[1]);
		scry_gvl_let_go_other((uint64_t)&far[1], 0);
	}
	assert_int_equal(first_table()->others, 0);
}

/* A mutex made where a lock was is another one: the table counts nothing more. */
static void made_anew(void **state)
{
	struct scry_gvl_table *t;
	uint64_t events;

	scry_gvl_made(mutex_of(0));
	let_go(0, (uint64_t)threads[0]);
	let_go(0, 0);
	t = table_of(0);
	events = scry_gvl_events(t);
	scry_gvl_made(mutex_of(0));
	assert_true(t->is_over);
	let_go(0, 1234567); /* whatever now lies there */
	let_go(0, (uint64_t)threads[0]);
	assert_int_equal(scry_gvl_events(t), events);
	assert_null(table_of(0));
	scry_gvl_made(mutex_of(0)); /* and a ractor again: a table of its own */
	let_go(0, (uint64_t)threads[0]);
	assert_non_null(table_of(0));
	assert_ptr_not_equal(table_of(0), t);
}

/* The same while another thread changes what is known, or never came back from that. */
static void made_anew_in_a_change(void **state)
{
	struct scry_gvl_table *t;
	uint64_t events;

	scry_gvl_made(mutex_of(0));
	let_go(0, (uint64_t)threads[0]);
	t = table_of(0);
	events = scry_gvl_events(t);
	state_page.gvl_changes = 1;
	scry_gvl_made(mutex_of(0));
	assert_true(t->is_over);
	assert_int_equal(first_table()->unproven, 1);
	let_go(0, 1234567); /* would trap if it were followed */
	state_page.gvl_changes = 0;
	assert_int_equal(scry_gvl_events(t), events);
	assert_null(table_of(0));
}

/* One that the keeper has seen: another mutex may be there before the hooks are on. */
static void seen_by_the_keeper(void **state)
{
	for (int i = 0; i < 3; i++) {
		const uint32_t set = scry_gvl_set_of(mutex_of(i));
		uint32_t way = 0;

		while (scry_agent_gvl.known[set][way])
			way++;
		scry_agent_gvl.known[set][way] = mutex_of(i);
		scry_agent_gvl.is[set][way] = SCRY_GVL_PROVEN;
	}
	let_go(0, 1234567);
	assert_null(table_of(0));
	ractors[1].queue[1] = 1234567; /* no owner, and what is no queue */
	let_go(1, 0);
	assert_null(table_of(1));
	let_go(2, 0);
	assert_non_null(table_of(2));
}

/* There are no more tables: that is counted. One that may go is another lock's, from zero on. */
static void tables_end(void **state)
{
	struct scry_gvl_table *t;
	uint32_t uses;

	for (int i = 0; i < (int)SCRY_GVL_OTHERS + 3; i++) {
		scry_gvl_made(mutex_of(i));
		let_go(i, (uint64_t)threads[i]);
		let_go(i, 0);
	}
	assert_int_equal(first_table()->refused, 3);
	assert_int_equal(first_table()->others, SCRY_GVL_OTHERS);
	assert_null(table_of(SCRY_GVL_OTHERS));
	t = table_of(5);
	uses = t->uses;
	t->may_go_at = t->sequence - 2; /* not as it was read */
	t->may_go = uses;
	scry_gvl_made(mutex_of(30));
	let_go(30, (uint64_t)threads[30]);
	assert_null(table_of(30));
	t->may_go_at = t->sequence;
	scry_gvl_made(mutex_of(31));
	let_go(31, (uint64_t)threads[31]);
	assert_ptr_equal(table_of(31), t);
	assert_int_equal(t->uses, uses + 1);
	assert_int_equal(scry_gvl_events(t), 1);
	assert_int_equal(t->rows, 2);
	let_go(5, (uint64_t)threads[5]); /* its lock is not counted any more, nor in that table */
	assert_null(table_of(5));
	assert_int_equal(scry_gvl_events(t), 1);
}

/* Those that have waited for an owner for too long make room. */
static void many_young(void **state)
{
	static uint64_t others[4096][2];

	for (int i = 0; i < 4096; i++) {
		scry_gvl_made((uint64_t)&others[i][1]);
		scry_gvl_let_go_other((uint64_t)&others[i][1], 0);
	}
	assert_int_equal(first_table()->unproven, 0);
	scry_gvl_made(mutex_of(0));
	let_go(0, (uint64_t)threads[0]);
	assert_non_null(table_of(0));
}

/* A fork child knows its parent's mutexes, and its tables are empty: a lock gets one anew. */
static void in_a_child(void **state)
{
	scry_gvl_made(mutex_of(0));
	let_go(0, (uint64_t)threads[0]);
	memset(first_table(), 0,
	       SCRY_GVL_OTHERS_AT + SCRY_GVL_OTHERS * sizeof(struct scry_gvl_other));
	memset(state_page.gvl_others, 0, sizeof(state_page.gvl_others));
	let_go(0, 1234568); /* no thread */
	assert_null(table_of(0));
	scry_gvl_made(mutex_of(1));
	let_go(1, (uint64_t)threads[1]);
	assert_int_equal(scry_gvl_events(table_of(1)), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(known_at_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(others_are_none, set_up, tear_down),
		cmocka_unit_test_setup_teardown(made_anew, set_up, tear_down),
		cmocka_unit_test_setup_teardown(made_anew_in_a_change, set_up, tear_down),
		cmocka_unit_test_setup_teardown(seen_by_the_keeper, set_up, tear_down),
		cmocka_unit_test_setup_teardown(tables_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(many_young, set_up, tear_down),
		cmocka_unit_test_setup_teardown(in_a_child, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
