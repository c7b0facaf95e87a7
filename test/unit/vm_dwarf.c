/*
 * Debug information as a witness: members by name in this very program, where the compiler's
 * offsetof is the truth; and what becomes of a layout that it contradicts.
 */
#include "vm/ruby_dwarf.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "vm/ruby_infer.h"

struct scry_test_inner {
	char c;
	long deep;
};
typedef const struct scry_test_inner scry_test_alias;
struct scry_test_outer {
	int first;
	unsigned int bits : 3;
	union {
		long a;
		struct {
			int x, hidden;
		};
	};
	scry_test_alias inner;
	union {
		struct {
			char *ptr;
			long len;
		} heap;
		char text[24];
	} as;
	struct scry_test_outer *next;
};
/* As the VM's, but not like any. */
struct rb_control_frame_struct {
	void *sp, *more, *pc, *iseq, *self, *ep;
	long last;
};

static struct scry_test_outer outer;
static struct rb_control_frame_struct frame;

static struct scry_elf *self(void)
{
	struct scry_elf *elf = NULL;

	assert_int_equal(scry_elf_open_path("/proc/self/exe", &elf), 0);
	/* The types must be used to be described. */
	__asm__ volatile("" ::"r"(&outer), "r"(&frame));
	return elf;
}

static void expect(struct scry_dwarf *d, const char *spec, uint64_t want)
{
	uint64_t got = ~0ull;

	if (!scry_dwarf_find(d, spec, &got))
		fail_msg("'%s' was not found", spec);
	assert_int_equal(got, want);
}

static void test_members(void **state)
{
	struct scry_elf *elf = self();
	struct scry_dwarf *d = scry_dwarf_open(elf);
	uint64_t none = 77;

	if (!d) {
		print_message("skipped: built without debug information\n");
		scry_elf_close(elf);
		skip();
	}
	expect(d, "scry_test_outer", sizeof(struct scry_test_outer));
	expect(d, "scry_test_outer:first", 0);
	expect(d, "scry_test_outer:a", offsetof(struct scry_test_outer, a));
	expect(d, "scry_test_outer:hidden", offsetof(struct scry_test_outer, hidden));
	expect(d, "scry_test_outer:inner", offsetof(struct scry_test_outer, inner));
	expect(d, "scry_test_outer:inner.deep", offsetof(struct scry_test_outer, inner.deep));
	expect(d, "scry_test_outer:as.heap.len", offsetof(struct scry_test_outer, as.heap.len));
	expect(d, "scry_test_outer:as.text", offsetof(struct scry_test_outer, as.text));
	expect(d, "nowhere:x|scry_test_outer:nothing|scry_test_outer:next",
	       offsetof(struct scry_test_outer, next));
	static const char *const absent[] = {"nowhere",
					     "nowhere:x",
					     "scry_test_outer:",
					     "scry_test_outer:bits",
					     "scry_test_outer:first.x",
					     "scry_test_outer:as.heap.",
					     "scry_test_outer:next.a",
					     "scry_test_outer:inner.de",
					     ""};
	for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
		assert_false(scry_dwarf_find(d, absent[i], &none));
	assert_int_equal(none, 77);
	scry_dwarf_close(d);
	scry_elf_close(elf);
}

/* A file of a stranger is not parsed. */
static void test_owner(void **state)
{
	char path[] = "/tmp/scry_dwarf.XXXXXX", command[128];
	struct scry_elf *elf = self();
	struct scry_dwarf *d = scry_dwarf_open(elf);
	bool is_there = d != NULL;
	int fd;

	scry_dwarf_close(d);
	scry_elf_close(elf);

	if (geteuid() != 0) {
		print_message("skipped: not root: cannot give a file away\n");
		skip();
	}
	fd = mkstemp(path);
	close(fd);
	snprintf(command, sizeof(command), "cp /proc/%d/exe %s", (int)getpid(), path);
	assert_int_equal(system(command), 0);
	for (uid_t owner = 0; owner < 2; owner++) {
		assert_int_equal(chown(path, owner, 0), 0);
		assert_int_equal(scry_elf_open_path(path, &elf), 0);
		d = scry_dwarf_open(elf);
		assert_true((d != NULL) == (is_there && owner == 0));
		scry_dwarf_close(d);
		scry_elf_close(elf);
	}
	unlink(path);
}

/* This program as a Ruby whose frames were learned as they are, or not. */
static void test_witness(void **state)
{
	struct scry_ruby r = {.elf = self(), .module = "a module"};
	struct scry_ruby_check pc = {.item = "frame pc", .ok = true};
	struct scry_dwarf *d = scry_dwarf_open(r.elf);

	scry_dwarf_close(d);
	if (!d) {
		print_message("skipped: built without debug information\n");
		scry_elf_close(r.elf);
		skip();
	}
	r.layout.frame_size = sizeof(struct rb_control_frame_struct);
	r.layout.frame_pc = offsetof(struct rb_control_frame_struct, pc);
	r.layout.frame_sp = offsetof(struct rb_control_frame_struct, sp);
	r.layout.frame_iseq = offsetof(struct rb_control_frame_struct, iseq);
	r.layout.frame_self = offsetof(struct rb_control_frame_struct, self);
	r.layout.frame_ep = offsetof(struct rb_control_frame_struct, ep);
	scry_ruby_add_check(&r, &pc);
	if (scry_ruby_cross_check(&r, &r) != 0)
		fail_msg("%s", scry_error());
	assert_string_equal(r.checks[0].second, "DWARF");
	assert_true(r.checks[0].ok);

	r.layout.frame_pc += 8;
	assert_int_equal(scry_ruby_cross_check(&r, &r), -ENOTSUP);
	assert_false(r.checks[0].ok);
	assert_string_equal(r.checks[0].second, "DWARF says 16, not 24");
	assert_non_null(strstr(scry_error(), "'frame pc' of the Ruby in 'a module' was learned as "
					     "24, but DWARF says 16; it is not used"));
	free(r.checks);
	scry_elf_close(r.elf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_members),
		cmocka_unit_test(test_owner),
		cmocka_unit_test(test_witness),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
