/*
 * The agent's handler and return path, run in this process: what a stub would do is done by hand.
 */
#include "agent/calls.h"
#include "agent/code.h"
#include "agent/vm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

void scry_agent_entered(uint64_t *slot, uint64_t cookie);
void scry_agent_returned(uint64_t *slot);
const void *scry_agent_unwound(uint64_t pc, uint64_t *bases,
			       const void *(*original)(uint64_t, uint64_t *));
void scry_agent_timed(void), scry_agent_return(void);

#define THUNKS_BYTES (SCRY_SHADOW_THUNKS * SCRY_SHADOW_THUNK_BYTES)
#define HOOKS 8

struct scry_agent_vm scry_agent_vm; /* in the agent: code.c */
int scry_child_buffer_claim(
	struct scry_state_page *g,
	void (*moved)(struct scry_state_page *g)) /* in the agent: child_buffer.c */
{
	(void)moved;
	(void)g;
	return 0;
}

/* In the agent: define.c. Code is told by its address. */
int scry_code_read(const struct scry_agent_place *place, struct scry_agent_code *ret, uint8_t *text)
{
	(void)text;
	*ret = (struct scry_agent_code){.start = place->pc, .path_size = place->iseq ? 8 : 0};
	return 1;
}

void scry_code_at(const struct scry_agent_code *code, uint64_t pc, struct scry_ring_def *def)
{
	(void)pc;
	def->path_size = code->path_size;
}

static struct scry_state_page state_page;
static struct scry_control control;
static struct scry_shadow_stats stats[HOOKS];
static struct scry_shadow *const shadow = &scry_agent_shadow;

/* Room within reach of the return path's code. */
static uint8_t *map_near(void)
{
	uintptr_t near = (uintptr_t)scry_agent_return & ~(uintptr_t)0xfffff;
	void *p = MAP_FAILED;

	for (uintptr_t away = 1; away < 900 && p == MAP_FAILED; away++)
		p = mmap((void *)(near + (away << 20)), THUNKS_BYTES, /* NOLINT */
			 PROT_READ | PROT_WRITE | PROT_EXEC,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static int set_up(void **state)
{
	static uint8_t *thunks;

	(void)state;
	thunks = thunks ? thunks : map_near();
	for (uint32_t i = 0; i < SCRY_SHADOW_THUNKS; i++) {
		uint8_t *code = thunks + i * SCRY_SHADOW_THUNK_BYTES;
		int32_t rel = (int32_t)((intptr_t)scry_agent_return - (intptr_t)(code + 10));

		code[0] = 0x68;
		memcpy(code + 1, &i, 4);
		code[5] = 0xe9;
		memcpy(code + 6, &rel, 4);
	}
	memset(shadow, 0, sizeof(*shadow));
	memset(stats, 0, sizeof(stats));
	state_page = (struct scry_state_page){.open = 1};
	control.lease_tsc = UINT64_MAX;
	scry_agent.state_page = &state_page;
	scry_agent.control = &control;
	scry_agent.following = (struct scry_agent_following){.thunks = (uint64_t)(uintptr_t)thunks,
							     .on = SCRY_SHADOW_ON};
	shadow->head = (struct scry_shadow_head){.stats = (uint64_t)(uintptr_t)stats,
						 .hooks = HOOKS,
						 .code[0] = {1, {{4096, 1ull << 47}}}};
	return 0;
}

static uint64_t returned(int hook)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < SCRY_SHADOW_STEPS; i++)
		n += stats[hook].histogram[i];
	return n;
}

static size_t entries(void)
{
	size_t n = 0;

	for (size_t b = 0; b < SCRY_SHADOW_BUCKETS; b++)
		for (size_t i = 0; i < SCRY_SHADOW_WAYS; i++)
			n += shadow->entries[b][i].key != 0;
	return n;
}

struct registers {
	uint64_t in[9], out[9]; /* rax rcx rdx rsi rdi r8 r9 r10 r11 */
	uint64_t flags_in, flags_out, inside_flags;
	uint64_t inside[9];
	double vector_in, vector_out;
};

