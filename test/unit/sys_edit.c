/* The journal of sys/edit on memory of this very process: what stands, what is over, what is left
 * alone. */
#include "sys/edit.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define SLOTS 200

static struct {
	struct scry_mem mem;
	struct scry_edit edit;
	struct scry_journal *journal;
	uint64_t slots[SLOTS];
} t;

static int setup(void **state)
{
	(void)state;
	t.journal = mmap(NULL, SCRY_JOURNAL_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(t.journal != MAP_FAILED);
	assert_int_equal(scry_mem_open(&t.mem, getpid(), 1), 0);
	assert_int_equal(scry_edit_open(&t.edit, &t.mem, (uint64_t)(uintptr_t)t.journal), 0);
	for (uint64_t i = 0; i < SLOTS; i++)
		t.slots[i] = i;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	scry_edit_close(&t.edit);
	scry_mem_close(&t.mem);
	munmap(t.journal, SCRY_JOURNAL_BYTES);
	return 0;
}

static uint64_t at(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/* Slot i from its value to 1000 + i. */
static void change(size_t i, const struct scry_map_entry *mapping, uint64_t *slot)
{
	const uint64_t old = *slot, fresh = 1000 + i;
	const struct scry_change c = {.addr = at(slot),
				      .size = 8,
				      .kind = SCRY_EDIT_SLOT,
				      .old = &old,
				      .new_ = &fresh,
				      .mapping = mapping};

	assert_int_equal(scry_edit_change(&t.edit, &c), 0);
	assert_int_equal(*slot, fresh);
}

/* What another scry would read. */
static void expect_journal(size_t count, size_t standing)
{
	struct scry_edit other;

	assert_int_equal(scry_edit_open(&other, &t.mem, at(t.journal)), 0);
	assert_int_equal(other.count, count);
	assert_int_equal(scry_edit_standing(&other), standing);
	scry_edit_close(&other);
}

static void test_switch(void **state)
{
	static uint8_t code[2] = {0x55, 0xc3};
	const uint8_t old = 0x55, int3 = 0xcc;
	const struct scry_change c = {
		.addr = at(code), .size = 1, .kind = SCRY_EDIT_TEXT, .old = &old, .new_ = &int3};

	(void)state;
	assert_int_equal(scry_edit_change(&t.edit, &c), 0);
	assert_int_equal(scry_edit_switch(&t.edit, 0, true), 0);
	assert_int_equal(code[0], int3);
	assert_int_equal(scry_edit_switch(&t.edit, 0, false), 0);
	assert_int_equal(code[0], old);
	expect_journal(1, 1); /* it still counts as changed */
	assert_int_equal(scry_edit_switch(&t.edit, 0, true), 0);
	assert_int_equal(code[0], int3);
	code[0] = 0x90;
	assert_int_equal(scry_edit_switch(&t.edit, 0, false), -EBUSY);
	assert_int_equal(code[0], 0x90);
	assert_int_equal(code[1], 0xc3);
}

/* One write of a page is whole whatever happens; of two pages either may come alone. */
static void test_across_pages(void **state)
{
	static _Alignas(SCRY_PAGE) uint8_t pages[2 * SCRY_PAGE];
	const uint8_t old[5] = {0}, jump[5] = {0xe9, 0x01, 0x02, 0x03, 0x04};
	struct scry_change c = {.addr = at(pages) + SCRY_PAGE - 4,
				.size = sizeof(jump),
				.kind = SCRY_EDIT_TEXT,
				.old = old,
				.new_ = jump};

	(void)state;
	assert_int_equal(scry_edit_change(&t.edit, &c), -ERANGE);
	expect_journal(0, 0);
	assert_memory_equal(pages + SCRY_PAGE - 4, old, sizeof(old));
	c.addr--;
	assert_int_equal(scry_edit_change(&t.edit, &c), 0);
	assert_memory_equal(pages + SCRY_PAGE - 5, jump, sizeof(jump));
	expect_journal(1, 1);
}

/* A change over one that stands, by another set: `fresh` in the place of what the first has put. */
static void change_over(uint64_t *slot, uint64_t fresh)
{
	const uint64_t old = *slot;
	const struct scry_change c = {.addr = at(slot),
				      .size = 8,
				      .kind = SCRY_EDIT_SLOT,
				      .old = &old,
				      .new_ = &fresh,
				      .is_over = true};

	assert_int_equal(scry_edit_change(&t.edit, &c), 0);
	assert_int_equal(*slot, fresh);
}

/* Slots 0 and 1 by the first set, slot 1 by the second too. */
static void change_twice(void)
{
	change(0, NULL, &t.slots[0]);
	change(1, NULL, &t.slots[1]);
	t.edit.set = 1;
	assert_ptr_equal(scry_edit_under(&t.edit, at(&t.slots[1]), at(&t.slots[2])),
			 &t.edit.entries[1]);
	assert_null(scry_edit_under(&t.edit, at(&t.slots[2]), at(&t.slots[3])));
	change_over(&t.slots[1], 2001);
	assert_null(scry_edit_under(&t.edit, at(&t.slots[3]), at(&t.slots[4])));
}

static void test_over(void **state)
{
	struct scry_undo_report report;
	struct scry_maps maps;

	(void)state;
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	change_twice();
	/* the first leaves: what the second stands over stays, and is no failure */
	assert_int_equal(scry_edit_undo_some(&t.edit, &maps, 0, 2, &report), 0);
	assert_int_equal(report.foreign + report.failed, 0);
	assert_int_equal(t.slots[0], 0);
	assert_int_equal(t.slots[1], 2001);
	expect_journal(3, 2);
	/* then all: by what the first had put to what was there */
	assert_int_equal(scry_edit_undo(&t.edit, &maps, &report), 0);
	assert_int_equal(t.slots[1], 1);
	expect_journal(0, 0);
	scry_maps_done(&maps);
}

/* The second leaves first; and after a crash another scry finds the same order. */
static void test_over_is_first(void **state)
{
	struct scry_undo_report report;
	struct scry_maps maps;
	struct scry_edit other;

	(void)state;
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	change_twice();
	assert_int_equal(scry_edit_undo_some(&t.edit, &maps, 2, 1, &report), 0);
	assert_int_equal(t.slots[1], 1001);
	assert_int_equal(scry_edit_undo(&t.edit, &maps, &report), 0);
	assert_int_equal(t.slots[1], 1);
	t.edit.set = 0;
	change_twice();
	assert_int_equal(scry_edit_open(&other, &t.mem, at(t.journal)), 0);
	assert_int_equal(scry_edit_undo(&other, &maps, &report), 0);
	assert_int_equal(report.restored, 3);
	assert_int_equal(t.slots[0], 0);
	assert_int_equal(t.slots[1], 1);
	scry_edit_close(&other);
	scry_maps_done(&maps);
}

static void test_compact(void **state)
{
	struct scry_undo_report report;
	struct scry_maps maps;

	(void)state;
	for (size_t i = 0; i < SLOTS; i++)
		change(i, NULL, &t.slots[i]);
	expect_journal(SLOTS, SLOTS);
	assert_int_equal(scry_edit_forget(&t.edit, at(&t.slots[50]), at(&t.slots[150])), 0);
	expect_journal(SLOTS, 100);
	assert_int_equal(scry_edit_compact(&t.edit, 60), 0); /* 50 to 59 stay where they are */
	expect_journal(110, 100);
	assert_int_equal(t.edit.entries[60].address, at(&t.slots[150]));
	assert_int_equal(scry_edit_compact(&t.edit, 60), 0);
	expect_journal(110, 100);
	assert_int_equal(scry_edit_compact(&t.edit, 0), 0);
	expect_journal(100, 100);
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	assert_int_equal(scry_edit_undo(&t.edit, &maps, &report), 0);
	scry_maps_done(&maps);
	assert_int_equal(report.restored, 100);
	for (uint64_t i = 0; i < SLOTS; i++) /* what was forgotten was not written */
		assert_int_equal(t.slots[i], i >= 50 && i < 150 ? 1000 + i : i);
	expect_journal(0, 0);
}

static void test_is_there(void **state)
{
	bool any;

	(void)state;
	assert_false(scry_edit_is_there(&t.edit, at(t.slots), at(t.slots + SLOTS), &any));
	assert_false(any);
	change(3, NULL, &t.slots[3]);
	change(4, NULL, &t.slots[4]);
	assert_true(scry_edit_is_there(&t.edit, at(t.slots), at(t.slots + SLOTS), &any));
	assert_true(any);
	t.slots[3] = 77; /* bound meanwhile; the other still shows it */
	assert_true(scry_edit_is_there(&t.edit, at(t.slots), at(t.slots + SLOTS), &any));
	t.slots[4] = 4;
	assert_false(scry_edit_is_there(&t.edit, at(t.slots), at(t.slots + SLOTS), &any));
	assert_true(any);
	assert_false(scry_edit_is_there(&t.edit, at(t.slots + 5), at(t.slots + SLOTS), &any));
	assert_false(any);
}

/* As with a uprobe: an int3 is written over the first byte of a jump, and when that goes, the byte
 * that the file has. The change stands all the while; it is wiped only where the file's stands. */
static void test_torn(void **state)
{
	static uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0x53, 0xc3};
	const uint8_t old[] = {0x55, 0x48, 0x89, 0xe5, 0x53, 0xc3};
	const uint8_t jump[] = {0xe9, 0x48, 0x02, 0x03, 0x04};
	struct scry_undo_report report;
	struct scry_maps maps;
	struct scry_change c = {.addr = at(code),
				.size = sizeof(jump),
				.kind = SCRY_EDIT_TEXT,
				.old = old,
				.new_ = jump};
	bool any;

	(void)state;
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	c.mapping = scry_maps_at(&maps, at(code));
	assert_int_equal(scry_edit_change(&t.edit, &c), 0);
	assert_true(scry_edit_is_there(&t.edit, at(code), at(code + 6), &any));
	code[0] = 0xcc;
	assert_true(scry_edit_is_there(&t.edit, at(code), at(code + 6), &any));
	assert_int_equal(scry_edit_undo(&t.edit, &maps, &report), -EBUSY);
	assert_int_equal(report.foreign, 1);
	assert_int_equal(scry_edit_standing(&t.edit), 1);
	assert_int_equal(code[0], 0xcc);
	memcpy(code + 1, old + 1, 4); /* mapped anew, with the uprobe */
	assert_false(scry_edit_is_there(&t.edit, at(code), at(code + 6), &any));
	memcpy(code + 1, jump + 1, 4);
	code[0] = old[0];
	assert_true(scry_edit_is_there(&t.edit, at(code), at(code + 6), &any));
	assert_int_equal(scry_edit_undo(&t.edit, &maps, &report), 0);
	assert_memory_equal(code, old, sizeof(old));
	expect_journal(0, 0);
	scry_maps_done(&maps);
}

/* A file's page is changed and unmapped, and something else comes there that holds the very bytes
 * we wrote: it is not ours to put back. */
static void test_unmapped(void **state)
{
	struct scry_undo_report report;
	struct scry_maps maps;
	uint64_t *page, *other;
	FILE *file = tmpfile();

	(void)state;
	assert_non_null(file);
	assert_int_equal(ftruncate(fileno(file), SCRY_PAGE), 0);
	page = mmap(NULL, SCRY_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
	assert_true(page != MAP_FAILED);
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	change(7, scry_maps_at(&maps, at(page)), page);
	scry_maps_done(&maps);
	other = mmap(page, SCRY_PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	assert_ptr_equal(other, page);
	*other = 1007;
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	assert_int_equal(scry_edit_undo(&t.edit, &maps, &report), 0);
	scry_maps_done(&maps);
	assert_int_equal(*other, 1007);
	assert_int_equal(report.bytes, 0);
	assert_int_equal(report.failed + report.foreign, 0);
	assert_int_equal(scry_edit_standing(&t.edit), 0);
	munmap(page, SCRY_PAGE);
	fclose(file);
}

/* The same file is mapped there again: then our bytes are put back. */
static void test_mapped_still(void **state)
{
	struct scry_undo_report report;
	struct scry_maps maps;
	FILE *file = tmpfile();
	uint64_t *page;

	(void)state;
	assert_non_null(file);
	assert_int_equal(ftruncate(fileno(file), SCRY_PAGE), 0);
	page = mmap(NULL, SCRY_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
	assert_true(page != MAP_FAILED);
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	change(8, scry_maps_at(&maps, at(page)), page);
	assert_int_equal(scry_edit_undo(&t.edit, &maps, &report), 0);
	scry_maps_done(&maps);
	assert_int_equal(*page, 0);
	assert_int_equal(report.bytes, 8);
	munmap(page, SCRY_PAGE);
	fclose(file);
}

/* The journal lies in the target, which can write there what it likes. */
static void test_forged(void **state)
{
	static const struct {
		uint64_t address;
		uint32_t size;
	} forged[] = {{0x7000, 0},
		      {0x7000, SCRY_EDIT_MAX + 1},
		      {0x7fff, 2},
		      {0x7fff, 16},
		      {UINT64_MAX, 2}};

	(void)state;
	for (size_t i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
		struct scry_edit other;

		t.journal->entries[0] = (struct scry_journal_entry){.address = 0x7000,
								    .size = 16,
								    .state = SCRY_EDIT_APPLIED,
								    .kind = SCRY_EDIT_TEXT};
		t.journal->entries[1] = t.journal->entries[0];
		t.journal->entries[1].address = forged[i].address;
		t.journal->entries[1].size = forged[i].size;
		t.journal->count = 1;
		assert_int_equal(scry_edit_open(&other, &t.mem, at(t.journal)), 0);
		scry_edit_close(&other);
		t.journal->count = 2;
		assert_int_equal(scry_edit_open(&other, &t.mem, at(t.journal)), -EINVAL);
		scry_edit_close(&other);
	}
	t.journal->count = 0;
}

/* An entry that says it stands over another one, which is forged too: none of the two goes back to
 * what the file has, and nothing is written. */
static void test_forged_over(void **state)
{
	static uint8_t code[2] = {0xcc, 0xc3};
	struct scry_undo_report report;
	struct scry_maps maps;
	struct scry_edit other;

	(void)state;
	assert_int_equal(scry_maps_read(getpid(), &maps), 0);
	for (int i = 0; i < 2; i++)
		t.journal->entries[i] =
			(struct scry_journal_entry){.address = at(code),
						    .size = 1,
						    .state = SCRY_EDIT_APPLIED,
						    .kind = SCRY_EDIT_TEXT,
						    .inode = scry_maps_at(&maps, at(code))->inode,
						    .is_over = i,
						    .old = {(uint8_t)(i ? 0x90 : 0xf4)},
						    .new_ = {(uint8_t)(i ? 0xcc : 0x90)}};
	t.journal->count = 2;
	assert_int_equal(scry_edit_open(&other, &t.mem, at(t.journal)), 0);
	assert_int_equal(scry_edit_undo(&other, &maps, &report), -EBUSY);
	assert_int_equal(report.foreign, 2);
	assert_int_equal(code[0], 0xcc);
	scry_edit_close(&other);
	t.journal->count = 0;
	scry_maps_done(&maps);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_switch, setup, teardown),
		cmocka_unit_test_setup_teardown(test_over, setup, teardown),
		cmocka_unit_test_setup_teardown(test_over_is_first, setup, teardown),
		cmocka_unit_test_setup_teardown(test_compact, setup, teardown),
		cmocka_unit_test_setup_teardown(test_is_there, setup, teardown),
		cmocka_unit_test_setup_teardown(test_across_pages, setup, teardown),
		cmocka_unit_test_setup_teardown(test_torn, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unmapped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mapped_still, setup, teardown),
		cmocka_unit_test_setup_teardown(test_forged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_forged_over, setup, teardown),
	};

	return cmocka_run_group_tests_name("sys_edit", tests, NULL, NULL);
}
