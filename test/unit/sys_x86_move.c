/*
 * sys/x86_move: every shape of a function's beginning that the census of real libraries shows, as
 * bytes. What a copy does is compared with what the original does by running both.
 *
 * All shapes are made for one arena: the function at FUNCTION, a callee, a tail and data at fixed
 * distances. The callee returns its own return address, mixed with its argument.
 */
#include "sys/x86_move.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define ARENA 0x10000
#define FUNCTION 0x100
#define CALLEE 0x400
#define TAIL 0x411
#define DATA 0x800
#define POINTER 0x900
#define COPY 0x8000
#define THUNK 0x500 /* clears rax, which a lone ret returns, and goes to the fifth argument */

/* INNER: its last branch leads back to a place inside, so it can be patched only with that branch
 * in the window. */
enum wants { JUMP = 1, AVX, AVX512, INNER };

struct shape {
	const char *name;
	const char *bytes;
	uint8_t size, avail; /* of the function; with the filler behind it */
	uint8_t wants;
};

static const char callee[] = "\x48\x8b\x04\x24\x48\x31\xf8\xc3"	    /* mov (%rsp); xor %rdi */
			     "\x48\x8b\x04\x24\x48\x8d\x04\x38\xc3" /* the same, lea */
			     "\x48\x8d\x47\x0b\xc3";		    /* tail: lea 11(%rdi) */