/*
 * Calls a function whose stub calls the handler, with every register and flag set before; keeps
 * what the function finds, and what is found after its return. `stub` does as hook/stub's CALL.
 */
void shadow_probe(struct registers *r);
__asm__(".text\n"
	".macro load from\n"
	"	mov 8+\\from(%rbx), %rcx\n	mov 16+\\from(%rbx), %rdx\n"
	"	mov 24+\\from(%rbx), %rsi\n	mov 32+\\from(%rbx), %rdi\n"
	"	mov 40+\\from(%rbx), %r8\n	mov 48+\\from(%rbx), %r9\n"
	"	mov 56+\\from(%rbx), %r10\n	mov 64+\\from(%rbx), %r11\n"
	"	mov \\from(%rbx), %rax\n"
	".endm\n"
	".macro store to\n"
	"	mov %rax, \\to(%rbx)\n	mov %rcx, 8+\\to(%rbx)\n	mov %rdx, 16+\\to(%rbx)\n"
	"	mov %rsi, 24+\\to(%rbx)\n	mov %rdi, 32+\\to(%rbx)\n"
	"	mov %r8, 40+\\to(%rbx)\n	mov %r9, 48+\\to(%rbx)\n"
	"	mov %r10, 56+\\to(%rbx)\n	mov %r11, 64+\\to(%rbx)\n"
	".endm\n"
	"shadow_stub:\n"
	"	push $3\n"
	"	call scry_agent_timed\n"
	"	lea 8(%rsp), %rsp\n"
	"	store 168\n" /* inside */
	"	pushf\n	pop 160(%rbx)\n"
	"	movsd 240(%rbx), %xmm0\n"
	"	load 0\n"
	"	push 144(%rbx)\n	popf\n"
	"	ret\n"
	".globl shadow_probe\n"
	"shadow_probe:\n"
	"	push %rbx\n"
	"	mov %rdi, %rbx\n"
	"	load 0\n"
	"	push 144(%rbx)\n	popf\n"
	"	call shadow_stub\n"
	"	pushf\n	pop 152(%rbx)\n"
	"	store 72\n"
	"	movsd %xmm0, 248(%rbx)\n"
	"	pop %rbx\n"
	"	ret\n");
_Static_assert(offsetof(struct registers, flags_in) == 144, "the assembly's");
_Static_assert(offsetof(struct registers, inside_flags) == 160, "the assembly's");
_Static_assert(offsetof(struct registers, inside) == 168, "the assembly's");
_Static_assert(offsetof(struct registers, vector_in) == 240, "the assembly's");

#define FLAGS 0x8d5u /* CF PF AF ZF SF OF */

static void registers_and_flags(void **state)
{
	static const uint64_t flags[] = {0x202, 0x202 | FLAGS, 0x202 | 0x801, 0x202 | 0x40};

	(void)state;
	for (size_t f = 0; f < sizeof(flags) / sizeof(*flags); f++) {
		struct registers r = {.flags_in = flags[f], .vector_in = 2.5 + (double)f};

		for (uint64_t i = 0; i < 9; i++)
			r.in[i] = 0x1111111111111111ull * (i + 1) + f;
		shadow_probe(&r);
		assert_memory_equal(r.in, r.inside, sizeof(r.in));
		assert_memory_equal(r.in, r.out, sizeof(r.in));
		assert_int_equal(r.inside_flags & FLAGS, flags[f] & FLAGS);
		assert_int_equal(r.flags_out & FLAGS, flags[f] & FLAGS);
		assert_true(r.vector_out == r.vector_in);
		assert_int_equal(returned(3), f + 1);
	}
	assert_int_equal(entries(), 0);
	assert_int_equal(shadow->head.orphans, 0);
	assert_true(stats[3].max_tsc > 0 && stats[3].total_tsc >= stats[3].max_tsc);
}

static bool is_thunk(uint64_t word)
{
	return word - scry_agent.following.thunks < THUNKS_BYTES;
}

/* What the thunk's push does, then the handler. Where it goes. */
static uint64_t come_back(uint64_t *slot)
{
	assert_true(is_thunk(*slot));
	*slot = (*slot - scry_agent.following.thunks) / SCRY_SHADOW_THUNK_BYTES;
	scry_agent_returned(slot);
	return *slot;
}

