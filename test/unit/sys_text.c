/*
 * sys/text and sys/fde against independent truths: objdump's disassembly for who leads where,
 * readelf's reading of the unwind tables for the ranges, programs that print where their own
 * switches lead, symbols for the cold parts.
 */
#include "sys/text.h"

#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "sys/text_share.h"

struct row {
	uint64_t source, target;
};

static char build[4096]; /* where this test lies: build/test */

static struct scry_text *open_path(const char *path)
{
	struct scry_text *text = NULL;
	struct scry_elf *elf;

	if (scry_elf_open_path(path, &elf) < 0 || scry_text_read(elf, &text) < 0)
		fail_msg("%s", scry_error());
	scry_elf_close(elf);
	return text;
}

static const char *in_build(const char *name)
{
	static char path[4300];

	snprintf(path, sizeof(path), "%s/%s", build, name);
	return path;
}

static const char *libc_path(void)
{
	for (struct link_map *m = _r_debug.r_map; m; m = m->l_next)
		if (strstr(m->l_name, "/libc.so.6"))
			return m->l_name;
	fail_msg("no libc");
	return NULL;
}

static FILE *run(const char *format, const char *path)
{
	char command[5000];
	FILE *f;

	snprintf(command, sizeof(command), format, path);
	f = popen(command, "r");
	assert_non_null(f);
	return f;
}

/* "  26000:\tbnd jmp 26010 <name>": a direct transfer. */
static bool parse(char *line, struct row *ret)
{
	char *name = strstr(line, " <"), *word, *end;

	if (!name || strchr(line, '#') || !strchr(line, '\t'))
		return false;
	*name = '\0';
	ret->source = strtoull(line, &end, 16);
	if (*end != ':')
		return false;
	word = strrchr(line, ' ');
	if (!word)
		return false;
	ret->target = strtoull(word + 1, &end, 16);
	if (*end)
		return false;
	while (word > line && *word == ' ')
		*word-- = '\0';
	while (word > line && *word != ' ' && *word != '\t')
		word--;
	word++;
	if (ret->target == 0) /* a weak symbol that is not there */
		return false;
	return !strncmp(word, "call", 4) || *word == 'j' || !strncmp(word, "loop", 4) ||
	       !strncmp(word, "xbegin", 6);
}

static size_t disassemble(const char *path, struct scry_text *text, struct row **ret)
{
	FILE *f = run("objdump -d -w --no-show-raw-insn '%s' 2>/dev/null", path);
	size_t count = 0, room = 1u << 20;
	struct row *rows = malloc(room * sizeof(*rows)), row;
	char line[1000];

	assert_non_null(rows);
	while (fgets(line, sizeof(line), f)) {
		if (!parse(line, &row) || !scry_text_at(text, row.source))
			continue;
		assert_true(count < room);
		rows[count++] = row;
	}
	pclose(f);
	*ret = rows;
	return count;
}

static int by_target(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return x->target != y->target	? (x->target < y->target ? -1 : 1)
	       : x->source != y->source ? (x->source < y->source ? -1 : 1)
					: 0;
}

/* Is `row` among what enters? The source is told apart from the asked range by asking for the
 * target's byte alone. */
static bool knows(struct scry_text *text, const struct row *row)
{
	static struct scry_transfer rows[65536];
	struct scry_transfers found = {rows, 65536};
	size_t n = scry_text_enters(text, row->target - 1, row->target + 1, &found);

	if (row->source == row->target || row->source == row->target - 1)
		return true; /* its own window: left out by contract */
	assert_true(n <= 65536);
	for (size_t i = 0; i < n; i++)
		if (rows[i].source == row->source && rows[i].kind < SCRY_TRANSFER_TABLE)
			return true;
	return false;
}

/* Sites of each function: objdump's transfers to its start from outside it and its cold parts. */
static void compare_sites(struct scry_text *text, const struct row *rows, size_t count)
{
	size_t at = 0, functions = 0, sites = 0;

	for (size_t i = 0; i < scry_text_range_count(text); i++) {
		const struct scry_text_range *range = scry_text_range(text, i);
		size_t expected = 0;

		while (at < count && rows[at].target < range->start)
			at++;
		for (; at < count && rows[at].target == range->start; at++) {
			const struct scry_text_range *from = scry_text_at(text, rows[at].source);

			if (from != range && !(from->kind == SCRY_TEXT_COLD && from->parent == i))
				expected++;
		}
		if (range->kind == SCRY_TEXT_COLD)
			continue;
		assert_true(scry_text_sites(text, range->start, NULL) >= expected);
		/* More only by calls from code without unwind tables. */
		assert_true(scry_text_sites(text, range->start, NULL) <= expected + 2);
		sites += expected;
		functions++;
	}
	print_message("# %zu functions, %zu sites\n", functions, sites);
}

