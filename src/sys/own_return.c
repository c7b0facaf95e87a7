/*
 * See own_return.h. The code is read once, in the order of addresses. rsp and rbp are known as
 * distances below the entry's rsp:
 *
 *   entry's rsp      return address
 *   - 8              push %rbp
 *   - rsp.below      rsp: the return address is at rsp.below(%rsp)
 *
 * What is known at a jump is kept for where it leads to. Where two ways disagree nothing is known.
 */
#include "sys/own_return.h"

#include <Zydis/Zydis.h>

#define LABELS 256u
#define BYTES_MAX (64u << 10)

struct distance {
	bool is_known;
	int64_t below; /* the entry's rsp, bytes */
};
struct state {
	struct distance rsp, rbp;
};
struct label {
	uint64_t at;
	struct state state;
};
struct walk {
	struct state now;
	bool is_reached; /* from the instruction before */
	struct label labels[LABELS];
	size_t count; /* more are forgotten, and nothing is known there */
	ZydisDecodedInstruction insn;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	uint64_t address; /* of the instruction */
};

static bool is_reg(const ZydisDecodedOperand *op, ZydisRegister reg)
{
	return op->type == ZYDIS_OPERAND_TYPE_REGISTER && op->reg.value == reg;
}

static struct distance agreed(struct distance a, struct distance b)
{
	a.is_known &= b.is_known && a.below == b.below;
	return a;
}

static void arrive(struct walk *w)
{
	for (size_t i = 0; i < w->count; i++) {
		const struct state *s = &w->labels[i].state;

		if (w->labels[i].at != w->address)
			continue;
		w->now.rsp = w->is_reached ? agreed(w->now.rsp, s->rsp) : s->rsp;
		w->now.rbp = w->is_reached ? agreed(w->now.rbp, s->rbp) : s->rbp;
		w->is_reached = true;
	}
}

/* Where `base` with a displacement leads to; not known: another register, or an index. */
static struct distance place_of(const struct walk *w, const ZydisDecodedOperand *op)
{
	struct distance d = op->mem.base == ZYDIS_REGISTER_RSP	 ? w->now.rsp
			    : op->mem.base == ZYDIS_REGISTER_RBP ? w->now.rbp
								 : (struct distance){0};

	d.is_known &= op->mem.index == ZYDIS_REGISTER_NONE &&
		      op->mem.segment != ZYDIS_REGISTER_FS && op->mem.segment != ZYDIS_REGISTER_GS;
	d.below -= op->mem.disp.value;
	return d;
}

/* Only its address is often taken to find the stack again. */
static bool reads_return(const struct walk *w)
{
	for (size_t i = 0; i < w->insn.operand_count_visible; i++) {
		const struct distance d = w->operands[i].type == ZYDIS_OPERAND_TYPE_MEMORY
						  ? place_of(w, &w->operands[i])
						  : (struct distance){0};

		if (d.is_known && d.below == 0 && w->insn.mnemonic != ZYDIS_MNEMONIC_LEA &&
		    w->insn.mnemonic != ZYDIS_MNEMONIC_NOP)
			return true;
	}
	return w->insn.mnemonic == ZYDIS_MNEMONIC_POP && w->now.rsp.is_known &&
	       w->now.rsp.below == 0;
}

/* rsp or rbp, as the instruction sets it from either. */
static struct distance set(const struct walk *w)
{
	const ZydisDecodedOperand *from = &w->operands[1];
	struct distance d = {0};

	if (w->insn.mnemonic == ZYDIS_MNEMONIC_LEA)
		return place_of(w, from);
	if (w->insn.mnemonic == ZYDIS_MNEMONIC_MOV)
		return is_reg(from, ZYDIS_REGISTER_RSP)	  ? w->now.rsp
		       : is_reg(from, ZYDIS_REGISTER_RBP) ? w->now.rbp
							  : d;
	if ((w->insn.mnemonic == ZYDIS_MNEMONIC_ADD || w->insn.mnemonic == ZYDIS_MNEMONIC_SUB) &&
	    from->type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
		d = is_reg(&w->operands[0], ZYDIS_REGISTER_RSP) ? w->now.rsp : w->now.rbp;
		d.below += w->insn.mnemonic == ZYDIS_MNEMONIC_SUB ? from->imm.value.s
								  : -from->imm.value.s;
	}
	return d;
}