static uint8_t code[64]; /* return addresses lead here; no restorer */
#define ORIGINAL(n) ((uint64_t)(uintptr_t)&code[n])

/* Code that is entered by a jump may have anything on top of its stack. */
static void what_is_no_code(void **state)
{
	const uint64_t words[] = {0, 1, 4096, ORIGINAL(0) - 1, ORIGINAL(64), ~0ull};

	(void)state;
	shadow->head.code[0].ranges[0] = (struct scry_shadow_range){4096 * 2, 4096 * 3};
	shadow->head.code[0].ranges[1] = (struct scry_shadow_range){ORIGINAL(0), ORIGINAL(64)};
	shadow->head.code[0].count = 2;
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		uint64_t slot = words[i];

		scry_agent_entered(&slot, 1);
		assert_true(slot == words[i]);
		assert_int_equal(stats[1].missed, i + 1);
	}
	assert_int_equal(entries(), 0);
	for (uint64_t i = 0; i < 2; i++) {
		uint64_t slot = ORIGINAL(i * 8);

		scry_agent_entered(&slot, 1);
		assert_int_equal(come_back(&slot), ORIGINAL(i * 8));
	}
	assert_int_equal(returned(1), 2);
}

static void same_slot(void **state)
{
	uint64_t slot = ORIGINAL(0);

	(void)state;
	scry_agent_entered(&slot, 1); /* left by a jump */
	assert_true(is_thunk(slot));
	slot = ORIGINAL(1);
	scry_agent_entered(&slot, 2);
	assert_int_equal(stats[1].left, 1);
	scry_agent_entered(&slot, 3); /* a tail call of 2 */
	assert_int_equal(stats[2].left, 0);
	assert_int_equal(entries(), 2);
	assert_int_equal(come_back(&slot), ORIGINAL(1));
	assert_int_equal(returned(1), 0);
	assert_int_equal(returned(2), 1);
	assert_int_equal(returned(3), 1);
	assert_int_equal(entries(), 0);
}

static void red_zone(void **state)
{
	uint64_t words[18] = {[16] = ORIGINAL(2)};

	(void)state;
	scry_agent_entered(words, 1 | SCRY_SHADOW_RED_ZONE);
	assert_true(is_thunk(words[16]) && words[0] == 0);
	assert_int_equal(come_back(&words[16]), ORIGINAL(2));
}

/* More slots than a bucket has room for: the rest are left alone and counted. */
static void full_bucket(void **state)
{
	static uint64_t slots[SCRY_SHADOW_BUCKETS * 8];
	uint32_t bucket = scry_shadow_bucket((uintptr_t)&slots[0]);
	uint64_t *same[16];
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(slots) / 8 && n < 6; i++)
		if (scry_shadow_bucket((uintptr_t)&slots[i]) == bucket)
			same[n++] = &slots[i];
	assert_int_equal(n, 6);
	for (size_t i = 0; i < n; i++) {
		*same[i] = ORIGINAL(i);
		scry_agent_entered(same[i], 1);
	}
	assert_int_equal(stats[1].missed, n - SCRY_SHADOW_WAYS);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(is_thunk(*same[i]) ? come_back(same[i]) : *same[i], ORIGINAL(i));
	assert_int_equal(returned(1), SCRY_SHADOW_WAYS);
}

static void state_page_lease_and_off(void **state)
{
	uint64_t slot = ORIGINAL(0), pending = ORIGINAL(3);

	(void)state;
	scry_agent_entered(&pending, 1);
	state_page.open = 0; /* a fork child */
	scry_agent_entered(&slot, 1);
	assert_int_equal(slot, ORIGINAL(0));
	assert_int_equal(come_back(&pending), ORIGINAL(3)); /* goes home, and is not counted */
	assert_int_equal(returned(1), 0);
	state_page.open = 1;
	control.lease_tsc = 0; /* seen by the first one after it */
	scry_agent_entered(&slot, 1);
	assert_int_equal(come_back(&slot), ORIGINAL(0));
	assert_int_equal(scry_agent.following.on, SCRY_SHADOW_PAUSED);
	scry_agent_entered(&slot, 1);
	assert_int_equal(slot, ORIGINAL(0));
	assert_int_equal(stats[1].missed, 1);
	control.lease_tsc = UINT64_MAX;
	scry_agent_entered(&slot, 1);
	assert_int_equal(scry_agent.following.on, SCRY_SHADOW_ON);
	assert_int_equal(come_back(&slot), ORIGINAL(0));
	scry_agent.following.on = SCRY_SHADOW_OFF;
	scry_agent_entered(&slot, 1);
	assert_int_equal(slot, ORIGINAL(0));
	assert_int_equal(stats[1].missed, 1);
}