static void compare_transfers(const char *path)
{
	struct scry_text *text = open_path(path);
	struct scry_text_stats stats;
	size_t count, direct = 0, unknown = 0;
	struct row *rows;

	count = disassemble(path, text, &rows);
	if (count == 0) {
		print_message("skipped: no objdump to compare with; fix: apt-get install "
			      "binutils\n");
		skip();
	}
	scry_text_stats(text, &stats);
	for (int i = 0; i < SCRY_TRANSFER_TABLE; i++)
		direct += stats.transfers[i];
	for (size_t i = 0; i < count; i++) {
		if (!knows(text, &rows[i])) {
			if (unknown++ < 5)
				print_message("# unknown: %" PRIx64 " -> %" PRIx64 "\n",
					      rows[i].source, rows[i].target);
		}
	}
	print_message("# %s: objdump %zu transfers, we %zu, %" PRIu64 " bytes of gaps\n", path,
		      count, direct, stats.gap_bytes);
	assert_int_equal(unknown, 0);
	assert_int_equal(stats.range_errors, 0);
	assert_int_equal(stats.bad_fdes, 0);
	/* Ours has those of the gaps, too: at least two bytes each. */
	assert_true(direct >= count && direct - count <= stats.gap_bytes / 2);
	qsort(rows, count, sizeof(*rows), by_target);
	compare_sites(text, rows, count);
	free(rows);
	scry_text_free(text);
}

static void test_small(void **state)
{
	compare_transfers(in_build("targets/libwork.so"));
	compare_transfers(in_build("targets/target_moving"));
}

static void test_static(void **state)
{
	compare_transfers(in_build("targets/target_fixed"));
}

static void test_libc(void **state)
{
	compare_transfers(libc_path());
}

static void compare_ranges(const char *path)
{
	FILE *f = run("readelf --debug-dump=frames '%s' 2>/dev/null", path);
	struct scry_text *text = open_path(path);
	size_t seen = 0;
	char line[1000];

	while (fgets(line, sizeof(line), f)) {
		char *pc = strstr(line, " FDE ") ? strstr(line, "pc=") : NULL;
		const struct scry_text_range *range;
		uint64_t start, end;

		if (!pc || sscanf(pc, "pc=%" SCNx64 "..%" SCNx64, &start, &end) != 2 ||
		    start == end)
			continue;
		range = scry_text_at(text, start);
		assert_non_null(range);
		assert_true(range->start == start && range->end == end);
		seen++;
	}
	pclose(f);
	if (!seen) {
		print_message("skipped: no readelf to compare with; fix: apt-get install "
			      "binutils\n");
		skip();
	}
	assert_int_equal(seen, scry_text_range_count(text));
	scry_text_free(text);
}

static void test_ranges(void **state)
{
	compare_ranges(in_build("targets/libwork.so"));
	compare_ranges(in_build("targets/target_fixed"));
	compare_ranges(libc_path());
}

static void assert_same_rows(const struct scry_transfer *a, const struct scry_transfer *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(a[i].source, b[i].source);
		assert_int_equal(a[i].target, b[i].target);
		assert_int_equal(a[i].kind, b[i].kind);
	}
}

/* One of which little was decoded answers as one of which all was. */
static void compare_answers(struct scry_text *few, struct scry_text *all, size_t i)
{
	static struct scry_transfer of_few[4096], of_all[4096];
	struct scry_transfers a = {of_few, 4096}, b = {of_all, 4096};
	const struct scry_text_range *range = scry_text_range(few, i);
	const uint64_t spans[][2] = {{range->start - 1, range->start + 1},
				     {range->start, range->start + 5},
				     {range->end - 1, range->end + 5}};
	struct scry_text_function f, g;
	size_t n;

	assert_memory_equal(range, scry_text_range(all, i), offsetof(struct scry_text_range, kind));
	assert_int_equal(range->kind, scry_text_range(all, i)->kind);
	assert_true(scry_text_function(few, range->start, &f) &&
		    scry_text_function(all, range->start, &g));
	assert_int_equal(f.is_jumped_to, g.is_jumped_to);
	for (size_t k = 0; k < sizeof(spans) / sizeof(spans[0]); k++) {
		n = scry_text_enters(few, spans[k][0], spans[k][1], &a);
		assert_int_equal(n, scry_text_enters(all, spans[k][0], spans[k][1], &b));
		assert_same_rows(of_few, of_all, n < 4096 ? n : 4096);
	}
	n = scry_text_sites(few, range->start, &a);
	assert_int_equal(n, scry_text_sites(all, range->start, &b));
	assert_same_rows(of_few, of_all, n < 4096 ? n : 4096);
	assert_int_equal(scry_text_loops(few, range->start, 5),
			 scry_text_loops(all, range->start, 5));
	assert_int_equal(scry_text_is_pointed(few, range->start),
			 scry_text_is_pointed(all, range->start));
}

