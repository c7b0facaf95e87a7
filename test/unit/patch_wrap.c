/* SCRY_WRAP, in this process: all registers are as they would be without it, at both ends; handlers
 * that spoil what a function may; more places that call than there are thunks. */
#include "patch/wrap.h"

#include <cpuid.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "scry/patch.h"

extern const uint8_t scry_wrap[], scry_wrap_words_at[], scry_wrap_end[];

#define CODE_BYTES (1u << 20)
#define STUBS 0x40000u /* in the code: the entry code of each function, 4 KiB apart */
#define SITES 0x80000u
#define PLACES 3000

static uint8_t *code;
static struct scry_wrap_table *table;
static size_t entered_count, returned_count, unknown_count, odd_count;
static uint64_t changes_to;

#define SPOIL_SIX(a, b, c, d, e, f)                                                            \
	"pcmpeqd %%xmm" #a ", %%xmm" #a "; pcmpeqd %%xmm" #b ", %%xmm" #b "; pcmpeqd %%xmm" #c \
	", %%xmm" #c "; pcmpeqd %%xmm" #d ", %%xmm" #d "; pcmpeqd %%xmm" #e ", %%xmm" #e       \
	"; pcmpeqd %%xmm" #f ", %%xmm" #f ";"

static void spoil(void)
{
	__asm__ volatile(
		SPOIL_SIX(0, 1, 2, 3, 4, 5) SPOIL_SIX(6, 7, 8, 9, 10, 11) SPOIL_SIX(
			12, 13, 14, 15, 0,
			1) "mov $-1, %%rax; mov %%rax, %%rcx; mov %%rax, %%rdx; mov %%rax, %%rsi;"
			   "mov %%rax, %%rdi; mov %%rax, %%r8; mov %%rax, %%r9; mov %%rax, %%r10;"
			   "mov %%rax, %%r11"
		:
		:
		: "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
		  "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "rax", "rcx", "rdx", "rsi",
		  "rdi", "r8", "r9", "r10", "r11", "cc");
	if (__builtin_cpu_supports("avx"))
		__asm__ volatile("vzeroall");
}

static void entered(struct scry_patch_call *call, uint64_t kept[4])
{
	kept[0] = call->arguments[0];
	kept[3] = ~call->arguments[0];
	entered_count++;
	spoil();
}

static void returned(struct scry_patch_return *ret, uint64_t kept[4])
{
	returned_count++;
	if (!ret->is_known)
		unknown_count++;
	else if (kept[3] != ~kept[0] || ret->rax != kept[0] + 1)
		odd_count++;
	if (changes_to)
		ret->rax = changes_to;
	spoil();
}

/* rax = rdi + 1; all else is left alone. */
static const uint8_t plus_one[] = {0x48, 0x8d, 0x47, 0x01, 0xc3}; /* lea 1(%rdi), %rax; ret */

/* Function `number`, which goes on to `to`; returns its entry. */
static uint8_t *lay_function(uint32_t number, const struct scry_wrap_place *place,
			     const struct scry_wrap_state *state, const uint8_t *to, size_t size)
{
	const size_t head = (size_t)((uintptr_t)scry_wrap_end - (uintptr_t)scry_wrap);
	uint8_t *at = code + STUBS + number * 4096ull;
	uint64_t words[SCRY_WRAP_WORDS];

	scry_wrap_words(number, (uint64_t)(uintptr_t)entered, place, state, words);
	memcpy(at, scry_wrap, head);
	memcpy(at + ((uintptr_t)scry_wrap_words_at - (uintptr_t)scry_wrap), words, sizeof(words));
	memcpy(at + head, to, size);
	return at;
}

static uint8_t *lay(void)
{
	struct scry_patch_object object = {.entry_count = 2};
	struct scry_wrap_state state;
	struct scry_wrap_place place;
	uint32_t a, b, c, d;
	uint8_t *first, jump[14] = {0xff, 0x25};

	code = mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	table = calloc(1, sizeof(*table));
	assert_true(code != MAP_FAILED && table);
	entered_count = returned_count = unknown_count = odd_count = 0;
	changes_to = 0;
	__cpuid_count(0xd, 0, a, b, c, d);
	state = (struct scry_wrap_state){.mask = a & 0xe7, .bytes = b};
	place = (struct scry_wrap_place){(uint64_t)(uintptr_t)code, (uint64_t)(uintptr_t)table};
	for (size_t i = 0; i < 2; i++)
		object.entries[i] = (struct scry_object_entry){
			.kind = SCRY_PATCH_WRAP, .original = (uint64_t)(uintptr_t)returned};
	assert_true(scry_wrap_text_bytes(&object) < STUBS);
	assert_true(scry_wrap_data_bytes(&object) >= sizeof(*table));
	scry_wrap_lay_thunks(&object, 0, &place, &state, code);
	first = lay_function(0, &place, &state, plus_one, sizeof(plus_one));
	memcpy(jump + 6, &first, 8);
	lay_function(1, &place, &state, jump, sizeof(jump)); /* ends in a jump to the first */
	return first;
}

static void unlay(void)
{
	munmap(code, CODE_BYTES);
	free(table);
}

static uint64_t call_of(const uint8_t *function, uint64_t argument)
{
	return ((uint64_t(*)(uint64_t))(uintptr_t)function)(argument);
}

/* What a call leaves in all registers but rax and rsp. */
struct registers {
	uint64_t general[14], flags;
	double vectors[16];
};

