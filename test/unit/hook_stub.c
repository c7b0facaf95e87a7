/*
 * hook/stub: emitted stubs are run in this process. What a function finds when it is reached by a
 * stub (registers, vector ones and x87 included, flags, words on the stack and the 128 below it) is
 * compared with what it finds when it is reached without; compiled functions of every calling
 * convention are hooked at their own entry.
 *
 *   arena (2 GiB around):  FUNCTION  code to be hooked     STUB  what scry_stub_emit made
 *                          STATE_PAGE   state page word, counter, literal
 */
#include "hook/stub.h"

#include <errno.h>
#include <immintrin.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define ARENA 0x10000
#define FUNCTION 0x1000
#define STUB 0x4000
#define STATE_PAGE 0x8000
#define COUNTER 0x8040
#define LITERAL 0x8080
#define REPLACE_COPY 13 /* of the original's displaced instructions */
#define FLAGS 0x8d5ul	/* OF SF ZF AF PF CF */
#define FIXED 0x202ul	/* bit 1 and IF */

struct state {
	uint64_t gpr[16]; /* rax rcx rdx rbx rsp rbp rsi rdi r8..r15 */
	uint64_t flags;
	uint64_t above[8]; /* words passed on the stack */
	uint64_t below[16];
	uint64_t pad[7];
	uint8_t xsave[1024];
};
_Static_assert(offsetof(struct state, xsave) % 64 == 0, "xsave wants 64");

struct state stub_given __attribute__((aligned(64)));
struct state stub_seen __attribute__((aligned(64)));
uint64_t stub_target, stub_rsp, stub_here;
void stub_run(void);
void stub_capture(void);
void stub_thunk(void);
void stub_handler(uint64_t cookie, uint64_t *above);

/* Loads all of stub_given, enters stub_target as a jump would, with a return address on the stack;
 * stub_capture, which the code under test ends in, stores what it finds and returns. */
__asm__(".text\n"
	"stub_run:\n"
	"	push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
	"	mov %rsp, stub_rsp(%rip)\n"
	"	and $-16, %rsp\n"
	"	mov $7, %eax; xor %edx, %edx\n"
	"	lea stub_given(%rip), %rdi\n"
	"	xrstor 384(%rdi)\n"
	"	.irp at,7,6,5,4,3,2,1,0\n"
	"	pushq 136+8*\\at(%rdi)\n"
	"	.endr\n"
	"	lea 1f(%rip), %rax\n"
	"	push %rax\n"
	"	pushq 128(%rdi)\n"
	"	popfq\n"
	"	.irp at,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
	"	mov 200+8*\\at(%rdi), %rax\n"
	"	mov %rax, -128+8*\\at(%rsp)\n"
	"	.endr\n"
	"	mov %rsp, stub_here(%rip)\n"
	"	mov 0(%rdi), %rax; mov 8(%rdi), %rcx; mov 16(%rdi), %rdx; mov 24(%rdi), %rbx\n"
	"	mov 40(%rdi), %rbp; mov 48(%rdi), %rsi; mov 64(%rdi), %r8; mov 72(%rdi), %r9\n"
	"	mov 80(%rdi), %r10; mov 88(%rdi), %r11; mov 96(%rdi), %r12; mov 104(%rdi), %r13\n"
	"	mov 112(%rdi), %r14; mov 120(%rdi), %r15; mov 56(%rdi), %rdi\n"
	"	jmp *stub_target(%rip)\n"
	"1:	mov stub_rsp(%rip), %rsp\n"
	"	cld\n"
	"	fninit\n"
	"	movl $0x1f80, -8(%rsp)\n"
	"	ldmxcsr -8(%rsp)\n"
	"	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
	"	ret\n"
	"stub_capture:\n"
	"	mov %rdi, stub_seen+56(%rip)\n"
	"	lea stub_seen(%rip), %rdi\n"
	"	mov %rax, 0(%rdi); mov %rcx, 8(%rdi); mov %rdx, 16(%rdi); mov %rbx, 24(%rdi)\n"
	"	mov %rsp, 32(%rdi); mov %rbp, 40(%rdi); mov %rsi, 48(%rdi); mov %r8, 64(%rdi)\n"
	"	mov %r9, 72(%rdi); mov %r10, 80(%rdi); mov %r11, 88(%rdi); mov %r12, 96(%rdi)\n"
	"	mov %r13, 104(%rdi); mov %r14, 112(%rdi); mov %r15, 120(%rdi)\n"
	"	.irp at,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
	"	mov -128+8*\\at(%rsp), %rax\n"
	"	mov %rax, 200+8*\\at(%rdi)\n"
	"	.endr\n"
	"	.irp at,0,1,2,3,4,5,6,7\n"
	"	mov 8+8*\\at(%rsp), %rax\n"
	"	mov %rax, 136+8*\\at(%rdi)\n"
	"	.endr\n"
	"	pushfq\n"
	"	popq 128(%rdi)\n"
	"	mov $7, %eax; xor %edx, %edx\n"
	"	xsave 384(%rdi)\n"
	"	ret\n"
	/* The handler of a CALL stub: above rsp lie the return address and the cookie. */
	"stub_thunk:\n"
	"	endbr64\n"
	"	pushfq\n"
	"	cld\n"
	"	push %rax; push %rcx; push %rdx; push %rsi; push %rdi\n"
	"	push %r8; push %r9; push %r10; push %r11; push %rbp\n"
	"	mov %rsp, %rbp\n"
	"	mov 96(%rbp), %rdi\n"
	"	lea 104(%rbp), %rsi\n"
	"	and $-16, %rsp\n"
	"	call stub_handler\n"
	"	mov %rbp, %rsp\n"
	"	pop %rbp; pop %r11; pop %r10; pop %r9; pop %r8\n"
	"	pop %rdi; pop %rsi; pop %rdx; pop %rcx; pop %rax\n"
	"	popfq\n"
	"	ret\n");