static void compare_order(const char *path)
{
	struct scry_text *all = open_path(path), *few = NULL;
	size_t count = scry_text_range_count(all);
	struct scry_text_stats stats, again;

	scry_text_stats(all, &stats);
	for (size_t i = 0; i < count; i++) {
		if (i % 50 == 0) { /* later questions find more decoded */
			scry_text_free(few);
			few = open_path(path);
		}
		compare_answers(few, all, i * 7919 % count);
	}
	scry_text_stats(few, &again);
	assert_memory_equal(&stats, &again, sizeof(stats));
	scry_text_free(few);
	scry_text_free(all);
}

static void test_order(void **state)
{
	compare_order(in_build("targets/libwork.so"));
	compare_order(in_build("targets/target_fixed"));
	compare_order(libc_path());
}

/* The place behind which a case of the switch begins: some transfer of its kind, not far before. */
static bool is_led_to(struct scry_text *text, uint64_t here, enum scry_transfer_kind kind)
{
	struct scry_transfer rows[64];
	struct scry_transfers found = {rows, 64};
	size_t n = scry_text_enters(text, here - 12, here + 1, &found);

	for (size_t i = 0; i < n && i < 64; i++)
		if (rows[i].kind == kind)
			return true;
	return false;
}

static void compare_switch(const char *name, enum scry_transfer_kind kind)
{
	FILE *f = run("'%s'", in_build(name));
	struct scry_text *text = open_path(in_build(name));
	const struct scry_text_range *first = NULL;
	uint64_t bias = 0, here;
	size_t cases = 0;
	struct scry_elf *elf;
	struct scry_sym sym;

	assert_int_equal(scry_elf_open_path(in_build(name), &elf), 0);
	assert_int_equal(scry_elf_symbol(elf, "fixed_way", &sym), 0);
	first = scry_text_at(text, sym.value);
	assert_non_null(first);
	assert_true(first->has_symbol && first->jumps_indirect);
	while (fscanf(f, "%" SCNx64, &here) == 1) {
		/* The bias is whole pages: the first address is in the same page of the file. */
		if (cases == 0)
			bias = (here - sym.value) & ~0xfffull;
		assert_true(scry_text_at(text, here - bias) == first);
		assert_true(is_led_to(text, here - bias, kind));
		cases++;
	}
	assert_int_equal(cases, 8);
	pclose(f);
	scry_elf_close(elf);
	scry_text_free(text);
}

static void test_switch(void **state)
{
	compare_switch("targets/target_moving", SCRY_TRANSFER_TABLE);
	compare_switch("targets/target_fixed", SCRY_TRANSFER_POINTER);
}

/* Stripped, the cold parts must be found by their unwind rules and entrances alone. */
static void compare_cold(const char *path, size_t least)
{
	char stripped[] = "/tmp/scry_text.XXXXXX", command[5000];
	struct scry_text *with, *without;
	size_t cold = 0, missed = 0, wrong = 0;
	int fd = mkstemp(stripped);

	assert_true(fd >= 0);
	close(fd);
	snprintf(command, sizeof(command), "strip -o %s '%s' 2>/dev/null", stripped, path);
	if (system(command) != 0) {
		unlink(stripped);
		print_message("skipped: no strip; fix: apt-get install binutils\n");
		skip();
	}
	with = open_path(path);
	without = open_path(stripped);
	unlink(stripped);
	assert_int_equal(scry_text_range_count(with), scry_text_range_count(without));
	for (size_t i = 0; i < scry_text_range_count(with); i++) {
		const struct scry_text_range *a = scry_text_range(with, i),
					     *b = scry_text_range(without, i);

		cold += a->kind == SCRY_TEXT_COLD;
		missed += a->kind == SCRY_TEXT_COLD && b->kind == SCRY_TEXT_FUNCTION;
		wrong += a->kind == SCRY_TEXT_FUNCTION && b->kind == SCRY_TEXT_COLD;
		if (a->kind == SCRY_TEXT_FUNCTION && b->kind == SCRY_TEXT_COLD)
			print_message("# taken for cold: %" PRIx64 "\n", a->start);
		if (a->kind == SCRY_TEXT_COLD && b->kind == SCRY_TEXT_COLD)
			assert_int_equal(a->parent, b->parent);
	}
	print_message(
		"# %s: %zu cold parts, stripped: %zu missed, %zu functions taken for cold, of "
		"%zu ranges\n",
		path, cold, missed, wrong, scry_text_range_count(with));
	assert_true(cold >= least);
	assert_true(missed * 10 <= cold); /* entered by one plain jump, no frame */
	assert_true(wrong * 100 <= scry_text_range_count(with));
	scry_text_free(with);
	scry_text_free(without);
}

