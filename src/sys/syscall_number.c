/* See syscall_number.h. */
#include "sys/syscall_number.h"

#include <Zydis/Zydis.h>

#include "base/err.h"
#include "sys/text_share.h"

#define SYSCALL_BYTES 2u

struct value { /* of a register on the straight way through a function */
	enum { UNKNOWN, NUMBER, ARGUMENT } kind;
	uint64_t from; /* link-time address of the instruction that has set it */
	uint32_t number;
};

struct function {
	uint64_t start, size;
	uint8_t bytes[65536];
};

struct reading {
	ZydisDecoder decoder;
	ZydisDecodedInstruction insn;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	struct value ax, di;
	bool has_moved_stack, has_called;
};

static ZydisRegister whole(ZydisRegister reg)
{
	return ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
}

static bool writes(const struct reading *r, ZydisRegister reg)
{
	for (int i = 0; i < r->insn.operand_count; i++)
		if (r->operands[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    r->operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE &&
		    whole(r->operands[i].reg.value) == reg)
			return true;
	return false;
}

/* What the instruction at `address` has put into a register that it writes. */
static struct value set(const struct reading *r, uint64_t address, ZydisRegister reg)
{
	const ZydisDecodedOperand *to = &r->operands[0], *from = &r->operands[1];
	struct value v = {.kind = UNKNOWN, .from = address};

	if (to->type != ZYDIS_OPERAND_TYPE_REGISTER || to->size < 32 || whole(to->reg.value) != reg)
		return v;
	if (r->insn.mnemonic == ZYDIS_MNEMONIC_MOV && from->type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
		v.kind = NUMBER;
		v.number = (uint32_t)from->imm.value.u;
	} else if (r->insn.mnemonic == ZYDIS_MNEMONIC_MOV &&
		   from->type == ZYDIS_OPERAND_TYPE_REGISTER &&
		   whole(from->reg.value) == ZYDIS_REGISTER_RDI && r->di.kind == ARGUMENT) {
		v = r->di;
	} else if (r->insn.mnemonic == ZYDIS_MNEMONIC_XOR &&
		   from->type == ZYDIS_OPERAND_TYPE_REGISTER && from->reg.value == to->reg.value) {
		v.kind = NUMBER;
	}
	return v;
}

static void step(struct reading *r, uint64_t address)
{
	const bool is_call = r->insn.meta.category == ZYDIS_CATEGORY_CALL;
	const bool is_end = r->insn.meta.category == ZYDIS_CATEGORY_UNCOND_BR ||
			    r->insn.meta.category == ZYDIS_CATEGORY_RET;
	const bool sets_ax = writes(r, ZYDIS_REGISTER_RAX), sets_di = writes(r, ZYDIS_REGISTER_RDI);
	const struct value ax = set(r, address, ZYDIS_REGISTER_RAX);
	const struct value di = set(r, address, ZYDIS_REGISTER_RDI);

	r->has_called |= is_call;
	r->has_moved_stack |= is_call ? false : writes(r, ZYDIS_REGISTER_RSP);
	if (sets_ax)
		r->ax = ax;
	if (sets_di)
		r->di = di;
	if (is_call || is_end) /* behind it others lead */
		r->ax = r->di = (struct value){.kind = UNKNOWN};
}

/* The function that has the instruction before `at`. The unwind table of one that begins a stack of
 * its own (clone3) ends right before its system call. */
static bool find_function(struct scry_elf *elf, struct scry_text *text, uint64_t at,
			  struct function *ret)
{
	const struct scry_text_range *range = scry_text_at(text, at - 1);

	if (!range)
		range = scry_text_at(text, at - SYSCALL_BYTES - 1);
	if (!range || at - range->start > sizeof(ret->bytes))
		return false;
	ret->start = range->start;
	ret->size = at - range->start;
	return scry_elf_read(elf, ret->start, ret->bytes, ret->size) == 0;
}

/* Reads the function that has the instruction before `at`, up to and with that one, which is in
 * r->insn then; `*ret_at` is where it begins. */
static bool read_to(struct reading *r, struct scry_elf *elf, struct scry_text *text, uint64_t at,
		    uint64_t *ret_at)
{
	static struct function f;
	uint64_t offset = 0;

	if (!find_function(elf, text, at, &f))
		return false;
	*r = (struct reading){.di = {.kind = ARGUMENT, .from = f.start}};
	ZydisDecoderInit(&r->decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	while (offset < f.size && f.start + offset < at) {
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&r->decoder, f.bytes + offset,
							 f.size - offset, &r->insn, r->operands)))
			return false;
		if (f.start + offset + r->insn.length == at) {
			*ret_at = f.start + offset;
			return true;
		}
		step(r, f.start + offset);
		offset += r->insn.length;
	}
	return false;
}