static uint64_t handled_cookie, handled_times, handled_above;
static bool handled_aligned;

/* `above`: the word that the stub's stack pointer stood at, below which it may not have written. */
__attribute__((target("general-regs-only"))) void stub_handler(uint64_t cookie, uint64_t *above)
{
	handled_cookie = cookie;
	handled_above = (uint64_t)above;
	handled_times++;
	handled_aligned = (uintptr_t)__builtin_frame_address(0) % 16 == 0;
}

static uint8_t *arena;

static int make_arena(void **unused)
{
	uint64_t near = (uint64_t)(uintptr_t)make_arena & ~0xfffffull;

	(void)unused;
	for (uint64_t at = near - (64u << 20); at > near - (1u << 30); at -= 16u << 20) {
		void *p = mmap((void *)at, ARENA, PROT_READ | PROT_WRITE | PROT_EXEC,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		if (p != MAP_FAILED) {
			arena = p;
			return 0;
		}
	}
	return -1;
}

static void *word(size_t at)
{
	return arena + at;
}

/* nopl 0(%rax,%rax); jmp *0(%rip); .quad stub_capture: five bytes that do nothing are displaced. */
static const uint8_t captured[] = {0x0f, 0x1f, 0x44, 0, 0, 0xff, 0x25, 0, 0, 0, 0};

static struct scry_x86_code the_code;
static struct scry_x86_window the_window;

static struct scry_stub stub_of(enum scry_hook_kind kind, bool by_slot)
{
	const uint64_t capture = (uint64_t)(uintptr_t)stub_capture;
	struct scry_stub stub = {.kind = kind,
				 .is_indirect = by_slot,
				 .at = (uint64_t)(uintptr_t)word(STUB),
				 .state_page = (uint64_t)(uintptr_t)word(STATE_PAGE),
				 .counter = (uint64_t)(uintptr_t)word(COUNTER),
				 .literal = (uint64_t)(uintptr_t)word(LITERAL),
				 .cookie = 0x7abcdef1,
				 .function = (uint64_t)(uintptr_t)word(FUNCTION)};

	memcpy(word(FUNCTION), captured, sizeof(captured));
	memcpy(word(FUNCTION + sizeof(captured)), &capture, 8);
	the_code = (struct scry_x86_code){.bytes = word(FUNCTION),
					  .address = stub.function,
					  .size = sizeof(captured),
					  .avail = sizeof(captured) + 8};
	assert_int_equal(scry_x86_window(&the_code, 5, 0, &the_window), SCRY_X86_OK);
	if (!by_slot) {
		stub.code = &the_code;
		stub.window = &the_window;
		stub.function = 0;
	}
	*(uint64_t *)word(STATE_PAGE) = 1;
	*(uint64_t *)word(COUNTER) = 0;
	*(uint64_t *)word(LITERAL) = (uint64_t)(uintptr_t)stub_thunk;
	handled_times = handled_cookie = 0;
	return stub;
}

static struct scry_stub_code emitted(const struct scry_stub *stub)
{
	struct scry_stub_code code;

	assert_int_equal(scry_stub_emit(stub, &code), SCRY_X86_OK);
	memcpy(word(STUB), code.bytes, code.size);
	return code;
}

static void fill(uint64_t seed)
{
	struct state zero = {0};

	stub_given = zero;
	for (int i = 0; i < 16; i++)
		stub_given.gpr[i] =
			seed * 0x9e3779b97f4a7c15ull + (uint64_t)i * 0x0101010101010101ull;
	for (int i = 0; i < 8; i++)
		stub_given.above[i] = seed + 0xabc0000000000000ull + (uint64_t)i;
	for (int i = 0; i < 16; i++)
		stub_given.below[i] = seed + 0xdef0000000000000ull + (uint64_t)i;
	stub_given.flags = FIXED;
}

/* x87 with two numbers on its stack, an unusual rounding of both units, all of ymm0-15. */
static void fill_vectors(void)
{
	uint32_t mxcsr = 0x7f80;				/* towards zero, all masked */
	uint16_t control = 0x0f7f, tag = 0xc0, status = 0x3000; /* top 6: st0, st1 in use */

	memcpy(stub_given.xsave + 0, &control, 2);
	memcpy(stub_given.xsave + 2, &status, 2);
	memcpy(stub_given.xsave + 4, &tag, 2);
	memcpy(stub_given.xsave + 24, &mxcsr, 4);
	for (int i = 0; i < 2; i++) {
		memcpy(stub_given.xsave + 32 + 16 * i, "\x11\x22\x33\x44\x55\x66\x77\x88\xff\x3f",
		       10);
		stub_given.xsave[32 + 16 * i] = (uint8_t)i;
	}
	for (int i = 0; i < 256; i++) {
		stub_given.xsave[160 + i] = (uint8_t)(i * 7 + 1); /* xmm */
		stub_given.xsave[576 + i] = (uint8_t)(i * 5 + 3); /* upper halves */
	}
	stub_given.xsave[512] = 7;
}

/* Runs by the stub at STUB; all that the function finds must be as given. */
static void assert_unseen(bool red_zone)
{
	memset(&stub_seen, 0, sizeof(stub_seen));
	stub_target = (uint64_t)(uintptr_t)word(STUB);
	stub_run();
	for (int i = 0; i < 16; i++)
		if (i != 4)
			assert_int_equal(stub_seen.gpr[i], stub_given.gpr[i]);
	assert_int_equal(stub_seen.gpr[4], stub_here);
	assert_int_equal(stub_seen.flags, stub_given.flags);
	assert_memory_equal(stub_seen.above, stub_given.above, sizeof(stub_given.above));
	if (red_zone)
		assert_memory_equal(stub_seen.below, stub_given.below, sizeof(stub_given.below));
	assert_memory_equal(stub_seen.xsave, stub_given.xsave, 5); /* x87 control, status */
	assert_memory_equal(stub_seen.xsave + 24, stub_given.xsave + 24, 4); /* mxcsr */
	if (!stub_given.xsave[512])
		return;
	assert_memory_equal(stub_seen.xsave + 32, stub_given.xsave + 32, 10);
	assert_memory_equal(stub_seen.xsave + 48, stub_given.xsave + 48, 10);
	assert_memory_equal(stub_seen.xsave + 160, stub_given.xsave + 160, 256);
	assert_memory_equal(stub_seen.xsave + 576, stub_given.xsave + 576, 256);
}

static void need_avx(void)
{
	if (!__builtin_cpu_supports("avx")) {
		print_message("# this processor has no AVX\n");
		skip();
	}
}

struct way {
	enum scry_hook_kind kind;
	bool by_slot, red_zone;
};
static const struct way ways[] = {
	{SCRY_HOOK_COUNT, false, false}, {SCRY_HOOK_COUNT, false, true},
	{SCRY_HOOK_COUNT, true, false},	 {SCRY_HOOK_COUNT, true, true},
	{SCRY_HOOK_CALL, false, false},	 {SCRY_HOOK_CALL, false, true},
	{SCRY_HOOK_CALL, true, false},	 {SCRY_HOOK_CALL, true, true},
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void run_way(const struct way *way)
{
	struct scry_stub stub = stub_of(way->kind, way->by_slot);
	uint64_t times = 0;

	stub.spares_red_zone = way->red_zone;
	emitted(&stub);
	/* each combination of CF PF AF ZF SF OF */
	for (uint64_t flags = FLAGS;; flags = (flags - 1) & FLAGS) {
		fill(times + 77);
		if (times % 3 == 0)
			fill_vectors();
		else
			memcpy(stub_given.xsave + 24, &(uint32_t){0x1f80}, 4);
		if (times % 3)
			memcpy(stub_given.xsave, "\x7f\x03", 2);
		if (times % 3)
			stub_given.xsave[512] = 0;
		stub_given.flags = FIXED | flags;
		assert_unseen(way->red_zone);
		times++;
		if (!flags)
			break;
	}
	assert_int_equal(times, 64);
	if (way->kind == SCRY_HOOK_COUNT) {
		assert_int_equal(*(uint64_t *)word(COUNTER), times);
		return;
	}
	assert_int_equal(handled_times, times);
	assert_int_equal(handled_cookie, 0x7abcdef1);
	assert_true(handled_aligned);
	/* cookie and return address lie below the stack, or below what was spared of it */
	assert_int_equal(handled_above, stub_here - (way->red_zone ? 128 : 0));
}

static void nothing_is_changed(void **unused)
{
	(void)unused;
	need_avx();
	for (size_t i = 0; i < WAYS; i++)
		run_way(&ways[i]);
}

static void a_closed_state_page_does_not_count(void **unused)
{
	struct scry_stub stub = stub_of(SCRY_HOOK_COUNT, false);

	(void)unused;
	emitted(&stub);
	*(uint64_t *)word(STATE_PAGE) = 0;
	fill(3);
	memcpy(stub_given.xsave + 24, &(uint32_t){0x1f80}, 4);
	memcpy(stub_given.xsave, "\x7f\x03", 2);
	stub_given.flags = FIXED | FLAGS;
	assert_unseen(false);
	assert_int_equal(*(uint64_t *)word(COUNTER), 0);
	*(uint64_t *)word(STATE_PAGE) = 1;
	assert_unseen(false);
	assert_int_equal(*(uint64_t *)word(COUNTER), 1);
}

/* As an assembler wrote them: state page, counter, literal at their places in the arena. */
static void bytes_are_exact(void **unused)
{
	/* entry: push %rax; lahf; seto %al; cmpb $0, state page; je; lock incq counter; add $127,
	 * %al; sahf; pop %rax; nopl; jmp FUNCTION + 5 */
	static const char count[] = "\x50\x9f\x0f\x90\xc0\x80\x3d\xf4\x3f\x00\x00\x00\x74\x08"
				    "\xf0\x48\xff\x05\x2a\x40\x00\x00\x04\x7f\x9e\x58"
				    "\x0f\x1f\x44\x00\x00\xe9\xe1\xcf\xff\xff";
	/* slot, the red zone spared: endbr64; lea -128(%rsp), %rsp; ...; jmp FUNCTION */
	static const char slot[] = "\xf3\x0f\x1e\xfa\x48\x8d\x64\x24\x80"
				   "\x50\x9f\x0f\x90\xc0\x80\x3d\xeb\x3f\x00\x00\x00\x74\x08"
				   "\xf0\x48\xff\x05\x21\x40\x00\x00\x04\x7f\x9e\x58"
				   "\x48\x8d\xa4\x24\x80\x00\x00\x00\xe9\xd0\xcf\xff\xff";
	/* push $cookie; call *literal; lea 8(%rsp), %rsp; nopl; jmp */
	static const char call[] = "\x68\xf1\xde\xbc\x7a\xff\x15\x75\x40\x00\x00\x48\x8d\x64\x24"
				   "\x08\x0f\x1f\x44\x00\x00\xe9\xeb\xcf\xff\xff";
	/* lea original, %r11; jmp *literal; nopl; jmp */
	static const char replace[] = "\x4c\x8d\x1d\x06\x00\x00\x00\xff\x25\x73\x40\x00\x00"
				      "\x0f\x1f\x44\x00\x00\xe9\xee\xcf\xff\xff";
	/* the same where rax is free */
	static const char free_rax[] = "\x9f\x0f\x90\xc0\x80\x3d\xf5\x3f\x00\x00\x00\x74\x08"
				       "\xf0\x48\xff\x05\x2b\x40\x00\x00\x04\x7f\x9e"
				       "\x0f\x1f\x44\x00\x00\xe9\xe3\xcf\xff\xff";
	struct scry_stub stub = stub_of(SCRY_HOOK_COUNT, false);
	struct scry_stub_code code = emitted(&stub);

	(void)unused;
	assert_int_equal(code.size, sizeof(count) - 1);
	assert_memory_equal(code.bytes, count, sizeof(count) - 1);
	assert_int_equal(code.copy_at, 26);
	stub.frees_rax = true;
	code = emitted(&stub);
	assert_int_equal(code.size, sizeof(free_rax) - 1);
	assert_memory_equal(code.bytes, free_rax, sizeof(free_rax) - 1);
	stub = stub_of(SCRY_HOOK_COUNT, true);
	stub.spares_red_zone = true;
	code = emitted(&stub);
	assert_int_equal(code.size, sizeof(slot) - 1);
	assert_memory_equal(code.bytes, slot, sizeof(slot) - 1);
	stub = stub_of(SCRY_HOOK_CALL, false);
	code = emitted(&stub);
	assert_int_equal(code.size, sizeof(call) - 1);
	assert_memory_equal(code.bytes, call, sizeof(call) - 1);
	stub = stub_of(SCRY_HOOK_REPLACE, false);
	code = emitted(&stub);
	assert_int_equal(code.size, sizeof(replace) - 1);
	assert_memory_equal(code.bytes, replace, sizeof(replace) - 1);
	assert_int_equal(code.copy_at, REPLACE_COPY);
}

/* The handler finds all as the function would, and in r11 where the original is. */
static void a_replacement_is_told_the_original(void **unused)
{
	(void)unused;
	for (int by_slot = 0; by_slot < 2; by_slot++) {
		struct scry_stub stub = stub_of(SCRY_HOOK_REPLACE, by_slot);

		emitted(&stub);
		*(uint64_t *)word(LITERAL) = (uint64_t)(uintptr_t)stub_capture;
		fill(5);
		memcpy(stub_given.xsave + 24, &(uint32_t){0x1f80}, 4);
		memcpy(stub_given.xsave, "\x7f\x03", 2);
		stub_given.gpr[11] = 1;
		stub_target = stub.at;
		stub_run();
		assert_int_not_equal(stub_seen.gpr[11], 1);
		stub_given.gpr[11] =
			(uint64_t)(uintptr_t)word(by_slot ? FUNCTION : STUB + REPLACE_COPY);
		assert_unseen(true);
	}
}

static void what_is_out_of_reach_is_refused(void **unused)
{
	struct scry_stub stub = stub_of(SCRY_HOOK_COUNT, true);
	struct scry_stub_code code;

	(void)unused;
	stub.counter = stub.at + (3ull << 30);
	assert_int_equal(scry_stub_emit(&stub, &code), SCRY_X86_REACH);
	stub = stub_of(SCRY_HOOK_CALL, true);
	stub.literal = stub.at - (3ull << 30);
	assert_int_equal(scry_stub_emit(&stub, &code), SCRY_X86_REACH);
	stub = stub_of(SCRY_HOOK_COUNT, true);
	stub.function = stub.at + (3ull << 30); /* a far jump */
	assert_int_equal(scry_stub_emit(&stub, &code), SCRY_X86_OK);
	assert_memory_equal(code.bytes + code.size - 14, "\xff\x25\0\0\0\0", 6);
}

/* Compiled functions, hooked at their own entry in this program's text. */

struct big {
	uint64_t words[9];
};
struct mixed {
	double d;
	int64_t i;
};

#define OPAQUE __attribute__((noinline, noclone, aligned(16)))
static volatile uint64_t sink;

OPAQUE static uint64_t ten(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
			   uint64_t g, uint64_t h, uint64_t i, uint64_t j)
{
	sink += a;
	return a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f + 13 * g + 17 * h + 19 * i + 23 * j;
}

OPAQUE static double floats(double a, double b, double c, double d, double e, double f, double g,
			    double h, double i, float j)
{
	sink++;
	return a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f + 13 * g + 17 * h + 19 * i + 23 * j;
}

OPAQUE static struct big returns_big(uint64_t seed, struct big in)
{
	sink++;
	for (uint64_t i = 0; i < 9; i++)
		in.words[i] = in.words[i] * 3 + seed;
	return in;
}

OPAQUE static struct mixed returns_mixed(double d, int64_t i)
{
	sink++;
	return (struct mixed){d * 2, i * 3};
}

OPAQUE static double varargs(int n, ...)
{
	double sum = 0;
	va_list ap;

	va_start(ap, n);
	for (int i = 0; i < n; i++)
		sum += i % 2 ? va_arg(ap, double) : (double)va_arg(ap, long);
	va_end(ap);
	return sum;
}

OPAQUE static long double x87(long double a, double b)
{
	sink++;
	return a * 3 + (long double)b;
}

OPAQUE __attribute__((target("avx"))) static __m256d vectors(__m256d a, __m256d b)
{
	sink++;
	return _mm256_add_pd(_mm256_mul_pd(a, b), b);
}

OPAQUE static int keeps_errno(int by)
{
	sink++;
	return errno + by;
}

static uint64_t (*volatile again)(uint64_t);
OPAQUE static uint64_t recursive(uint64_t n)
{
	return n ? n * 3 + again(n - 1) : 0;
}

OPAQUE static void jumps(jmp_buf *env, int value)
{
	sink++;
	longjmp(*env, value);
}

__attribute__((target("avx"))) static bool vectors_are_right(void)
{
	double out[4];

	_mm256_storeu_pd(out, vectors(_mm256_set_pd(1, 2, 3, 4), _mm256_set_pd(5, 6, 7, 8)));
	return out[0] == 40 && out[1] == 28 && out[2] == 18 && out[3] == 10;
}

static bool jumps_right(void)
{
	jmp_buf env;
	int r = setjmp(env);

	if (!r)
		jumps(&env, 42);
	return r == 42;
}

static bool big_is_right(void)
{
	struct big in = {{1, 2, 3, 4, 5, 6, 7, 8, 9}}, out = returns_big(100, in);

	for (uint64_t i = 0; i < 9; i++)
		if (out.words[i] != 3 * (i + 1) + 100)
			return false;
	return true;
}

static const char *all_are_right(void)
{
	struct mixed m = returns_mixed(1.5, -7);

	again = recursive;
	if (ten(1, 2, 3, 4, 5, 6, 7, 8, 9, 10) != 763)
		return "ten integers";
	if (floats(1, 2, 3, 4, 5, 6, 7, 8, 9, 10) != 763)
		return "ten floats";
	if (!big_is_right())
		return "a struct in memory";
	if (m.d != 3 || m.i != -21)
		return "a struct in two registers";
	if (varargs(8, 1l, 0.5, 2l, 0.25, 3l, 0.125, 4l, 1.0) != 11.875)
		return "variable arguments";
	if (x87(2.5L, 1.25) != 8.75L)
		return "long double";
	if (__builtin_cpu_supports("avx") && !vectors_are_right())
		return "256-bit vectors";
	errno = 77;
	if (keeps_errno(3) != 80 || errno != 77)
		return "errno";
	if (recursive(100) != 15150)
		return "recursion";
	return jumps_right() ? NULL : "longjmp";
}

#define FUNCTIONS 10
static uint8_t *const entries[FUNCTIONS] = {
	(uint8_t *)ten,	      (uint8_t *)floats, (uint8_t *)returns_big, (uint8_t *)returns_mixed,
	(uint8_t *)varargs,   (uint8_t *)x87,	 (uint8_t *)vectors,	 (uint8_t *)keeps_errno,
	(uint8_t *)recursive, (uint8_t *)jumps,
};

static void open_text(uint8_t *at, int prot)
{
	uint8_t *page = (uint8_t *)((uintptr_t)at & ~4095ul);

	assert_int_equal(mprotect(page, 8192, prot), 0);
}

/* Changes the entry of function `i` into a jump to a stub of `kind`; returns the window's start. */
static uint8_t *hook(int i, enum scry_hook_kind kind, uint8_t *saved)
{
	struct scry_x86_code code = {.bytes = entries[i],
				     .address = (uint64_t)(uintptr_t)entries[i],
				     .size = 64,
				     .avail = 64};
	struct scry_stub stub = stub_of(kind, false);
	struct scry_stub_code out;
	struct scry_x86_window window;
	uint8_t *at;

	assert_int_equal(scry_x86_window(&code, 5, 0, &window), SCRY_X86_OK);
	stub.at += (uint64_t)i * 512;
	stub.counter += 0x100 + (uint64_t)i * 8;
	stub.code = &code;
	stub.window = &window;
	assert_int_equal(scry_stub_emit(&stub, &out), SCRY_X86_OK);
	memcpy(word(STUB + (size_t)i * 512), out.bytes, out.size);
	at = entries[i] + window.endbr;
	memcpy(saved, at, 5);
	open_text(at, PROT_READ | PROT_WRITE | PROT_EXEC);
	assert_int_equal(scry_x86_jump((uint64_t)(uintptr_t)at, stub.at, at), 5);
	open_text(at, PROT_READ | PROT_EXEC);
	return at;
}

static void unhook(uint8_t *at, const uint8_t *saved)
{
	open_text(at, PROT_READ | PROT_WRITE | PROT_EXEC);
	memcpy(at, saved, 5);
	open_text(at, PROT_READ | PROT_EXEC);
}

static void compiled(enum scry_hook_kind kind)
{
	static const uint64_t calls[FUNCTIONS] = {1, 1, 1, 1, 1, 1, 1, 1, 101, 1};
	uint8_t *at[FUNCTIONS], saved[FUNCTIONS][5];
	const char *wrong;

	assert_null(all_are_right());
	memset(word(COUNTER), 0, 0x400);
	for (int i = 0; i < FUNCTIONS; i++)
		at[i] = hook(i, kind, saved[i]);
	wrong = all_are_right();
	for (int i = 0; i < FUNCTIONS; i++)
		unhook(at[i], saved[i]);
	if (wrong)
		fail_msg("%s", wrong);
	for (int i = 0; i < FUNCTIONS; i++)
		if (kind == SCRY_HOOK_COUNT &&
		    (entries[i] != (uint8_t *)vectors || __builtin_cpu_supports("avx")))
			assert_int_equal(*(uint64_t *)word(COUNTER + 0x100 + (size_t)i * 8),
					 calls[i]);
	if (kind == SCRY_HOOK_CALL)
		assert_int_equal(handled_times, 109 + (__builtin_cpu_supports("avx") ? 1 : 0));
	assert_null(all_are_right());
}

static void compiled_functions_counted(void **unused)
{
	(void)unused;
	compiled(SCRY_HOOK_COUNT);
}

static void compiled_functions_behind_a_handler(void **unused)
{
	(void)unused;
	compiled(SCRY_HOOK_CALL);
}

/* REPLACE: another function in its place, which calls the original by the copy. */
static uint64_t (*original)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			    uint64_t, uint64_t, uint64_t);

static uint64_t in_its_place(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
			     uint64_t g, uint64_t h, uint64_t i, uint64_t j)
{
	return 1000 + original(a + 1, b, c, d, e, f, g, h, i, j);
}

static void replaced(void **unused)
{
	uint8_t saved[5], *at = hook(0, SCRY_HOOK_REPLACE, saved);
	uint64_t got;

	(void)unused;
	*(uint64_t *)word(LITERAL) = (uint64_t)(uintptr_t)in_its_place;
	original = (uint64_t(*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
				uint64_t, uint64_t, uint64_t, uint64_t))word(STUB + REPLACE_COPY);
	got = ten(1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
	unhook(at, saved);
	assert_int_equal(got, 1764);
}

#define THREADS 4
#define CALLS 200000

static void *calls(void *unused)
{
	(void)unused;
	for (uint64_t i = 0; i < CALLS; i++)
		if (recursive(0) != 0)
			return (void *)1;
	return NULL;
}

static void no_count_is_lost_between_threads(void **unused)
{
	uint8_t saved[5], *at = hook(8, SCRY_HOOK_COUNT, saved);
	uint64_t *counter = word(COUNTER + 0x100 + 64);
	pthread_t threads[THREADS];
	void *wrong = NULL, *r;

	(void)unused;
	*counter = 0;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, calls, NULL), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &r);
		wrong = r ? r : wrong;
	}
	unhook(at, saved);
	assert_null(wrong);
	assert_int_equal(*counter, THREADS * CALLS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_changed),
		cmocka_unit_test(a_closed_state_page_does_not_count),
		cmocka_unit_test(bytes_are_exact),
		cmocka_unit_test(a_replacement_is_told_the_original),
		cmocka_unit_test(what_is_out_of_reach_is_refused),
		cmocka_unit_test(compiled_functions_counted),
		cmocka_unit_test(compiled_functions_behind_a_handler),
		cmocka_unit_test(replaced),
		cmocka_unit_test(no_count_is_lost_between_threads),
	};

	return cmocka_run_group_tests(tests, make_arena, NULL);
}