/* Disassembled by their names; where size < avail, filler follows. */
static const struct shape shapes[] = {
	{"push, mov, sub", "\x55\x48\x89\xe5\x48\x83\xec\x10\x48\x8d\x04\x37\xc9\xc3", 14, 14, 0},
	{"endbr64", "\xf3\x0f\x1e\xfa\x53\x48\x89\xfb\x48\x8d\x43\x01\x5b\xc3", 14, 14, 0},
	{"endbr64, jcc8",
	 "\xf3\x0f\x1e\xfa\x85\xff\x74\x04\x48\x89\xf8\xc3\x48\xc7\xc0\xfd\xff\xff\xff\xc3", 20, 20,
	 0},
	{"lea rip", "\x48\x8d\x05\xf9\x06\x00\x00\x48\x8b\x00\x48\x01\xf8\xc3", 14, 14, 0},
	{"mov rip", "\x48\x8b\x05\xf9\x06\x00\x00\x48\x01\xf8\xc3", 11, 11, 0},
	{"cmp rip, imm8", "\x80\x3d\xf9\x06\x00\x00\x5a\x0f\x94\xc0\x0f\xb6\xc0\xc3", 14, 14, 0},
	{"mov imm32 to rip", "\xc7\x05\xfe\x06\x00\x00\x78\x56\x34\x12\x8b\x05\xf8\x06\x00\x00\xc3",
	 17, 17, 0},
	{"test, jcc8", "\x85\xff\x74\x05\x48\x8d\x47\x05\xc3\xb8\x09\x00\x00\x00\xc3", 15, 15, 0},
	{"jcc32", "\x85\xff\x0f\x84\x05\x00\x00\x00\x48\x8d\x47\x05\xc3\xb8\x09\x00\x00\x00\xc3",
	 19, 19, 0},
	{"jcc8 with hint", "\x39\xf7\x2e\x7f\x05\x48\x8d\x47\x05\xc3\xb8\x09\x00\x00\x00\xc3", 16,
	 16, 0},
	{"jmp8", "\xeb\x04\x0f\x0b\x0f\x0b\x48\x8d\x47\x07\xc3", 11, 11, JUMP},
	{"jmp32 tail", "\xe9\x0c\x03\x00\x00", 5, 5, JUMP},
	{"jmp *mem(rip) tail", "\xff\x25\xfa\x07\x00\x00", 6, 6, JUMP},
	{"lea, jmp8", "\x48\x8d\x47\x03\xeb\x04\x0f\x0b\x0f\x0b\x48\x01\xf0\xc3", 14, 14, 0},
	{"call rel32 last", "\x48\x83\xec\x08\xe8\xf7\x02\x00\x00\x48\x83\xc4\x08\xc3", 14, 14, 0},
	{"call rel32 first", "\xe8\x03\x03\x00\x00\xc3", 6, 6, 0},
	{"call *mem(rip) last", "\x53\xff\x15\xf9\x07\x00\x00\x5b\xc3", 9, 9, 0},
	{"call *reg last", "\x48\x83\xec\x08\xff\xd2\x48\x83\xc4\x08\xc3", 11, 11, 0},
	{"call *r10 last", "\x53\x49\x89\xd2\x41\xff\xd2\x5b\xc3", 9, 9, 0},
	{"call *8(reg) last", "\x53\x90\xff\x51\x08\x5b\xc3", 7, 7, 0},
	{"notrack call *reg last", "\x48\x83\xec\x08\x3e\xff\xd2\x48\x83\xc4\x08\xc3", 12, 12, 0},
	{"call of itself",
	 "\x57\x85\xff\x74\x0b\xff\xcf\xe8\xf4\xff\xff\xff\xff\xc0\x5f\xc3\x31\xc0\x5f\xc3", 20, 20,
	 0},
	{"xor, ret, nops", "\x31\xc0\xc3\x0f\x1f\x00", 3, 6, 0},
	{"xor, ret, int3", "\x31\xc0\xc3\xcc\xcc", 3, 5, 0},
	{"xor, rep ret, nop", "\x31\xc0\xf3\xc3\x90", 4, 5, 0},
	{"mov, ret, zeros", "\x89\xf8\xc3\x00\x00", 3, 5, 0},
	{"mov imm, ret", "\xb8\x01\x00\x00\x00\xc3", 6, 6, 0},
	{"ret, nops", "\xc3\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00", 1, 11, 0},
	{"VEX rip", "\xc5\xfa\x6f\x05\xf8\x06\x00\x00\xc4\xe1\xf9\x7e\xc0\xc3", 14, 14, AVX},
	{"VEX rip with imm8", "\xc5\xf9\x70\x05\xf7\x06\x00\x00\x4e\xc4\xe1\xf9\x7e\xc0\xc3", 15,
	 15, AVX},
	{"EVEX rip", "\x62\xe1\xfe\x08\x6f\x05\xf6\x06\x00\x00\x62\xe1\xfd\x08\x7e\xc0\xc3", 17, 17,
	 AVX512},
	{"SSE rip", "\xf3\x0f\x10\x05\xf8\x06\x00\x00\x66\x0f\x7e\xc0\xc3", 13, 13, 0},
	{"lock rip", "\xf0\xff\x05\x09\x07\x00\x00\x8b\x05\x03\x07\x00\x00\xc3", 14, 14, 0},
	{"lock cmpxchg", "\x31\xc0\xf0\x0f\xb1\x3d\x06\x07\x00\x00\x0f\x95\xc0\xc3", 14, 14, 0},
	{"fs", "\x64\x48\x8b\x04\x25\x00\x00\x00\x00\xc3", 10, 10, 0},
	{"fs via r11", "\x64\x48\x8b\x04\x25\x28\x00\x00\x00\x48\x31\xf8\xc3", 13, 13, 0},
	{"nop forms", "\x0f\x1f\x04\x00\x2e\x66\x0f\x1f\x04\x00\x48\x89\xf8\xc3", 14, 14, 0},
	{"loop", "\x48\x89\xf9\xe2\x06\xb8\x01\x00\x00\x00\xc3\x48\x89\xc8\xc3", 15, 15, 0},
	{"loope", "\x48\x8d\x4e\x01\x39\xf7\xe1\x06\xb8\x01\x00\x00\x00\xc3\x48\x8d\x41\x02\xc3",
	 19, 19, 0},
	{"loopne", "\x48\x8d\x4e\x01\x39\xf7\xe0\x06\xb8\x01\x00\x00\x00\xc3\x48\x8d\x41\x02\xc3",
	 19, 19, 0},
	{"jrcxz", "\x48\x89\xf9\xe3\x06\xb8\x01\x00\x00\x00\xc3\xb8\x02\x00\x00\x00\xc3", 17, 17,
	 0},
	{"jecxz", "\x48\x89\xf9\x67\xe3\x06\xb8\x01\x00\x00\x00\xc3\xb8\x02\x00\x00\x00\xc3", 18,
	 18, 0},
	{"loop to byte 0", "\x48\xff\xcf\x79\xfb\x48\x8d\x47\x03\xc3", 10, 10, 0},
	{"loop to endbr64", "\xf3\x0f\x1e\xfa\x48\xff\xcf\x79\xf7\x48\x8d\x47\x03\xc3", 14, 14, 0},
	{"loop inside", "\x31\xc0\xff\xc0\xff\xcf\x79\xfa\xc3", 9, 9, INNER},
	{"loop instruction inside", "\x8d\x4e\x01\x48\x89\xf8\x48\xff\xc0\xe2\xfb\xc3", 12, 12,
	 INNER},
	{"forward inside", "\x31\xc0\x85\xff\x74\x02\xff\xc0\x48\x8d\x04\x30\xc3", 13, 13, 0},
	{"jmp *reg, ends", "\x48\x8d\x05\xf9\x06\x00\x00\xb8\x05\x00\x00\x00\x3e\xff\xe2", 15, 15,
	 0},
	{"bnd jmp", "\x89\xf8\xf2\xe9\x09\x03\x00\x00", 8, 8, 0},
	{"push imm, pop", "\x6a\x4d\x58\x48\x01\xf8\xc3", 7, 7, 0},
	{"enter", "\xc8\x10\x00\x00\x48\x89\x7d\xf8\x48\x8b\x45\xf8\xc9\xc3", 14, 14, 0},
	{"mov imm64", "\x48\xb8\x88\x77\x66\x55\x44\x33\x22\x11\x48\x31\xf8\xc3", 14, 14, 0},
	{"cmov rip", "\x48\x85\xff\x48\x89\xf0\x48\x0f\x44\x05\xf2\x06\x00\x00\xc3", 15, 15, 0},
	{"rep stos",
	 "\x48\x89\xf8\xb9\x04\x00\x00\x00\x48\x8d\x3d\x11\x07\x00\x00\xf3\xab\x8b\x05\x15\x07\x00"
	 "\x00\xc3",
	 24, 24, 0},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static uint8_t *arena;

typedef uint64_t (*function)(uint64_t, uint64_t, void *, void **, void *);

static int set_up(void **state)
{
	arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
		     -1, 0);
	return arena == MAP_FAILED;
}

