/*
 * Fuzzer of sys/x86_move. With -fsanitize=fuzzer -DSCRY_LIBFUZZER: LLVMFuzzerTestOneInput. Else a
 * main: 300,000 inputs from a fixed seed, random bytes and prologues with some bytes changed.
 *
 * What is moved is decoded again, by rules of its own: the same mnemonics in the same order with
 * the same effective operands and targets. The input's bytes end where a page ends, so that a read
 * beyond them is a crash.
 */
#include "fuzz.h"

#include "sys/x86_move.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <Zydis/Zydis.h>

#define PAGE 4096u
#define ADDRESS 0x7f2012345678ull
#define AWAY 0x12340000

struct decoded {
	ZydisDecodedInstruction z;
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
	uint64_t target; /* of a relative branch or rip-relative operand; 0: none */
	bool is_relative;
};

static void decode(const uint8_t *bytes, size_t size, uint64_t address, struct decoded *ret)
{
	ZydisDecoder decoder;

	memset(ret, 0, sizeof(*ret));
	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	must(ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, bytes, size, &ret->z, ret->op)),
	     "an instruction that does not decode again");
	for (size_t i = 0; i < ret->z.operand_count; i++) {
		const ZydisDecodedOperand *op = &ret->op[i];

		if ((op->type == ZYDIS_OPERAND_TYPE_IMMEDIATE && op->imm.is_relative) ||
		    (op->type == ZYDIS_OPERAND_TYPE_MEMORY && op->mem.base == ZYDIS_REGISTER_RIP)) {
			must(ZYAN_SUCCESS(
				     ZydisCalcAbsoluteAddress(&ret->z, op, address, &ret->target)),
			     "an address");
			ret->is_relative = op->type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
		}
	}
}

struct moving {
	struct scry_x86_code code;
	struct scry_x86_window w;
	struct scry_x86_moved m;
	uint64_t to;
};

/* Where a branch of the original has to lead in the copy. */
static uint64_t expected_target(const struct moving *mv, const struct decoded *from)
{
	uint64_t start = mv->code.address + mv->w.endbr;

	if (from->z.mnemonic == ZYDIS_MNEMONIC_CALL || !from->is_relative)
		return from->target;
	if (from->target == mv->code.address)
		return mv->to;
	for (size_t i = 0; i < mv->w.count; i++)
		if (start + mv->w.at[i] == from->target)
			return mv->to + mv->m.at[i];
	must(from->target - start >= mv->w.bytes, "a branch into an instruction was taken");
	return from->target;
}

/* push imm32; movl imm32, 4(%rsp): the address pushed. */
static uint64_t pushed(const uint8_t *bytes)
{
	uint32_t low, high;

	must(bytes[0] == 0x68 && !memcmp(bytes + 5, "\xc7\x44\x24\x04", 4), "a push");
	memcpy(&low, bytes + 1, 4);
	memcpy(&high, bytes + 9, 4);
	return (uint64_t)high << 32 | low;
}

static bool is_loop(ZydisMnemonic m)
{
	return m == ZYDIS_MNEMONIC_LOOP || m == ZYDIS_MNEMONIC_LOOPE ||
	       m == ZYDIS_MNEMONIC_LOOPNE || m == ZYDIS_MNEMONIC_JRCXZ || m == ZYDIS_MNEMONIC_JECXZ;
}

/* The operands that are not addresses must be the same. */
static void same_operands(const struct decoded *a, const struct decoded *b)
{
	must(a->z.operand_count_visible == b->z.operand_count_visible, "operands");
	for (size_t i = 0; i < a->z.operand_count_visible; i++) {
		const ZydisDecodedOperand *x = &a->op[i], *y = &b->op[i];

		must(x->type == y->type && x->size == y->size, "an operand's type");
		if (x->type == ZYDIS_OPERAND_TYPE_REGISTER)
			must(x->reg.value == y->reg.value, "a register");
		else if (x->type == ZYDIS_OPERAND_TYPE_IMMEDIATE && !x->imm.is_relative)
			must(x->imm.value.u == y->imm.value.u, "an immediate");
		else if (x->type == ZYDIS_OPERAND_TYPE_MEMORY)
			must(x->mem.base == y->mem.base && x->mem.index == y->mem.index &&
				     x->mem.segment == y->mem.segment &&
				     x->mem.scale == y->mem.scale &&
				     (x->mem.base == ZYDIS_REGISTER_RIP ||
				      x->mem.disp.value == y->mem.disp.value),
			     "a memory operand");
	}
}

