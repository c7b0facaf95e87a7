/*
 * vm/ruby_gc: where the collector's state is, by code as compilers write it and by that of saved
 * Rubies, whose numbers gdb has told; what its bytes say; and code that is anything.
 */
#include "vm/ruby_gc.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixture.h"
#include "sys/elf.h"

/* --- bytes ------------------------------------------------------------------------------------ */

static void test_say(void **state)
{
	const struct scry_ruby_gc gc = {.is_known = true,
					.has_epochs = true,
					.from = 16,
					.size = 32,
					.count = 40,
					.during = {16, 0x20},
					.marking = {17, 4}};
	struct scry_ruby_gc only = gc;
	uint8_t bytes[32] = {0xdf, 0xfb, [24] = 0x34, 0x12};
	struct scry_ruby_gc_now now = scry_ruby_gc_say(&gc, bytes);

	assert_false(now.is_running);
	assert_int_equal(now.count, 0x1235);
	assert_int_equal(now.epoch, 0x1235);
	bytes[1] = 4; /* it marks in steps: what is read now may be freed in this collection */
	now = scry_ruby_gc_say(&gc, bytes);
	assert_false(now.is_running);
	assert_int_equal(now.count, 0x1235);
	assert_int_equal(now.epoch, 0);
	bytes[0] = 0x20;
	now = scry_ruby_gc_say(&gc, bytes);
	assert_true(now.is_running);
	assert_int_equal(now.epoch, 0);
	bytes[1] = 0;
	now = scry_ruby_gc_say(&gc, bytes);
	assert_true(now.is_running);
	assert_int_equal(now.epoch, 0);
	only.has_epochs = false;
	now = scry_ruby_gc_say(&only, bytes);
	assert_true(now.is_running);
	assert_int_equal(now.count, 0);
	assert_int_equal(now.epoch, 0);
	memset(bytes, 0xff, sizeof(bytes)); /* the count + 1 is 0: not known */
	assert_int_equal(scry_ruby_gc_say(&gc, bytes).epoch, 0);
}

/* --- saved Rubies ----------------------------------------------------------------------------- */

static const struct {
	const char *name;
	uint32_t objspace, count, flags; /* offsets, as gdb reads them from debug information */
} rubies[] = {
	{"ruby-2.7-static", 1152, 424, 16},    {"ruby-3.1.7-static", 1112, 440, 16},
	{"ruby-3.3.8-static", 1304, 1392, 16}, {"ruby-3.4.4-static", 1296, 1008, 20},
	{"ruby-4.0.3-shared", 1248, 1048, 28},
};

static void test_rubies(void **state)
{
	for (size_t i = 0; i < sizeof(rubies) / sizeof(rubies[0]); i++) {
		struct learned l;
		struct scry_ruby_gc gc;
		struct fixture f;

		fixture_load(rubies[i].name, &f);
		fixture_drop_facts(&f, "size ");
		assert_int_equal(fixture_learn(&f, &l), 0);
		l.child.mem = fixture_mem(&f);
		scry_ruby_gc_find(&l.child, &gc);
		assert_true(gc.is_known);
		assert_int_equal(gc.objspace, rubies[i].objspace);
		assert_int_equal(gc.during.at, rubies[i].flags);
		assert_int_equal(gc.during.mask, 0x20); /* its fifth bit in all of them (gc.c) */
		if (gc.has_epochs) {
			assert_int_equal(gc.count, rubies[i].count);
			assert_int_equal(gc.marking.at, rubies[i].flags + 1);
			assert_true(gc.from <= gc.during.at && gc.count + 8 <= gc.from + gc.size);
		}
		/* Up to 3.0 code is freed by itself too: epochs say nothing there. */
		assert_int_equal(gc.has_epochs, !l.child.layout.recycles);
		assert_true(scry_ruby_gc_heap(&l.child, &gc) != 0);
		learned_done(&l);
		fixture_done(&f);
	}
}

/* --- code ------------------------------------------------------------------------------------- */

/* Room for the code that a test puts into a copy of this program's file. */
#define ROOM(name)                                                            \
	__asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name \
		": .skip 192, 0xcc\n"                                         \
		".size " #name ", 192\n")
ROOM(rb_during_gc);
ROOM(rb_gc_count);
ROOM(rb_gc_writebarrier);
extern uint64_t vm_word, vm_word_pointer;
uint64_t vm_word = 1, vm_word_pointer = 2;
#define VM 0xfe	     /* in code: four bytes that lead from behind them to the VM's word */
#define POINTER 0xfd /* the same to a word that holds its address */