/* Nothing leads to where it would be another. */
static bool holds(struct scry_text *text, const struct value *v, uint64_t at)
{
	return v->kind != UNKNOWN &&
	       scry_text_enters(text, v->from, at, &(struct scry_transfers){NULL, 0}) == 0;
}

static struct scry_text *open_text(struct scry_elf *elf)
{
	struct scry_text *text = NULL;

	if (!elf || scry_text_share(elf, &text) < 0)
		scry_error_clear();
	return text;
}

struct scry_syscall_number scry_syscall_number(const struct scry_syscall_code *at)
{
	struct scry_syscall_number n = {.code = at->elf ? SCRY_SYSCALL_CODE_UNCLEAR
							: SCRY_SYSCALL_CODE_UNREAD};
	struct scry_text *text = open_text(at->elf);
	struct reading r;
	uint64_t address;

	if (text && read_to(&r, at->elf, text, at->address, &address)) {
		n.code =
			r.insn.mnemonic == ZYDIS_MNEMONIC_SYSCALL ? SCRY_SYSCALL_CODE_64
			: r.insn.mnemonic == ZYDIS_MNEMONIC_INT && r.operands[0].imm.value.u == 0x80
				? SCRY_SYSCALL_CODE_32
				: SCRY_SYSCALL_CODE_OTHER;
		if (n.code >= SCRY_SYSCALL_CODE_64 && holds(text, &r.ax, at->address)) {
			n.is_known = r.ax.kind == NUMBER;
			n.from = r.ax.from;
			n.number = r.ax.number;
			n.is_behind_call = r.has_called;
			n.is_argument = r.ax.kind == ARGUMENT && !r.has_moved_stack;
		}
	}
	scry_text_free(text);
	return n;
}

/* Does this call lead to that function, by name? By the slot of a call through memory, or of the
 * stub that it calls; or it is in the object itself. */
static bool leads_to(struct scry_text *text, struct scry_elf *elf, const struct reading *r,
		     uint64_t address, const char *callee)
{
	const struct scry_text_range *range;
	struct scry_x86_code code;
	struct reading stub = {.insn.length = 0};
	uint64_t slot, target, at;
	struct scry_sym sym;
	bool has_slot = scry_elf_got_slot(elf, callee, &slot) == 0;

	scry_error_clear();
	if (!ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&r->insn, &r->operands[0], address, &target)))
		return false;
	if (r->operands[0].type == ZYDIS_OPERAND_TYPE_MEMORY)
		return has_slot && target == slot;
	if (scry_elf_symbol(elf, callee, &sym) == 0 && sym.value == target)
		return true;
	range = has_slot ? scry_text_at(text, target) : NULL;
	if (!range)
		return false;
	scry_text_bytes(text, range, &code);
	ZydisDecoderInit(&stub.decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (at = target - range->start; at < code.size; at += stub.insn.length) {
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&stub.decoder, code.bytes + at,
							 code.size - at, &stub.insn,
							 stub.operands)))
			return false;
		if (stub.insn.mnemonic != ZYDIS_MNEMONIC_ENDBR64)
			break;
	}
	return at < code.size && stub.insn.mnemonic == ZYDIS_MNEMONIC_JMP &&
	       stub.operands[0].type == ZYDIS_OPERAND_TYPE_MEMORY &&
	       ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&stub.insn, &stub.operands[0],
						     range->start + at, &target)) &&
	       target == slot;
}

bool scry_syscall_number_passed(const struct scry_syscall_code *at, const char *callee,
				uint32_t *ret)
{
	struct scry_text *text = open_text(at->elf);
	struct reading r;
	uint64_t address;
	bool is_known = text && read_to(&r, at->elf, text, at->address, &address) &&
			r.insn.mnemonic == ZYDIS_MNEMONIC_CALL && r.di.kind == NUMBER &&
			holds(text, &r.di, at->address) &&
			leads_to(text, at->elf, &r, address, callee);

	if (is_known)
		*ret = r.di.number;
	scry_text_free(text);
	return is_known;
}