/* A return without an entry, as after a copy of the stack: it goes home all the same, twice. */
static void without_entry(void **state)
{
	uint64_t slot = ORIGINAL(5), copy;

	(void)state;
	scry_agent_entered(&slot, 1);
	copy = slot;
	assert_int_equal(come_back(&slot), ORIGINAL(5));
	slot = copy;
	assert_int_equal(come_back(&slot), ORIGINAL(5));
	assert_int_equal(shadow->head.orphans, 1);
	assert_int_equal(returned(1), 1);
}

static void restorer(void **state)
{
	static const uint8_t sigreturn[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
	uint64_t slot = (uint64_t)(uintptr_t)sigreturn;

	(void)state;
	scry_agent_entered(&slot, 1);
	assert_int_equal(slot, (uint64_t)(uintptr_t)sigreturn);
	assert_int_equal(stats[1].missed, 1);
	slot = 0;
	scry_agent_entered(&slot, 1);
	assert_int_equal(slot, 0);
	assert_int_equal(entries(), 0);
}

static uint64_t asked_pc;

static const void *find_fde(uint64_t pc, uint64_t *bases)
{
	asked_pc = pc;
	return bases;
}

static void unwinder(void **state)
{
	uint64_t slot = ORIGINAL(7), context[4]; /* cfa ra lsda bases */

	(void)state;
	scry_agent_entered(&slot, 1);
	context[1] = slot;
	assert_ptr_equal(scry_agent_unwound(slot - 1, &context[3], find_fde), &context[3]);
	assert_int_equal(asked_pc, ORIGINAL(7) - 1);
	assert_int_equal(context[1], ORIGINAL(7));
	context[1] = slot; /* above a signal frame */
	scry_agent_unwound(slot, &context[3], find_fde);
	assert_int_equal(asked_pc, ORIGINAL(7));
	context[1] = 1; /* not what is asked for: nothing is touched */
	scry_agent_unwound(slot - 1, &context[3], find_fde);
	assert_int_equal(asked_pc, slot - 1);
	assert_int_equal(context[1], 1);
	context[1] = ORIGINAL(9);
	scry_agent_unwound(ORIGINAL(9) - 1, &context[3], find_fde);
	assert_int_equal(asked_pc, ORIGINAL(9) - 1);
	assert_int_equal(context[1], ORIGINAL(9));
}

static void steps(void **state)
{
	(void)state;
	for (uint32_t i = 0; i + 1 < SCRY_SHADOW_STEPS; i++) {
		uint64_t begin = scry_shadow_step_begin(i), next = scry_shadow_step_begin(i + 1);

		assert_true(next > begin);
		assert_int_equal(scry_shadow_step(begin), i);
		assert_int_equal(scry_shadow_step(next - 1), i);
	}
	assert_int_equal(scry_shadow_step(UINT64_MAX), SCRY_SHADOW_STEPS - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(registers_and_flags, set_up),
		cmocka_unit_test_setup(what_is_no_code, set_up),
		cmocka_unit_test_setup(same_slot, set_up),
		cmocka_unit_test_setup(red_zone, set_up),
		cmocka_unit_test_setup(full_bucket, set_up),
		cmocka_unit_test_setup(state_page_lease_and_off, set_up),
		cmocka_unit_test_setup(without_entry, set_up),
		cmocka_unit_test_setup(restorer, set_up),
		cmocka_unit_test_setup(unwinder, set_up),
		cmocka_unit_test(steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
