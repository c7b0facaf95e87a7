/*
 * sys/cfi and wire/unwind against independent truths: libdw's own reading of the same tables for
 * each function of whole libraries, and glibc's backtrace() of this process while it runs through
 * known frames: recursion, alloca, a realigned stack, callbacks of libc, signal handlers.
 */
#include "sys/cfi.h"

#include <alloca.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "wire/unwind_step.h"

#define FRAMES_MAX 512

/* libdw's answer as a rule; UINT64_MAX: it has none, or one that rules have no words for. */
static int16_t reg_from(Dwarf_Frame *frame, int reg, bool deref)
{
	Dwarf_Op mem[3], *ops;
	size_t n;

	assert_int_equal(dwarf_frame_register(frame, reg, mem, &ops, &n), 0);
	if (n == 0) /* nothing is said of it: the ABI keeps it */
		return SCRY_UNWIND_SAME;
	if (!deref && ops[0].atom == DW_OP_call_frame_cfa && n == 1)
		return 0;
	if (!deref && ops[0].atom == DW_OP_call_frame_cfa && n == 2 &&
	    ops[1].atom == DW_OP_plus_uconst && ops[1].number % 8 == 0)
		return (int16_t)((int64_t)ops[1].number / 8);
	if (deref && ops[0].atom == DW_OP_breg6 && n == 1)
		return (int16_t)((int64_t)ops[0].number / 8);
	return SCRY_UNWIND_LOST;
}

static uint64_t libdw_rule(Dwarf_Frame *frame)
{
	Dwarf_Op mem[3], *ops;
	size_t n;
	uint64_t reg;
	int64_t offset;
	int16_t bp, bx;
	bool deref, is_signal;

	dwarf_frame_info(frame, NULL, NULL, &is_signal);
	assert_int_equal(dwarf_frame_cfa(frame, &ops, &n), 0);
	deref = n == 2 && ops[0].atom == DW_OP_breg6 && ops[1].atom == DW_OP_deref;
	if (is_signal || (n > 1 && !deref) || n == 0)
		return UINT64_MAX;
	offset = (int64_t)(ops[0].atom == DW_OP_bregx ? ops[0].number2 : ops[0].number);
	reg = ops[0].atom == DW_OP_bregx ? ops[0].number : ops[0].atom - (uint64_t)DW_OP_breg0;
	bp = reg_from(frame, 6, deref);
	bx = reg_from(frame, 3, deref);
	assert_int_equal(dwarf_frame_register(frame, 16, mem, &ops, &n), 0);
	if (n == 0 && ops)
		return scry_unwind_pack(SCRY_UNWIND_TOP, 0, SCRY_UNWIND_SAME, SCRY_UNWIND_SAME);
	if (reg_from(frame, 16, false) != -1)
		return 0;
	return scry_unwind_pack(deref	   ? SCRY_UNWIND_BP_DEREF
				: reg == 7 ? SCRY_UNWIND_SP
				: reg == 6 ? SCRY_UNWIND_BP
				: reg == 3 ? SCRY_UNWIND_BX
					   : SCRY_UNWIND_UNKNOWN,
				reg == 7 || reg == 6 || reg == 3 ? (int32_t)offset : 0, bp, bx);
}

static void open_file(const char *path, struct scry_elf **elf, struct scry_image *image,
		      struct scry_cfi *cfi)
{
	if (scry_elf_open_path(path, elf) < 0 || scry_image_open(*elf, image) < 0 ||
	    scry_cfi_compile(*elf, image, cfi) < 0)
		fail_msg("%s: %s", path, scry_error());
}