struct code {
	uint8_t bytes[32];
	size_t size;
};
#define CODE(...)                                               \
	{                                                       \
		{__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__}) \
	}
/* mov vm_word(%rip), %rax; mov 0x458(%rax), %rax */
#define HEAP 0x48, 0x8b, 0x05, VM, 0x48, 0x8b, 0x80, 0x58, 0x04, 0, 0
static const struct code during = CODE(HEAP, 0x8b, 0x40, 0x10,		    /* mov 16(%rax), %eax */
				       0xc1, 0xe8, 5, 0x83, 0xe0, 1, 0xc3); /* shr 5; and 1; ret */
static const struct code count = CODE(HEAP, 0x48, 0x8b, 0x80, 0xb8, 1, 0, 0, 0xc3);
static const struct code marking = CODE(HEAP, 0xf6, 0x40, 0x11, 4, 0x74, 1, 0xc3); /* testb */
/* Through the table of addresses, another register, and a jump. */
static const struct code by_table =
	CODE(0x48, 0x8b, 0x15, POINTER, 0x48, 0x8b, 0x12, 0x48, 0x8b, 0x92, 0x58, 4, 0, 0, 0xeb, 2,
	     0xcc, 0xcc, 0x0f, 0xb6, 0x42, 0x10, 0xc0, 0xe8, 5, 0x83, 0xe0, 1, 0xc3);
static const struct code by_test = CODE(HEAP, 0x0f, 0xb6, 0x40, 0x10, 0x83, 0xe0, 0x20, 0xc3);
static const struct code two_bits = CODE(HEAP, 0x8b, 0x40, 0x10, 0x83, 0xe0, 0x30, 0xc3);
static const struct code calls =
	CODE(0xe8, 0, 0, 0, 0, HEAP, 0x8b, 0x40, 0x10, 0x83, 0xe0, 0x20, 0xc3);
static const struct code no_vm = CODE(0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x48, 0x8b, 0x80, 0x58, 4, 0, 0,
				      0x8b, 0x40, 0x10, 0x83, 0xe0, 0x20, 0xc3);
static const struct code other_heap = CODE(0x48, 0x8b, 0x05, VM, 0x48, 0x8b, 0x80, 0x60, 4, 0, 0,
					   0x48, 0x8b, 0x80, 0xb8, 1, 0, 0, 0xc3);
static const struct code half_count = CODE(HEAP, 0x8b, 0x80, 0xb8, 1, 0, 0, 0xc3);
static const struct code for_ever = CODE(0xeb, 0xfe);

static uint8_t *file;
static size_t file_size;
static struct scry_ruby ruby;

static int no_memory(const void *image, uint64_t addr, void *buf, size_t size)
{
	const uint64_t word = ruby.bias + ruby.layout.vm_root;

	if (addr != ruby.bias + *(const uint64_t *)image || size != 8)
		return -1;
	memcpy(buf, &word, 8);
	return 0;
}

/* Reads this program's file; where the VM's word is in it. */
static void load(void)
{
	static uint64_t pointer_at;
	struct scry_elf *elf;
	struct scry_sym sym;
	struct stat st;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	file_size = (size_t)st.st_size;
	file = malloc(file_size);
	assert_true(file && read(fd, file, file_size) == (ssize_t)file_size);
	close(fd);
	assert_int_equal(scry_elf_open_path("/proc/self/exe", &elf), 0);
	assert_int_equal(scry_elf_symbol(elf, "vm_word", &sym), 0);
	ruby.layout.vm_root = sym.value;
	assert_int_equal(scry_elf_symbol(elf, "vm_word_pointer", &sym), 0);
	pointer_at = sym.value;
	ruby.bias = 0x7000000;
	ruby.mem = (struct scry_mem){.fd = -1, .image = &pointer_at, .image_read = no_memory};
	scry_elf_close(elf);
}