static void check_one(const struct moving *mv, size_t i)
{
	size_t at = mv->w.endbr + (size_t)mv->w.at[i], to = mv->m.at[i], end = mv->m.at[i + 1];
	struct decoded from, copy;

	decode(mv->code.bytes + at, mv->w.at[i + 1] - mv->w.at[i], mv->code.address + at, &from);
	if (from.z.mnemonic == ZYDIS_MNEMONIC_CALL) {
		must(pushed(mv->m.code + to) == mv->code.address + at + from.z.length, "return");
		must(i + 1u == mv->w.count, "a call before the end");
		to += 13;
	}
	decode(mv->m.code + to, end - to, mv->to + to, &copy);
	if (is_loop(from.z.mnemonic)) {
		struct decoded over, jump;
		size_t next = to + copy.z.length;

		must(copy.z.mnemonic == from.z.mnemonic, "another loop");
		decode(mv->m.code + next, end - next, mv->to + next, &over);
		decode(mv->m.code + next + 2, end - next - 2, mv->to + next + 2, &jump);
		must(over.z.length == 2 && over.target == mv->to + end, "over the jump");
		must(copy.target == mv->to + next + 2, "to the jump");
		must(jump.z.mnemonic == ZYDIS_MNEMONIC_JMP, "the jump");
		must(jump.target == expected_target(mv, &from), "the loop's target");
		return;
	}
	must(to + copy.z.length == end, "its length");
	must(copy.target == expected_target(mv, &from), "its target");
	if (from.z.mnemonic == ZYDIS_MNEMONIC_CALL) {
		must(copy.z.mnemonic == ZYDIS_MNEMONIC_JMP, "a call is a jump");
		return;
	}
	must(copy.z.mnemonic == from.z.mnemonic, "another mnemonic");
	if (!from.is_relative)
		same_operands(&from, &copy);
}

static void check(const struct moving *mv)
{
	size_t end = mv->m.at[mv->w.count];
	struct decoded back;

	must(mv->w.count <= SCRY_X86_COUNT_MAX && mv->m.bytes <= SCRY_X86_MOVED_MAX, "room");
	must(mv->w.at[mv->w.count] == mv->w.code && mv->w.code <= mv->w.bytes, "the offsets");
	must(mv->w.endbr + (size_t)mv->w.code <= mv->code.size, "beyond the function");
	must(mv->w.endbr + (size_t)mv->w.bytes <= mv->code.avail, "beyond the filler");
	for (size_t i = 0; i < mv->w.count; i++) {
		check_one(mv, i);
		must(scry_x86_to_copy(&mv->w, &mv->m, mv->w.at[i]) == mv->m.at[i], "to the copy");
		must(scry_x86_to_window(&mv->w, &mv->m, mv->m.at[i]) == mv->w.at[i], "to it");
	}
	if (mv->w.has & (SCRY_X86_ENDS | SCRY_X86_CALL)) {
		must(end == mv->m.bytes, "a jump back that is not needed");
		return;
	}
	decode(mv->m.code + end, mv->m.bytes - end, mv->to + end, &back);
	must(back.z.mnemonic == ZYDIS_MNEMONIC_JMP &&
		     back.target == mv->code.address + mv->w.endbr + mv->w.bytes,
	     "the jump back");
}

static unsigned long moved_count;

/* data: need, size of the filler, then the function. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t *pages;
	struct moving mv = {.to = ADDRESS + AWAY};
	struct scry_x86_place place = {.address = mv.to, .back = true};
	size_t filler, need;

	if (!pages) {
		pages = mmap(NULL, 2ul * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);
		must(pages != MAP_FAILED && !mprotect(pages + PAGE, PAGE, PROT_NONE), "pages");
	}
	if (size < 3 || size - 2 > PAGE)
		return 0;
	need = data[0] % 40u;
	filler = data[1] % (size - 2);
	mv.code = (struct scry_x86_code){.bytes = pages + PAGE - (size - 2),
					 .address = ADDRESS,
					 .size = size - 2 - filler,
					 .avail = size - 2};
	memcpy(pages + PAGE - (size - 2), data + 2, size - 2);
	if (scry_x86_window(&mv.code, need, data[0] & 0x80 ? SCRY_X86_JUMP_OK : 0, &mv.w))
		return 0;
	must(mv.w.bytes >= need, "a window that is too short");
	if (scry_x86_move(&mv.code, &mv.w, &place, &mv.m))
		return 0;
	check(&mv);
	moved_count++;
	return 0;
}

#ifndef SCRY_LIBFUZZER

#define ROUNDS 300000

static const char prologue[] = "\xf3\x0f\x1e\xfa\x55\x48\x89\xe5\x48\x83\xec\x10\x48\x8b\x05\x10"
			       "\0\0\0\x74\xf2\xe2\x08\xe8\x10\x20\0\0\xc5\xfa\x6f\x05\x10\0\0\0"
			       "\x80\x3d\x10\0\0\0\x5a\xff\x15\x10\0\0\0\xc3\x66\x90";

int main(void)
{
	uint8_t bytes[64];

	for (int i = 0; i < ROUNDS; i++) {
		size_t size = 3 + next_random(sizeof(bytes) - 3), from = next_random(48);

		for (size_t k = 0; k < size; k++)
			bytes[k] = (uint8_t)next_random(256);
		if (i % 4) {
			for (size_t k = 2; k < size && from + k < sizeof(prologue) + 1; k++)
				bytes[k] = (uint8_t)prologue[from + k - 2];
			bytes[2 + next_random((uint32_t)size - 2)] = (uint8_t)next_random(256);
			bytes[0] %= 16;
		}
		LLVMFuzzerTestOneInput(bytes, size);
	}
	must(moved_count > ROUNDS / 20, "too few of the inputs can be moved: nothing is tested");
	printf("1..1\nok 1 - x86_move: %d functions, %lu moved and decoded again\n", ROUNDS,
	       moved_count);
	return 0;
}

#endif
