/* See errno_home.h. */
#include "sys/errno_home.h"

#include <Zydis/Zydis.h>

#define CODE_BYTES 48u
#define HOME_MAX (1 << 24) /* bytes from the thread pointer; static TLS is less */

struct sum { /* that rax is */
	int64_t offset;
	int threads; /* times the thread pointer in it */
};

static bool is_thread_pointer(const ZydisDecodedOperand *op)
{
	return op->type == ZYDIS_OPERAND_TYPE_MEMORY && op->mem.segment == ZYDIS_REGISTER_FS &&
	       op->mem.base == ZYDIS_REGISTER_NONE && op->mem.index == ZYDIS_REGISTER_NONE &&
	       !op->mem.disp.value;
}

/* Adds what an operand holds. */
static bool add(const struct scry_mem *mem, const ZydisDecodedOperand *op, uint64_t next,
		struct sum *sum)
{
	uint64_t word = 0;

	if (op->type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
		sum->offset += op->imm.value.s;
	} else if (is_thread_pointer(op)) {
		sum->threads++;
	} else if (op->type == ZYDIS_OPERAND_TYPE_MEMORY && op->mem.base == ZYDIS_REGISTER_RIP &&
		   op->mem.segment != ZYDIS_REGISTER_FS) {
		if (scry_mem_u64(mem, next + (uint64_t)op->mem.disp.value, &word))
			return false;
		sum->offset += (int64_t)word;
	} else {
		return false;
	}
	return true;
}

bool scry_errno_home(const struct scry_mem *mem, uint64_t errno_location, int64_t *ret)
{
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn = {0};
	ZydisDecoder decoder;
	uint8_t code[CODE_BYTES];
	ssize_t have = scry_mem_read_some(mem, errno_location, code, sizeof(code));
	struct sum sum = {0};
	bool is_set = false;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (ssize_t at = 0; at < have; at += insn.length) {
		bool is_mov, is_add;

		if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, code + at, (size_t)(have - at),
							 &insn, op)))
			return false;
		if (insn.mnemonic == ZYDIS_MNEMONIC_ENDBR64 || insn.mnemonic == ZYDIS_MNEMONIC_NOP)
			continue;
		if (insn.mnemonic == ZYDIS_MNEMONIC_RET)
			break;
		is_mov = insn.mnemonic == ZYDIS_MNEMONIC_MOV;
		is_add = insn.mnemonic == ZYDIS_MNEMONIC_ADD;
		if ((!is_mov && !is_add) || is_mov == is_set ||
		    op[0].type != ZYDIS_OPERAND_TYPE_REGISTER ||
		    op[0].reg.value != ZYDIS_REGISTER_RAX ||
		    !add(mem, &op[1], errno_location + (uint64_t)at + insn.length, &sum))
			return false;
		is_set = true;
	}
	if (insn.mnemonic != ZYDIS_MNEMONIC_RET || sum.threads != 1 || sum.offset <= -HOME_MAX ||
	    sum.offset >= HOME_MAX || !sum.offset)
		return false;
	*ret = sum.offset;
	return true;
}