/* The code at `name` in the copied file, its words of 1 byte made into the distances they mean. */
static void put(const char *name, const struct code *code)
{
	static const uint8_t room[] = {0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc};
	uint8_t out[192];
	struct scry_elf *elf;
	struct scry_sym sym;
	uint8_t *at;
	size_t n = 0;

	memset(out, 0xcc, sizeof(out));
	assert_int_equal(scry_elf_open_path("/proc/self/exe", &elf), 0);
	assert_int_equal(scry_elf_symbol(elf, name, &sym), 0);
	for (size_t i = 0; i < code->size; i++) {
		bool is_place = (code->bytes[i] == VM || code->bytes[i] == POINTER) && i >= 2 &&
				code->bytes[i - 2] == 0x8b;
		uint64_t to = code->bytes[i] == VM ? ruby.layout.vm_root
						   : *(const uint64_t *)ruby.mem.image;
		int32_t distance = (int32_t)(to - (sym.value + n + 4));

		if (is_place)
			memcpy(out + n, &distance, 4);
		else
			out[n] = code->bytes[i];
		n += is_place ? 4 : 1;
	}
	scry_elf_close(elf);
	/* Found by what stands before it: the three rooms follow one another. */
	at = memmem(file, file_size, room, sizeof(room));
	assert_non_null(at);
	at += !strcmp(name, "rb_gc_count") ? 192 : !strcmp(name, "rb_gc_writebarrier") ? 384 : 0;
	memcpy(at, out, sizeof(out));
}

static void find(const struct code *of_during, const struct code *of_count,
		 const struct code *of_marking, struct scry_ruby_gc *ret)
{
	int fd = memfd_create("code", MFD_CLOEXEC);
	char path[64];

	load();
	put("rb_gc_writebarrier", of_marking);
	put("rb_gc_count", of_count);
	put("rb_during_gc", of_during); /* last: the rooms are found by the first one's bytes */
	assert_int_equal(write(fd, file, file_size), file_size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(scry_elf_open_path(path, &ruby.elf), 0);
	scry_ruby_gc_find(&ruby, ret);
	scry_elf_close(ruby.elf);
	close(fd);
	free(file);
}

static void test_code(void **state)
{
	struct scry_ruby_gc gc;

	find(&during, &count, &marking, &gc);
	assert_true(gc.is_known && gc.has_epochs);
	assert_int_equal(gc.objspace, 0x458);
	assert_int_equal(gc.during.at, 16);
	assert_int_equal(gc.during.mask, 0x20);
	assert_int_equal(gc.marking.at, 17);
	assert_int_equal(gc.marking.mask, 4);
	assert_int_equal(gc.count, 0x1b8);
	assert_int_equal(gc.from, 16);
	assert_int_equal(gc.size, 0x1b8 + 8 - 16);
	find(&by_table, &count, &marking, &gc);
	assert_true(gc.is_known && gc.has_epochs);
	assert_int_equal(gc.during.mask, 0x20);
	find(&by_test, &count, &marking, &gc);
	assert_true(gc.is_known && gc.has_epochs);
	assert_int_equal(gc.during.mask, 0x20);
	/* What is not that is not known. */
	for (size_t i = 0; i < 4; i++) {
		find((const struct code *[]){&two_bits, &calls, &no_vm, &for_ever}[i], &count,
		     &marking, &gc);
		assert_false(gc.is_known || gc.has_epochs);
		assert_int_equal(gc.size, 0);
	}
	for (size_t i = 0; i < 3; i++) { /* the bit alone */
		find(&during, (const struct code *[]){&other_heap, &half_count, &count}[i],
		     i == 2 ? &calls : &marking, &gc);
		assert_true(gc.is_known && !gc.has_epochs);
		assert_int_equal(gc.from, 16);
		assert_int_equal(gc.size, 1);
	}
}

/* Code with some bytes that are any others: what is said stays within the heap's struct. */
static void test_damaged(void **state)
{
	const int rounds = getenv("SCRY_SOAK") ? 20000 : 150;
	unsigned int seed = 7;
	int known = 0;

	for (int round = 0; round < rounds; round++) {
		struct code codes[3] = {round % 2 ? during : by_table, count, marking};
		struct scry_ruby_gc gc;

		for (int i = 0; i < 3; i++) {
			struct code *c = &codes[rand_r(&seed) % 3];

			c->bytes[(unsigned int)rand_r(&seed) % c->size] = (uint8_t)rand_r(&seed);
		}
		find(&codes[0], &codes[1], &codes[2], &gc);
		known += gc.is_known;
		assert_true(gc.size <= SCRY_RUBY_GC_BYTES + 8 &&
			    gc.from + gc.size <= SCRY_RUBY_GC_BYTES + 8);
		if (gc.is_known)
			assert_true(gc.during.at >= gc.from && gc.during.at < gc.from + gc.size);
		if (gc.has_epochs)
			assert_true(gc.count >= gc.from && gc.count + 8 <= gc.from + gc.size &&
				    gc.marking.at >= gc.from && gc.marking.at < gc.from + gc.size);
	}
	print_message("%d damaged codes, %d with a bit\n", rounds, known);
	assert_true(known > 0 && known < rounds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_say),
		cmocka_unit_test(test_rubies),
		cmocka_unit_test(test_code),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