/* Each row's first and last byte, as libdw has it. */
static void compare_file(const char *path)
{
	struct scry_elf *elf;
	struct scry_image image;
	struct scry_cfi cfi;
	size_t compared = 0, unknown = 0;
	int fd;
	Elf *e;
	Dwarf_CFI *dw;

	open_file(path, &elf, &image, &cfi);
	fd = open(path, O_RDONLY);
	elf_version(EV_CURRENT);
	e = elf_begin(fd, ELF_C_READ, NULL);
	dw = dwarf_getcfi_elf(e);
	assert_non_null(dw);
	for (uint32_t i = 0; i + 1 < cfi.rows.count; i++) {
		const uint64_t ends[2] = {cfi.base + cfi.rows.pcs[i],
					  cfi.base + cfi.rows.pcs[i + 1] - 1};
		uint64_t ours = cfi.rows.rules[cfi.rows.which[i]];

		assert_true(cfi.rows.pcs[i] < cfi.rows.pcs[i + 1]);
		for (int k = 0; k < 2; k++) {
			Dwarf_Frame *frame = NULL;
			uint64_t theirs = 0;

			assert_true(scry_cfi_rule(&cfi, ends[k]) == ours);
			if (dwarf_cfi_addrframe(dw, ends[k], &frame) == 0) {
				theirs = libdw_rule(frame);
				free(frame);
			}
			if (theirs == UINT64_MAX)
				continue;
			if (!scry_unwind_base(theirs)) /* another register */
				theirs = 0;
			if (ours != theirs)
				fail_msg("%s at %#lx: %#lx, libdw says %#lx", path, ends[k], ours,
					 theirs);
			compared++;
			unknown += !ours;
		}
	}
	assert_true(compared > 50);
	print_message("%s: %zu functions, %u rows, %u rules, %zu KiB; %zu unknown, %zu bad; "
		      "compared at %zu\n",
		      path, cfi.functions, cfi.rows.count, cfi.rows.rule_count,
		      ((size_t)cfi.rows.count * 6 + cfi.rows.rule_count * 8) / 1024, cfi.unknown,
		      cfi.bad, compared);
	assert_true(cfi.bad == 0);
	scry_cfi_done(&cfi);
	scry_image_close(&image);
	scry_elf_close(elf);
	elf_end(e);
	close(fd);
}

static void test_libdw(void **state)
{
	static const char *const names[] = {"/libc.so.6", "/libdw", "/ld-linux", "/libcmocka"};

	for (struct link_map *m = _r_debug.r_map; m; m = m->l_next)
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			if (strstr(m->l_name, names[i]))
				compare_file(m->l_name);
	for (const char *const *p =
		     (const char *const[]){"/usr/bin/python3",
					   "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", NULL};
	     *p; p++)
		if (access(*p, R_OK) == 0)
			compare_file(*p);
}

/* walking */

struct object {
	uint64_t start, end, bias;
	struct scry_cfi cfi;
} objects[64];
static int object_count;

static int add_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct object *o = &objects[object_count];
	const char *path = info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe";
	struct scry_elf *elf;
	struct scry_image image;

	if (strstr(path, "vdso"))
		return 0;
	open_file(path, &elf, &image, &o->cfi);
	o->bias = info->dlpi_addr;
	for (size_t i = 0; i < image.count; i++)
		if (image.parts[i].end > o->end)
			o->end = image.parts[i].end;
	o->start = o->cfi.base + o->bias;
	o->end += o->bias;
	scry_image_close(&image);
	scry_elf_close(elf);
	object_count++;
	return 0;
}

static uint64_t rule_at(uint64_t pc)
{
	for (int i = 0; i < object_count; i++)
		if (pc >= objects[i].start && pc < objects[i].end)
			return scry_cfi_rule(&objects[i].cfi, pc - objects[i].bias);
	return 0;
}

static int read_word(void *arg, uint64_t address, uint64_t *ret)
{
	*ret = *(const uint64_t *)address;
	return 1;
}