static int tear_down(void **state)
{
	return munmap(arena, ARENA);
}

static bool can_run(const struct shape *s)
{
	return s->wants == AVX	    ? __builtin_cpu_supports("avx2")
	       : s->wants == AVX512 ? __builtin_cpu_supports("avx512vl")
				    : true;
}

/* The arena as it is before each call. */
static void reset_data(void)
{
	const void *pointer = arena + CALLEE;

	for (int i = 0; i < 64; i++)
		arena[DATA + i] = (uint8_t)(0x5a + 7 * i);
	memcpy(arena + POINTER, &pointer, sizeof(pointer));
}

static struct scry_x86_code place_shape(const struct shape *s)
{
	memset(arena, 0xcc, ARENA);
	memcpy(arena + CALLEE, callee, sizeof(callee) - 1);
	memcpy(arena + FUNCTION, s->bytes, s->avail);
	memcpy(arena + THUNK, "\x31\xc0\x41\xff\xe0", 5);
	reset_data();
	return (struct scry_x86_code){.bytes = (const uint8_t *)s->bytes,
				      .address = (uintptr_t)arena + FUNCTION,
				      .size = s->size,
				      .avail = s->avail};
}

struct answer {
	uint64_t value;
	uint8_t data[64];
};

static void ask(size_t entry, size_t i, struct answer *ret)
{
	static const uint64_t args[][2] = {{0, 0}, {1, 2}, {3, 3}, {5, 1}, {7, 40}};
	void *pointers[2] = {arena + CALLEE, arena + CALLEE};
	function f;
	void *at = arena + THUNK;

	memcpy(&f, &at, sizeof(f));
	reset_data();
	ret->value = f(args[i][0], args[i][1], arena + CALLEE, pointers, arena + entry);
	memcpy(ret->data, arena + DATA, sizeof(ret->data));
}