static void move_registers(struct walk *w)
{
	const ZydisDecodedOperand *to = &w->operands[0];
	const bool writes =
		w->insn.operand_count_visible && to->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE;

	if (w->insn.mnemonic == ZYDIS_MNEMONIC_LEAVE) {
		w->now.rsp = w->now.rbp;
		w->now.rsp.below -= 8;
		w->now.rbp.is_known = false;
		return;
	}
	if (w->insn.mnemonic == ZYDIS_MNEMONIC_PUSH || w->insn.mnemonic == ZYDIS_MNEMONIC_PUSHFQ)
		w->now.rsp.below += w->insn.operand_width / 8;
	if (w->insn.mnemonic == ZYDIS_MNEMONIC_POP || w->insn.mnemonic == ZYDIS_MNEMONIC_POPFQ) {
		w->now.rsp.below -= w->insn.operand_width / 8;
		w->now.rsp.is_known &= !writes || !is_reg(to, ZYDIS_REGISTER_RSP);
		w->now.rbp.is_known &= !writes || !is_reg(to, ZYDIS_REGISTER_RBP);
	} else if (writes && is_reg(to, ZYDIS_REGISTER_RSP)) {
		w->now.rsp = set(w);
	} else if (writes && (is_reg(to, ZYDIS_REGISTER_RBP) || is_reg(to, ZYDIS_REGISTER_EBP) ||
			      is_reg(to, ZYDIS_REGISTER_BP) || is_reg(to, ZYDIS_REGISTER_BPL))) {
		w->now.rbp = is_reg(to, ZYDIS_REGISTER_RBP) ? set(w) : (struct distance){0};
	}
	if (w->insn.mnemonic == ZYDIS_MNEMONIC_ENTER || w->insn.mnemonic == ZYDIS_MNEMONIC_XCHG)
		w->now = (struct state){0};
}

static void leave(struct walk *w)
{
	const ZydisInstructionCategory c = w->insn.meta.category;
	const bool is_rel = w->insn.operand_count_visible &&
			    w->operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
			    w->operands[0].imm.is_relative;
	uint64_t target = 0;

	if (is_rel &&
	    !ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&w->insn, &w->operands[0], w->address, &target)))
		return;
	if (c == ZYDIS_CATEGORY_CALL && target == w->address + w->insn.length)
		w->now.rsp.below += 8; /* a push of where it is */
	if ((c == ZYDIS_CATEGORY_COND_BR || c == ZYDIS_CATEGORY_UNCOND_BR) && target > w->address &&
	    w->count < LABELS)
		w->labels[w->count++] = (struct label){target, w->now};
	w->is_reached = c != ZYDIS_CATEGORY_UNCOND_BR && c != ZYDIS_CATEGORY_RET &&
			w->insn.mnemonic != ZYDIS_MNEMONIC_UD2 &&
			w->insn.mnemonic != ZYDIS_MNEMONIC_HLT;
	if (!w->is_reached)
		w->now = (struct state){0};
}

bool scry_own_return_is_read(const struct scry_x86_code *code)
{
	struct walk w = {.now.rsp.is_known = true, .is_reached = true};
	ZydisDecoder decoder;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (size_t at = 0; at < code->size && at < BYTES_MAX; at += w.insn.length) {
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, code->bytes + at,
							 code->size - at, &w.insn, w.operands)))
			return false;
		w.address = code->address + at;
		arrive(&w);
		if (reads_return(&w))
			return true;
		move_registers(&w);
		leave(&w);
	}
	return false;
}