static void test_cold(void **state)
{
	compare_cold(in_build("../src/cmd/scry"), 1);
	compare_cold(in_build("targets/target_fixed"), 20);
}

/* A function with a loop to its own start, entered in the middle, pointed at; out of reach of what
 * looks like a short branch in code without unwind rules before it. */
__asm__(".text\n.skip 160,0xcc\n.globl code_test_loop\n.type "
	"code_test_loop,@function\ncode_test_loop:\n"
	".cfi_startproc\nlea 1(%rdi,%rdi),%rdi\nlea 2(%rdi),%rdi\ncode_test_inner: dec %rdi\n"
	"js code_test_loop\nret\n.cfi_endproc\n.size code_test_loop,.-code_test_loop\n"
	".globl code_test_other\n.type code_test_other,@function\ncode_test_other:\n"
	".cfi_startproc\njmp code_test_inner\nje code_test_loop\ncall code_test_loop\nret\n"
	".cfi_endproc\n.size code_test_other,.-code_test_other\n");

static void test_questions(void **state)
{
	struct scry_text *text = open_path("/proc/self/exe");
	struct scry_transfer rows[4];
	struct scry_transfers found = {rows, 4};
	struct scry_text_function function;
	struct scry_x86_code bytes;
	struct scry_elf *elf;
	struct scry_sym loop, other;

	assert_int_equal(scry_elf_open_path("/proc/self/exe", &elf), 0);
	assert_int_equal(scry_elf_symbol(elf, "code_test_loop", &loop), 0);
	assert_int_equal(scry_elf_symbol(elf, "code_test_other", &other), 0);
	assert_int_equal(scry_text_at(text, loop.value)->kind, SCRY_TEXT_FUNCTION);
	assert_int_equal(scry_text_enters(text, loop.value, loop.value + 9, &found), 0);
	assert_int_equal(scry_text_enters(text, loop.value, loop.value + 10, &found), 1);
	assert_int_equal(rows[0].source, other.value);
	assert_int_equal(rows[0].target, loop.value + 9);
	assert_int_equal(rows[0].kind, SCRY_TRANSFER_JMP8);
	assert_int_equal(scry_text_sites(text, loop.value, &found), 2);
	assert_int_equal(rows[0].kind, SCRY_TRANSFER_JCC8);
	assert_int_equal(rows[1].kind, SCRY_TRANSFER_CALL32);
	assert_int_equal(rows[1].source, other.value + 4);
	assert_int_equal(scry_text_loops(text, loop.value, 5), 1);
	assert_int_equal(scry_text_loops(text, loop.value, 14), 0); /* moves along */
	assert_true(scry_text_function(text, loop.value + 3, &function));
	assert_int_equal(function.start, loop.value);
	assert_int_equal(function.end, loop.value + loop.size);
	assert_int_equal(function.next, other.value);
	assert_true(function.is_jumped_to && !function.is_cold);
	assert_true(scry_text_function(text, other.value, &function));
	assert_false(function.is_jumped_to);
	assert_false(scry_text_function(text, 1, &function));
	assert_false(scry_text_is_pointed(text, loop.value));
	assert_int_equal(scry_text_enters(text, 0, 5, &found), 0);
	assert_int_equal(scry_text_sites(text, UINT64_MAX, &found), 0);
	assert_null(scry_text_at(text, 0));
	assert_null(scry_text_range(text, scry_text_range_count(text)));
	scry_text_bytes(text, scry_text_at(text, loop.value), &bytes);
	assert_int_equal(bytes.address, loop.value);
	assert_int_equal(bytes.size, loop.size);
	assert_memory_equal(bytes.bytes, "\x48\x8d\x7c\x3f\x01", 5);
	scry_elf_close(elf);
	scry_text_free(text);
}

struct jumps {
	struct scry_text *text;
	size_t seen, missed;
};

static int look_at_jumps(const struct scry_sym *sym, void *arg)
{
	struct jumps *j = arg;

	if (sym->type != STT_FUNC || strncmp(sym->name, "jumps_", 6))
		return 0;
	j->seen++;
	if (scry_text_enters(j->text, sym->value, sym->value + 5, NULL))
		return 0;
	print_message("# %s: not known to be entered behind its first byte\n", sym->name);
	j->missed++;
	return 0;
}

