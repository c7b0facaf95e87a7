/* See syscall_number.h. */
#include "sys/syscall_number.h"

#include <Zydis/Zydis.h>
#include <string.h>

#include "base/err.h"
#include "sys/text_share.h"

#define SYSCALL_BYTES 2u
#define WORD 8

/* What is followed: the registers of arguments, the word at the stack pointer, and the number's. */
enum { PUSHED = SCRY_SYSCALL_PUSHED, AX, FOLLOWED };
static const ZydisRegister followed[FOLLOWED] = {
	ZYDIS_REGISTER_RDI, ZYDIS_REGISTER_RSI, ZYDIS_REGISTER_RDX,  ZYDIS_REGISTER_RCX,
	ZYDIS_REGISTER_R8,  ZYDIS_REGISTER_R9,	ZYDIS_REGISTER_NONE, ZYDIS_REGISTER_RAX};

struct value { /* of a register, or that word, on the straight way through a function */
	enum { UNKNOWN, NUMBER, ARGUMENT, ON_STACK } kind;
	uint64_t from; /* link-time address of the instruction that has set it */
	uint32_t number;
	unsigned int argument;
	int64_t above; /* ON_STACK: bytes above the stack pointer as it is now */
};

struct function {
	uint64_t start, size;
	uint8_t bytes[65536];
};

struct reading {
	ZydisDecoder decoder;
	ZydisDecodedInstruction insn;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	struct value values[FOLLOWED];
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

/* A word at a fixed distance from the stack pointer. */
static bool is_stack(const ZydisDecodedOperand *o)
{
	return o->type == ZYDIS_OPERAND_TYPE_MEMORY && o->mem.base == ZYDIS_REGISTER_RSP &&
	       o->mem.index == ZYDIS_REGISTER_NONE && o->mem.segment == ZYDIS_REGISTER_SS;
}

/* What an operand that the instruction at `address` reads holds before it. */
static struct value read_operand(const struct reading *r, const ZydisDecodedOperand *o,
				 uint64_t address)
{
	struct value v = {.kind = UNKNOWN, .from = address};

	if (o->type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
		v.kind = NUMBER;
		v.number = (uint32_t)o->imm.value.u;
	} else if (is_stack(o) && o->mem.disp.value >= 0) {
		v.kind = ON_STACK;
		v.above = o->mem.disp.value;
	} else if (o->type == ZYDIS_OPERAND_TYPE_REGISTER && o->size >= 32) {
		for (int i = 0; i < FOLLOWED; i++)
			if (i != PUSHED && whole(o->reg.value) == followed[i])
				return r->values[i];
	}
	return v;
}

/* What the instruction at `address` has put into a register that it writes. */
static struct value set(const struct reading *r, uint64_t address, ZydisRegister reg)
{
	const ZydisDecodedOperand *to = &r->operands[0], *from = &r->operands[1];
	struct value v = {.kind = UNKNOWN, .from = address};