/* Runs the original, then the copy, then the patched original: the same answers. */
static void compare(const struct shape *s, const struct scry_x86_code *code, size_t need)
{
	uint32_t flags = s->wants == JUMP ? SCRY_X86_JUMP_OK : 0;
	struct answer expected[5], found;
	struct scry_x86_place place = {.address = (uintptr_t)arena + COPY, .back = true};
	struct scry_x86_window w;
	struct scry_x86_moved m;

	if (need > 5 && scry_x86_window(code, need, flags, &w))
		return;
	assert_int_equal(scry_x86_window(code, need, flags, &w), SCRY_X86_OK);
	assert_true(w.bytes >= need && w.bytes <= s->avail);
	for (size_t i = 0; i < 5; i++)
		ask(FUNCTION, i, &expected[i]);
	assert_int_equal(scry_x86_move(code, &w, &place, &m), SCRY_X86_OK);
	memcpy(arena + COPY, m.code, m.bytes);
	for (size_t i = 0; i < 5; i++) {
		ask(COPY, i, &found);
		if (found.value != expected[i].value)
			print_message("# copy of '%s', need %zu, arguments %zu\n", s->name, need,
				      i);
		assert_int_equal(found.value, expected[i].value);
		assert_memory_equal(found.data, expected[i].data, sizeof(found.data));
	}
	if (s->wants == INNER && w.code + 1 < s->size)
		return;
	/* The window, filler included, is overwritten to its last byte: nothing may run there. */
	memset(arena + FUNCTION + w.endbr, 0xcc, w.bytes);
	assert_int_equal(
		scry_x86_jump(code->address + w.endbr, place.address, arena + FUNCTION + w.endbr),
		5);
	for (size_t i = 0; i < 5; i++) {
		ask(FUNCTION, i, &found);
		if (found.value != expected[i].value)
			print_message("# '%s' patched, need %zu, arguments %zu\n", s->name, need,
				      i);
		assert_int_equal(found.value, expected[i].value);
		assert_memory_equal(found.data, expected[i].data, sizeof(found.data));
	}
}

static void test_run(void **state)
{
	static const size_t needs[] = {5, 6, 8, 10, 14};
	size_t ran = 0;

	for (size_t i = 0; i < SHAPES; i++) {
		if (!can_run(&shapes[i])) {
			print_message("# '%s' not run: this CPU lacks it\n", shapes[i].name);
			continue;
		}
		for (size_t n = 0; n < 5; n++) {
			struct scry_x86_code code = place_shape(&shapes[i]);

			compare(&shapes[i], &code, needs[n]);
		}
		ran++;
	}
	assert_true(ran >= SHAPES - 3);
}

static struct scry_x86_code code_of(const char *bytes, size_t size, size_t avail)
{
	return (struct scry_x86_code){(const uint8_t *)bytes, 0x400000, size, avail};
}

#define WINDOW(bytes, need, flags, ret) \
	window_of(bytes, sizeof(bytes) - 1, sizeof(bytes) - 1, need, flags, ret)

static enum scry_x86_refusal window_of(const char *bytes, size_t size, size_t avail, size_t need,
				       uint32_t flags, struct scry_x86_window *ret)
{
	struct scry_x86_code code = code_of(bytes, size, avail);

	return scry_x86_window(&code, need, flags, ret);
}