/* Each function of target_jumps has a way in behind its first instruction. */
static void compare_jumps(const char *name, size_t least)
{
	struct jumps j = {.text = open_path(in_build(name))};
	struct scry_elf *elf;

	assert_int_equal(scry_elf_open_path(in_build(name), &elf), 0);
	scry_elf_each_symbol(elf, look_at_jumps, &j);
	scry_elf_close(elf);
	scry_text_free(j.text);
	print_message("# %s: %zu functions, %zu missed\n", name, j.seen, j.missed);
	assert_true(j.seen >= least);
	assert_int_equal(j.missed, 0);
}

static void test_jumps(void **state)
{
	compare_jumps("targets/target_jumps", 11);
	compare_jumps("targets/target_jumps_one", 11);
	compare_jumps("targets/target_jumps_fixed", 13);
	compare_jumps("targets/target_jumps_fixed_one", 13);
}

static void test_jumps_order(void **state)
{
	compare_order(in_build("targets/target_jumps"));
	compare_order(in_build("targets/target_jumps_fixed_one"));
}

static void test_no_tables(void **state)
{
	char path[] = "/tmp/scry_text.XXXXXX", command[5000];
	int fd = mkstemp(path);
	struct scry_text *text;
	struct scry_elf *elf;

	assert_true(fd >= 0);
	close(fd);
	snprintf(command, sizeof(command),
		 "objcopy -R .eh_frame -R .eh_frame_hdr '%s' %s 2>/dev/null",
		 in_build("targets/libwork.so"), path);
	if (system(command) != 0) {
		unlink(path);
		print_message("skipped: no objcopy; fix: apt-get install binutils\n");
		skip();
	}
	assert_int_equal(scry_elf_open_path(path, &elf), 0);
	unlink(path);
	assert_int_equal(scry_text_read(elf, &text), -2);
	assert_non_null(strstr(scry_error(), "no unwind tables"));
	scry_elf_close(elf);
}

static struct scry_text *share_path(const char *path)
{
	struct scry_text *text = NULL;
	struct scry_elf *elf;

	if (scry_elf_open_path(path, &elf) < 0 || scry_text_share(elf, &text) < 0)
		fail_msg("%s", scry_error());
	scry_elf_close(elf);
	return text;
}

static void put(const char *path, const char *from, off_t at, const char *bytes)
{
	char command[9000];
	int fd;

	if (from) {
		snprintf(command, sizeof(command), "cp '%s' '%s'", from, path);
		assert_int_equal(system(command), 0);
	}
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	if (bytes)
		assert_int_equal(pwrite(fd, bytes, strlen(bytes), at), strlen(bytes));
	close(fd);
}

/* A file is read once, and again when it, or what it loads, is another one. */
static void test_share(void **state)
{
	char path[] = "/tmp/scry-share-XXXXXX";
	struct scry_text *first, *again, *other;
	struct timespec times[2];
	uint8_t was[16];
	struct stat st;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	put(path, libc_path(), 0, NULL);
	first = share_path(path);
	again = share_path(path);
	assert_ptr_equal(first, again);
	scry_text_free(first); /* who has it still may go on */
	assert_true(scry_text_range_count(again) > 1000);
	assert_int_equal(pread(fd, was, sizeof(was), 0x30000), sizeof(was));
	put(path, NULL, 0x30000, "something else");
	other = share_path(path);
	assert_ptr_not_equal(again, other);
	/* with the times that it had, too: only what it loads tells */
	assert_int_equal(fstat(fd, &st), 0);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	assert_int_equal(pwrite(fd, was, sizeof(was), 0x30000), sizeof(was));
	assert_int_equal(futimens(fd, times), 0);
	first = share_path(path);
	assert_ptr_not_equal(first, other);
	scry_text_free(first);
	scry_text_free(again);
	scry_text_free(other);
	scry_text_share_done();
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_questions), cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_share),	  cmocka_unit_test(test_small),
		cmocka_unit_test(test_static),	  cmocka_unit_test(test_libc),
		cmocka_unit_test(test_switch),	  cmocka_unit_test(test_cold),
		cmocka_unit_test(test_no_tables), cmocka_unit_test(test_order),
		cmocka_unit_test(test_jumps),	  cmocka_unit_test(test_jumps_order),
	};
	ssize_t n = readlink("/proc/self/exe", build, sizeof(build) - 1);

	if (n <= 0)
		return 1;
	build[n] = '\0';
	dirname(build);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