/* Where this function returns to and further, by our tables; and by glibc. */
static __attribute__((noinline)) void compare_walk(size_t at_least)
{
	struct scry_unwind_state s = {.is_exact = 1};
	void *theirs[FRAMES_MAX];
	uint64_t ours[FRAMES_MAX], rule;
	int count = backtrace(theirs, FRAMES_MAX), n = 0;
	enum scry_unwind_end end = SCRY_UNWIND_GOES_ON;

	__asm__ volatile("lea 0(%%rip), %0; mov %%rsp, %1; mov %%rbp, %2; mov %%rbx, %3"
			 : "=r"(s.pc), "=r"(s.sp), "=r"(s.bp), "=r"(s.bx));
	while (n < FRAMES_MAX && end == SCRY_UNWIND_GOES_ON) {
		rule = rule_at(scry_unwind_at(&s));
		end = scry_unwind_step(&s, rule, read_word, NULL);
		if (end == SCRY_UNWIND_GOES_ON)
			ours[n++] = s.pc;
	}
	if (n != count - 1)
		for (int i = 0; i < n || i < count - 1; i++)
			print_message("%p %p\n", i < n ? (void *)ours[i] : NULL,
				      i < count - 1 ? theirs[i + 1] : NULL);
	assert_int_equal(end, n == FRAMES_MAX ? SCRY_UNWIND_GOES_ON : SCRY_UNWIND_IS_TOP);
	assert_int_equal(n, count - 1);
	for (int i = 0; i < n; i++)
		assert_ptr_equal((void *)ours[i], theirs[i + 1]);
	assert_true((size_t)n >= at_least);
}

static volatile int sink;

static __attribute__((noinline)) void recurse(int n)
{
	if (n)
		recurse(n - 1);
	else
		compare_walk(100);
	sink++;
}

static __attribute__((noinline)) void with_alloca(int n)
{
	char *p = alloca((size_t)n * 10 + 1);

	memset(p, n, (size_t)n * 10 + 1);
	if (n)
		with_alloca(n - 1);
	else
		compare_walk(30);
	sink += p[0];
}

static __attribute__((noinline)) void realigned(int n)
{
	char p[64] __attribute__((aligned(64)));
	char *more = alloca((size_t)n + 1);

	memset(p, n, sizeof(p));
	more[0] = p[3];
	if (n)
		realigned(n - 1);
	else
		compare_walk(10);
	sink += p[1] + more[0];
}

static int in_qsort(const void *a, const void *b)
{
	static int once;

	if (!once++)
		compare_walk(3);
	return *(const int *)a - *(const int *)b;
}

static void in_handler(int signal)
{
	realigned(2);
	compare_walk(3);
}

static void *in_thread(void *arg)
{
	with_alloca(30);
	return NULL;
}

static void test_walk(void **state)
{
	int numbers[] = {4, 2, 3};
	char other_stack[65536];
	const stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof(other_stack)};
	struct sigaction action = {.sa_handler = in_handler};
	pthread_t thread;

	dl_iterate_phdr(add_object, NULL);
	compare_walk(3);
	recurse(100);
	with_alloca(40);
	realigned(10);
	qsort(numbers, 3, sizeof(int), in_qsort);
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	sigaltstack(&stack, NULL);
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	assert_int_equal(pthread_create(&thread, NULL, in_thread, NULL), 0);
	pthread_join(thread, NULL);
	for (int i = 0; i < object_count; i++)
		scry_cfi_done(&objects[i].cfi);
}

static void test_rules(void **state)
{
	static const int32_t offsets[] = {
		0, 8, -8, 4096, SCRY_UNWIND_CFA_MAX, -SCRY_UNWIND_CFA_MAX};
	static const int16_t words[] = {0, -2, 77, SCRY_UNWIND_LOST, SCRY_UNWIND_SAME};

	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
		for (size_t k = 0; k < sizeof(words) / sizeof(words[0]); k++) {
			uint64_t rule = scry_unwind_pack(SCRY_UNWIND_BX, offsets[i], words[k],
							 words[(k + 1) % 5]);

			assert_int_equal(scry_unwind_base(rule), SCRY_UNWIND_BX);
			assert_int_equal(scry_unwind_cfa(rule), offsets[i]);
			assert_int_equal(scry_unwind_bp(rule), words[k]);
			assert_int_equal(scry_unwind_bx(rule), words[(k + 1) % 5]);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_libdw),
		cmocka_unit_test(test_walk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