static const struct registers in = {
	.general = {0x1001, 0x1002, 0x1003, 0x1004, 0x1005, 0x1006, 0x1007, 0x1008, 0x1009, 0x100a,
		    0x100b, 0x100c, 0x100d, 0x100e},
	.vectors = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

void all_registers(const uint8_t *function, uint64_t *ret_rax, struct registers *ret,
		   const struct registers *from);
__asm__(".pushsection .text\n"
	"all_registers:\n"
	"push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
	"push %rdx; push %rsi; push %rdi; mov %rcx, %rax\n"
	"movsd 120(%rax), %xmm0; movsd 128(%rax), %xmm1; movsd 136(%rax), %xmm2\n"
	"movsd 200(%rax), %xmm10; movsd 240(%rax), %xmm15\n"
	"mov 0(%rax), %rbx; mov 8(%rax), %rcx; mov 16(%rax), %rdx; mov 24(%rax), %rsi\n"
	"mov 32(%rax), %rdi; mov 40(%rax), %rbp; mov 48(%rax), %r8; mov 56(%rax), %r9\n"
	"mov 64(%rax), %r10; mov 72(%rax), %r11; mov 80(%rax), %r12; mov 88(%rax), %r13\n"
	"mov 96(%rax), %r14; mov 104(%rax), %r15; xor %eax, %eax; stc\n"
	"call *(%rsp)\n"
	"pushfq; push %rbx; mov 32(%rsp), %rbx\n" /* ret */
	"mov %rcx, 8(%rbx); mov %rdx, 16(%rbx); mov %rsi, 24(%rbx); mov %rdi, 32(%rbx)\n"
	"mov %rbp, 40(%rbx); mov %r8, 48(%rbx); mov %r9, 56(%rbx); mov %r10, 64(%rbx)\n"
	"mov %r11, 72(%rbx); mov %r12, 80(%rbx); mov %r13, 88(%rbx); mov %r14, 96(%rbx)\n"
	"mov %r15, 104(%rbx); movsd %xmm0, 120(%rbx); movsd %xmm1, 128(%rbx)\n"
	"movsd %xmm2, 136(%rbx); movsd %xmm10, 200(%rbx); movsd %xmm15, 240(%rbx)\n"
	"pop %rcx; mov %rcx, 0(%rbx); pop %rcx; mov %rcx, 112(%rbx)\n"
	"pop %rdi; pop %rsi; pop %rdx; mov %rax, (%rsi)\n"
	"pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret\n"
	".popsection");

static void registers_are_kept(void **state)
{
	struct registers with = {0}, without = {0};
	const uint8_t *function = lay();
	uint64_t rax, bare;

	(void)state;
	memcpy(code + SITES, plus_one, sizeof(plus_one));
	all_registers(code + SITES, &bare, &without, &in);
	for (int i = 0; i < 2; i++) {
		all_registers(function + i * 4096, &rax, &with, &in);
		assert_int_equal(rax, bare);
		assert_memory_equal(&with, &without, sizeof(with));
	}
	assert_int_equal(with.general[4], 0x1005);
	assert_true(with.flags & 1);
	assert_int_equal(entered_count, 3);
	assert_int_equal(returned_count, 3); /* the second's jump is a call of the first */
	assert_int_equal(odd_count + unknown_count, 0);
	unlay();
}

static void a_result_is_changed(void **state)
{
	const uint8_t *function = lay();

	(void)state;
	assert_int_equal(call_of(function, 41), 42);
	changes_to = 99;
	assert_int_equal(call_of(function, 41), 99);
	unlay();
}

/* A thunk for each place that calls, as long as there are some. */
static void many_places(void **state)
{
	const uint8_t *function = lay();
	uint64_t missed;

	(void)state;
	for (int i = 0; i < PLACES; i++) { /* sub $8, %rsp; call; add $8, %rsp; ret */
		uint8_t *at = code + SITES + (size_t)i * 16;
		int32_t jump = (int32_t)(function - (at + 9));

		memcpy(at, "\x48\x83\xec\x08\xe8", 5);
		memcpy(at + 5, &jump, 4);
		memcpy(at + 9, "\x48\x83\xc4\x08\xc3", 5);
	}
	for (int k = 0; k < 3; k++)
		for (uint64_t i = 0; i < PLACES; i++)
			assert_int_equal(call_of(code + SITES + i * 16, i), i + 1);
	missed = table->missed[0];
	assert_int_equal(entered_count, 3 * PLACES);
	assert_int_equal(returned_count, 3 * PLACES - missed);
	assert_int_equal(missed, 3 * (PLACES - SCRY_WRAP_THUNKS));
	assert_int_equal(odd_count + unknown_count, 0);
	unlay();
}

static jmp_buf back;

static void away(void)
{
	longjmp(back, 1);
}

/* From another depth of the stack each time. */
static void __attribute__((noinline)) leave(const uint8_t *leaves, size_t depth)
{
	volatile uint8_t *room = __builtin_alloca(16 * depth + 16);

	room[0] = 1;
	if (!setjmp(back))
		call_of(leaves, depth);
}

/* Calls that were left fill the table of what is kept; that is all that they cost. */
static void left_by_longjmp(void **state)
{
	const uint8_t *function = lay();
	uint8_t *leaves = code + STUBS + 4096; /* the second, which goes on to `away` */
	void (*const to)(void) = away;

	(void)state;
	memcpy(leaves + ((uintptr_t)scry_wrap_end - (uintptr_t)scry_wrap) + 6, &to, 8);
	for (volatile size_t i = 0; i < 5000; i++)
		leave(leaves, i % 2000);
	assert_int_equal(returned_count, 0);
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(call_of(function, i), i + 1);
	assert_int_equal(returned_count, 1000);
	assert_int_equal(odd_count + unknown_count, 0);
	unlay();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registers_are_kept),
		cmocka_unit_test(a_result_is_changed),
		cmocka_unit_test(many_places),
		cmocka_unit_test(left_by_longjmp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
