/*
 * Rows of threads that come and go: the agent gives them back when the keeper has read them, and no
 * number is lost or counted twice. One native thread, and a VM of two words: who has its lock, and
 * an empty queue.
 */
#include "agent_gvl_vm.h"

static int set_up(void **state)
{
	vm_begin();
	vm.owner = 0;
	return 0;
}

static int tear_down(void **state)
{
	vm_end();
	return 0;
}

#define LIVING 40
#define COMERS 5000

static uint64_t comers[COMERS][16];

/* Takes it and gives it. Returns for how long it held it. */
static uint64_t have(uint64_t *thread)
{
	uint64_t began;

	vm.owner = (uint64_t)thread;
	scry_gvl_let_go((uint64_t)mutex, 0);
	began = table()->last;
	vm.owner = 0;
	scry_gvl_let_go((uint64_t)mutex, 0);
	return table()->last - began;
}

static uint32_t row_at(const uint64_t *thread)
{
	uint32_t found = 0, count = 0;

	for (uint32_t i = 1; i < table()->rows; i++)
		if (table()->row[i].th == (uint64_t)thread) {
			found = i;
			count++;
		}
	assert_in_range(count, 0, 1);
	return found;
}

/* As the keeper does: their rows are read, and asked for. */
static void ask_back(struct scry_gvl_table *t, uint64_t *const *gone, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const uint32_t row = row_at(gone[i]);

		assert_int_not_equal(row, 0);
		t->ended[i] = (struct scry_gvl_ended){.since = t->row[row].since, .row = row};
	}
	t->ended_count = count;
	t->asked++;
}

/* Many more threads than there are rows, of which a few live at a time, and end in any order: none
 * is without a row, and all that they held is in the rows that are given back and those that are
 * left. */
static void come_and_go(void **state)
{
	struct scry_gvl_table *t = (struct scry_gvl_table *)state_page.table;
	uint64_t *living[LIVING], *gone[SCRY_GVL_ENDED], held = 0, told = 0;
	uint32_t next = 0, ended = 0;

	srand(4713);
	for (; next < LIVING; next++)
		held += have(living[next] = comers[next]);
	while (next < COMERS) {
		const int i = rand() % LIVING;

		held += have(living[rand() % LIVING]);
		if (rand() % 2)
			continue;
		gone[ended++] = living[i];
		held += have(living[i] = comers[next++]);
		if (ended < 200)
			continue;
		ask_back(t, gone, ended);
		for (uint32_t k = 0; k < ended; k++)
			told += t->row[t->ended[k].row].held;
		scry_gvl_let_go((uint64_t)mutex, 1);
		assert_int_equal(t->given, t->asked);
		for (uint32_t k = 0; k < ended; k++) {
			assert_int_equal(t->ended[k].is_free, 1);
			assert_int_equal(row_at(gone[k]), 0);
		}
		ended = 0;
	}
	assert_int_equal(t->crowded, 0);
	assert_in_range(t->rows, 200, 200 + LIVING + 2);
	for (uint32_t i = 1; i < t->rows; i++)
		told += t->row[i].th ? t->row[i].held : 0;
	assert_int_equal(told, held);
	for (int i = 0; i < LIVING; i++)
		assert_int_not_equal(row_at(living[i]), 0);
}

/* A row that has changed since it was read is not given back, and one that is has nothing of its
 * last thread. */
static void given_back(void **state)
{
	struct scry_gvl_table *t = (struct scry_gvl_table *)state_page.table;
	uint64_t *const gone[2] = {comers[0], comers[1]};
	uint32_t row;

	for (int i = 0; i < 3; i++)
		have(comers[i]);
	ask_back(t, gone, 2);
	vm.owner = (uint64_t)comers[2];
	scry_gvl_let_go((uint64_t)mutex, 0);
	assert_int_equal(t->given, 0); /* who takes it again is counted in few steps */
	vm.owner = 0;
	scry_gvl_let_go((uint64_t)mutex, 0);
	row = row_at(comers[1]);
	have(comers[0]);
	assert_int_equal(t->given, 1);
	assert_int_equal(t->ended[0].is_free, 1);
	assert_int_equal(t->pairs_at, 1);
	assert_int_equal(t->ended[1].is_free, 1);
	assert_int_equal(row_at(comers[1]), 0);
	assert_int_equal(t->free_rows, 1); /* the other one was taken at once */
	assert_int_equal(row_at(comers[0]), row);
	assert_int_equal(t->row[row].uses, 1);
	assert_int_equal(t->row[row].takes, 1);
	have(comers[3]);
	assert_int_equal(t->free_rows, 0);
	assert_int_equal(t->rows, 4);
	ask_back(t, gone, 1);
	t->ended[0].since--;
	have(comers[3]);
	have(comers[2]);
	assert_int_equal(t->given, 2);
	assert_int_equal(t->ended[0].is_free, 0);
	assert_int_not_equal(row_at(comers[0]), 0);
}

/* A fork child fills the hash: the row is kept, as what comes behind it has no end. */
static void forged_hash(void **state)
{
	struct scry_gvl_table *t = (struct scry_gvl_table *)state_page.table;
	uint64_t *const gone[1] = {comers[0]};

	have(comers[0]);
	have(comers[1]);
	ask_back(t, gone, 1);
	for (uint32_t i = 0; i < SCRY_GVL_SLOTS; i++)
		t->slots[i] = t->slots[i] ? t->slots[i] : 3;
	scry_gvl_let_go((uint64_t)mutex, 1);
	assert_int_equal(t->given, 1);
	assert_int_equal(t->ended[0].is_free, 0);
	assert_int_equal(t->free_rows, 0);
	assert_int_not_equal(row_at(comers[0]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(come_and_go, set_up, tear_down),
		cmocka_unit_test_setup_teardown(given_back, set_up, tear_down),
		cmocka_unit_test_setup_teardown(forged_hash, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