static void test_offsets(void **state)
{
	struct scry_x86_window w;

	/* endbr64; push %rbp; mov %rsp,%rbp; sub $16,%rsp */
	assert_int_equal(WINDOW("\xf3\x0f\x1e\xfa\x55\x48\x89\xe5\x48\x83\xec\x10", 5, 0, &w), 0);
	assert_int_equal(w.endbr, 4);
	assert_int_equal(w.bytes, 8);
	assert_int_equal(w.count, 3);
	assert_memory_equal(w.at, "\0\1\4\10", 4);
	assert_int_equal(w.has, 0);
	/* mov %fs:0x28,%rax: one instruction */
	assert_int_equal(WINDOW("\x64\x48\x8b\x04\x25\x28\0\0\0\xc3", 5, 0, &w), 0);
	assert_int_equal(w.has, SCRY_X86_ONE);
	assert_int_equal(w.bytes, 9);
	/* lea 0(%rip),%rax; ret */
	assert_int_equal(WINDOW("\x48\x8d\x05\0\0\0\0\xc3", 8, 0, &w), 0);
	assert_int_equal(w.has, SCRY_X86_RIP | SCRY_X86_ENDS);
	/* xor %eax,%eax; ret; 2 bytes of filler */
	assert_int_equal(window_of("\x31\xc0\xc3\x66\x90", 3, 5, 5, 0, &w), 0);
	assert_int_equal(w.has, SCRY_X86_ENDS | SCRY_X86_FILLER);
	assert_int_equal(w.code, 3);
	assert_int_equal(w.bytes, 5);
	/* dec %rdi; jns to byte 0 */
	assert_int_equal(WINDOW("\x48\xff\xcf\x79\xfb\xc3", 5, 0, &w), 0);
	assert_int_equal(w.has, SCRY_X86_BRANCH | SCRY_X86_SELF);
	/* sub $8,%rsp; call */
	assert_int_equal(WINDOW("\x48\x83\xec\x08\xe8\0\1\0\0", 5, 0, &w), 0);
	assert_int_equal(w.has, SCRY_X86_CALL);
	/* jmp rel32; ret: code behind the end of the flow is displaced, too */
	assert_int_equal(WINDOW("\xeb\x10\xc3\x31\xc0\xc3", 5, SCRY_X86_JUMP_OK, &w), 0);
	assert_int_equal(w.count, 3);
	assert_int_equal(w.bytes, 5);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *bytes;
		uint8_t size, avail, why;
	} rows[] = {
		{"\xb8\x01\0\0\0\x0f\x05\xc3", 8, 8, SCRY_X86_OK}, /* syscall behind the window */
		{"\x31\xff\x0f\x05\xc3\x90", 6, 6, SCRY_X86_SYSCALL},
		{"\x31\xff\xcd\x80\xc3\x90", 6, 6, SCRY_X86_SYSCALL},
		{"\x31\xff\x0f\x34\xc3\x90", 6, 6, SCRY_X86_SYSCALL},
		{"\xff\xd0\x31\xc0\xc3\x90", 6, 6, SCRY_X86_CALL_INSIDE}, /* call *%rax */
		{"\xff\xd0", 2, 8, SCRY_X86_CALL_INSIDE},
		{"\xc7\xf8\0\0\0\0", 6, 6, SCRY_X86_XBEGIN},
		{"\x55\xcc\x89\xe5\x90\x90", 6, 6, SCRY_X86_TRAP},
		{"\xe9\0\1\0\0", 5, 5, SCRY_X86_HOOKED},
		{"\xf3\x0f\x1e\xfa\xe9\0\1\0\0", 9, 9, SCRY_X86_HOOKED},
		{"\xff\x25\0\1\0\0", 6, 6, SCRY_X86_HOOKED},
		{"\x66\xe9\0\1\0\0\0\0", 8, 8, SCRY_X86_FORM},
		{"\x67\x8b\x05\0\1\0\0", 7, 7, SCRY_X86_FORM}, /* mov (%eip),%eax */
		{"\x90\x90\xff\xd0\xc3\xc3", 6, 6, SCRY_X86_CALL_INSIDE},
		{"\x90\xff\x54\x24\x08\xc3", 6, 6, SCRY_X86_FORM},     /* call *8(%rsp) */
		{"\x74\x01\xf0\x0f\xb1\x3e\xc3", 7, 7, SCRY_X86_INTO}, /* over a lock prefix */
		{"\x31\xc0\xc3", 3, 3, SCRY_X86_SHORT},
		{"\x31\xc0\xc3\x90\x55", 3, 5, SCRY_X86_SHORT},
		{"\x31\xc0\x90\x90\x90\x90", 2, 6, SCRY_X86_SHORT}, /* goes on into the filler */
		{"\x06\x06\x06\x06\x06\x06", 6, 6, SCRY_X86_UNDECODED},
		{"\x48\x8b\x05\0\1", 5, 5, SCRY_X86_UNDECODED}, /* cut off */
	};
	struct scry_x86_window w;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		enum scry_x86_refusal why =
			window_of(rows[i].bytes, rows[i].size, rows[i].avail, 5, 0, &w);

		if (why != rows[i].why)
			print_message("# row %zu: %s\n", i, scry_x86_why(why));
		assert_int_equal(why, rows[i].why);
	}
	for (int i = 0; i < SCRY_X86_REFUSALS; i++)
		assert_true(strlen(scry_x86_why((enum scry_x86_refusal)i)) > 5);
	assert_int_equal(WINDOW("\x90", 0, 0, &w), SCRY_X86_ROOM);
	assert_int_equal(WINDOW("\x90", 33, 0, &w), SCRY_X86_ROOM);
}