	if (to->type != ZYDIS_OPERAND_TYPE_REGISTER || to->size < 32 || whole(to->reg.value) != reg)
		return v;
	if (r->insn.mnemonic == ZYDIS_MNEMONIC_MOV)
		return read_operand(r, from, address);
	if (r->insn.mnemonic == ZYDIS_MNEMONIC_XOR && from->type == ZYDIS_OPERAND_TYPE_REGISTER &&
	    from->reg.value == to->reg.value)
		v.kind = NUMBER;
	return v;
}

/* By how much the instruction lowers the stack pointer; false: it is somewhere else afterwards. */
static bool lowers(const struct reading *r, int64_t *ret)
{
	const ZydisDecodedOperand *by = &r->operands[1];
	const bool is_sub = r->insn.mnemonic == ZYDIS_MNEMONIC_SUB;

	*ret = 0;
	if (!writes(r, ZYDIS_REGISTER_RSP))
		return true;
	if (r->insn.mnemonic == ZYDIS_MNEMONIC_PUSH || r->insn.mnemonic == ZYDIS_MNEMONIC_POP)
		*ret = r->insn.mnemonic == ZYDIS_MNEMONIC_PUSH ? WORD : -WORD;
	else if ((is_sub || r->insn.mnemonic == ZYDIS_MNEMONIC_ADD) &&
		 by->type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
		*ret = is_sub ? by->imm.value.s : -by->imm.value.s;
	else
		return false;
	return r->operands[0].size == 64 || r->operands[0].type != ZYDIS_OPERAND_TYPE_REGISTER;
}

/* Words of the stack are where they were, as far as the instruction has not written there. */
static void move_stack(struct reading *r, int64_t by, bool is_known)
{
	for (int i = 0; i < FOLLOWED; i++) {
		struct value *v = &r->values[i];

		for (int k = 0; v->kind == ON_STACK && k < r->insn.operand_count; k++) {
			const ZydisDecodedOperand *o = &r->operands[k];
			const bool is_written = o->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE &&
						o->visibility != ZYDIS_OPERAND_VISIBILITY_HIDDEN;

			if (is_written && is_stack(o) && o->mem.disp.value < v->above + WORD &&
			    o->mem.disp.value + o->size / 8 > v->above)
				v->kind = UNKNOWN;
		}
		v->above += by;
		if (v->kind == ON_STACK && (!is_known || v->above < 0))
			v->kind = UNKNOWN;
	}
}

/* The word that the stack pointer is at after the instruction. */
static struct value pushed(const struct reading *r, uint64_t address, int64_t lower)
{
	const ZydisDecodedOperand *to = &r->operands[0];
	struct value v = {.kind = UNKNOWN, .from = address};

	if (r->insn.mnemonic == ZYDIS_MNEMONIC_PUSH && lower == WORD) {
		v = read_operand(r, to, address);
		v.above += WORD;
	} else if (!writes(r, ZYDIS_REGISTER_RSP)) {
		v = r->values[PUSHED];
		for (int i = 0; i < r->insn.operand_count_visible; i++)
			if (r->operands[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE &&
			    is_stack(&r->operands[i]) && r->operands[i].mem.disp.value < WORD)
				v.kind = UNKNOWN;
		if (is_stack(to) && to->mem.disp.value == 0 && to->size == 64 &&
		    r->insn.mnemonic == ZYDIS_MNEMONIC_MOV)
			v = read_operand(r, &r->operands[1], address);
	}
	return v;
}

static void step(struct reading *r, uint64_t address)
{
	const bool is_call = r->insn.meta.category == ZYDIS_CATEGORY_CALL;
	const bool is_end = r->insn.meta.category == ZYDIS_CATEGORY_UNCOND_BR ||
			    r->insn.meta.category == ZYDIS_CATEGORY_RET ||
			    r->insn.mnemonic == ZYDIS_MNEMONIC_SYSCALL; /* its result is in rax */
	struct value next[FOLLOWED];
	int64_t lower;
	const bool is_known = lowers(r, &lower);

	r->has_called |= is_call;
	r->has_moved_stack |= is_call ? false : writes(r, ZYDIS_REGISTER_RSP);
	if (is_call || is_end) { /* behind it others lead */
		memset(r->values, 0, sizeof(r->values));
		return;
	}
	for (int i = 0; i < FOLLOWED; i++)
		next[i] = i == PUSHED		   ? pushed(r, address, lower)
			  : writes(r, followed[i]) ? set(r, address, followed[i])
						   : r->values[i];
	next[PUSHED].above -= lower; /* as the others: seen from before */
	memcpy(r->values, next, sizeof(next));
	move_stack(r, lower, is_known);
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
	*r = (struct reading){.has_called = false};
	for (unsigned int i = 0; i < PUSHED; i++)
		r->values[i] = (struct value){.kind = ARGUMENT, .from = f.start, .argument = i};
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

static void settle(const struct reading *r, const struct value *v, struct scry_syscall_number *n)
{
	n->from = v->from;
	n->number = v->number;
	n->argument = v->argument;
	n->above = (uint32_t)v->above;
	n->is_known = v->kind == NUMBER;
	n->is_argument = v->kind == ARGUMENT && !r->has_moved_stack;
	n->is_on_stack = v->kind == ON_STACK && v->above <= INT32_MAX;
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
		if (n.code >= SCRY_SYSCALL_CODE_64 && holds(text, &r.values[AX], at->address)) {
			settle(&r, &r.values[AX], &n);
			n.is_behind_call = r.has_called;
		}
	}
	scry_text_free(text);
	return n;
}

/* Does this call lead to that function? It is in the object itself; or by its name: by the slot of
 * a call through memory, or of the stub that it calls. */
static bool leads_to(struct scry_text *text, struct scry_elf *elf, const struct reading *r,
		     uint64_t address, const struct scry_syscall_callee *callee)
{
	const struct scry_text_range *range =
		elf == callee->code->elf ? scry_text_at(text, callee->code->address - 1) : NULL;
	struct scry_x86_code code;
	struct reading stub = {.insn.length = 0};
	uint64_t slot, target, at;
	struct scry_sym sym;
	bool has_slot = callee->name && scry_elf_got_slot(elf, callee->name, &slot) == 0;

	scry_error_clear();
	if (!ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&r->insn, &r->operands[0], address, &target)))
		return false;
	if (r->operands[0].type == ZYDIS_OPERAND_TYPE_MEMORY)
		return has_slot && target == slot;
	if (range && range->start == target)
		return true;
	if (callee->name && scry_elf_symbol(elf, callee->name, &sym) == 0 && sym.value == target)
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

bool scry_syscall_number_passed(const struct scry_syscall_code *at,
				const struct scry_syscall_callee *callee,
				struct scry_syscall_number *n)
{
	const struct value *v;
	struct scry_text *text = open_text(at->elf);
	struct reading r;
	uint64_t address;
	bool is_known = text && n->argument <= PUSHED &&
			read_to(&r, at->elf, text, at->address, &address) &&
			r.insn.meta.category == ZYDIS_CATEGORY_CALL;

	if (is_known) {
		v = &r.values[n->argument];
		is_known = holds(text, v, at->address) &&
			   (!callee || leads_to(text, at->elf, &r, address, callee));
	}
	if (is_known)
		settle(&r, v, n);
	scry_text_free(text);
	return is_known;
}