/* Copies far away: refused when any operand, target or the jump back is out of reach. */
static void test_reach(void **state)
{
	struct scry_x86_code far = code_of("\x48\x8d\x05\0\0\0\0\xc3", 8, 8),
			     plain = code_of("\x48\x83\xec\x08\x90\x90", 6, 6),
			     tail = code_of("\xe9\0\1\0\0", 5, 5);
	struct scry_x86_place place = {.address = far.address + (1ull << 31) - 64, .back = true};
	struct scry_x86_window w;
	struct scry_x86_moved m = {.bytes = 77};
	uint8_t jump[14];

	assert_int_equal(scry_x86_window(&far, 5, 0, &w), 0);
	assert_int_equal(scry_x86_move(&far, &w, &place, &m), SCRY_X86_OK);
	assert_int_equal(m.bytes, 12);
	place.address += 128;
	m.bytes = 77;
	assert_int_equal(scry_x86_move(&far, &w, &place, &m), SCRY_X86_REACH);
	assert_int_equal(m.bytes, 77); /* untouched */
	assert_int_equal(scry_x86_window(&plain, 5, 0, &w), 0);
	assert_int_equal(scry_x86_move(&plain, &w, &place, &m), SCRY_X86_REACH);
	place.back = false;
	assert_int_equal(scry_x86_move(&plain, &w, &place, &m), SCRY_X86_OK);
	assert_int_equal(m.bytes, 5);
	assert_int_equal(scry_x86_window(&tail, 5, SCRY_X86_JUMP_OK, &w), 0);
	place.address = 0x7f0000000000;
	assert_int_equal(scry_x86_move(&tail, &w, &place, &m), SCRY_X86_REACH);
	assert_int_equal(scry_x86_jump(0x400000, 0x7f0000000000, jump), 0);
	assert_int_equal(scry_x86_jump(0x400000, 0x400000, jump), 5);
	assert_memory_equal(jump, "\xe9\xfb\xff\xff\xff", 5);
	assert_int_equal(scry_x86_jump_far(0x1122334455667788, jump), 14);
	assert_memory_equal(jump, "\xff\x25\0\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11", 14);
}

/* Where threads go, there and back. */
static void test_threads(void **state)
{
	/* push %rbp; jrcxz +0x10; sub $8,%rsp */
	struct scry_x86_code code = code_of("\x55\xe3\x10\x48\x83\xec\x08\xc3", 8, 8);
	struct scry_x86_place place = {.address = 0x500000, .back = true};
	struct scry_x86_window w;
	struct scry_x86_moved m;

	assert_int_equal(scry_x86_window(&code, 5, 0, &w), 0);
	assert_int_equal(scry_x86_move(&code, &w, &place, &m), 0);
	assert_int_equal(w.bytes, 7);
	assert_int_equal(m.bytes, 1 + 9 + 4 + 5);
	assert_int_equal(scry_x86_to_copy(&w, &m, 0), 0);
	assert_int_equal(scry_x86_to_copy(&w, &m, 1), 1);
	assert_int_equal(scry_x86_to_copy(&w, &m, 2), -1);
	assert_int_equal(scry_x86_to_copy(&w, &m, 3), 10);
	assert_int_equal(scry_x86_to_copy(&w, &m, 7), -1); /* behind the window */
	assert_int_equal(scry_x86_to_window(&w, &m, 10), 3);
	assert_int_equal(scry_x86_to_window(&w, &m, 3), -1); /* inside the expanded jrcxz */
	assert_int_equal(scry_x86_to_window(&w, &m, 14), 7);
	assert_memory_equal(m.code + 1, "\xe3\x02\xeb\x05\xe9", 5);
}

/* A moved call pushes the address behind the original call, the upper half as well. */
static void test_call_bytes(void **state)
{
	struct scry_x86_code code = {(const uint8_t *)"\xe8\0\1\0\0\xc3", 0x7f12ffffff00, 6, 6};
	struct scry_x86_place place = {.address = 0x7f1300001000, .back = true};
	struct scry_x86_window w;
	struct scry_x86_moved m;

	assert_int_equal(scry_x86_window(&code, 5, 0, &w), 0);
	assert_int_equal(scry_x86_move(&code, &w, &place, &m), 0);
	assert_int_equal(m.bytes, 18);
	assert_memory_equal(m.code, "\x68\x05\xff\xff\xff\xc7\x44\x24\x04\x12\x7f\0\0\xe9", 14);
	assert_memory_equal(m.code + 14, "\xf3\xef\xff\xff", 4); /* to 0x7f1300000005 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_offsets),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_reach),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_call_bytes),
		cmocka_unit_test_setup_teardown(test_run, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
