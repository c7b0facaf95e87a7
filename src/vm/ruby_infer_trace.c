/*
 * Infers what a raw event hook receives: where its argument has the kind of event, the object, the
 * execution context and the newest frame.
 *
 * The child cannot show it, as the argument lives during an event only. But small exported
 * functions get it and say what they load: rb_tracearg_event_flag returns the kind,
 * rb_tracearg_object the object, and the first call of rb_tracearg_binding is given context and
 * frame. They are followed straight on, with a note for each register and stack slot of what it
 * holds, so that code which keeps everything on the stack (-O0) is read as well. A wrong place
 * would be followed inside the target: what is not seen is refused, but for the order that all
 * known Rubies have.
 */
#include <Zydis/Zydis.h>
#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby_infer.h"

#define CODE_BYTES 320u
#define SLOTS 8
#define ARGUMENT_BYTES 256
#define JUMPS 8

/* The order of rb_trace_arg_struct in all known Rubies. */
enum { KNOWN_EVENT = 0, KNOWN_EC = 8, KNOWN_CFP = 16, KNOWN_DATA = 56 };

enum what { NOTHING, ARGUMENT, LOADED };
struct held {
	enum what what;
	int64_t disp; /* LOADED from there */
};

struct follow {
	struct held regs[16];
	struct {
		ZydisRegister base;
		int64_t disp;
		struct held holds;
	} slots[SLOTS];
	unsigned int slot_count;
	struct {
		int64_t to;
		struct held regs[16];
	} jumps[JUMPS]; /* conditional ones */
	unsigned int jump_count;
	struct scry_pick words, halves; /* loads of 8 and of 4 bytes into rax */
	struct scry_pick first, second; /* arguments of the first call that came from loads */
	bool has_called;
};

static struct held *reg_of(struct follow *f, ZydisRegister reg)
{
	ZydisRegister whole = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);

	return ZydisRegisterGetClass(whole) == ZYDIS_REGCLASS_GPR64
		       ? &f->regs[ZydisRegisterGetId(whole)]
		       : NULL;
}

/* The note of a stack slot; NULL: none, or no room for one more. */
static struct held *slot_of(struct follow *f, const ZydisDecodedOperandMem *mem, bool make)
{
	unsigned int i;

	if ((mem->base != ZYDIS_REGISTER_RSP && mem->base != ZYDIS_REGISTER_RBP) ||
	    mem->index != ZYDIS_REGISTER_NONE)
		return NULL;
	for (i = 0; i < f->slot_count; i++)
		if (f->slots[i].base == mem->base && f->slots[i].disp == mem->disp.value)
			return &f->slots[i].holds;
	if (!make || i == SLOTS)
		return NULL;
	f->slots[i].base = mem->base;
	f->slots[i].disp = mem->disp.value;
	f->slot_count++;
	return &f->slots[i].holds;
}

static struct held load(struct follow *f, const ZydisDecodedOperand *to,
			const ZydisDecodedOperandMem *mem)
{
	struct held *from = slot_of(f, mem, false);
	int64_t disp = mem->disp.value;

	if (from)
		return *from;
	from = reg_of(f, mem->base);
	if (!from || from->what != ARGUMENT || mem->index != ZYDIS_REGISTER_NONE || disp < 0 ||
	    disp >= ARGUMENT_BYTES)
		return (struct held){0};
	if (reg_of(f, to->reg.value) == &f->regs[0])
		scry_pick_add(to->size == 64 ? &f->words : &f->halves, (uint64_t)disp);
	return to->size == 64 ? (struct held){LOADED, disp} : (struct held){0};
}

static void move(struct follow *f, const ZydisDecodedOperand *op)
{
	struct held value = {0}, *to;

	if (op[1].type == ZYDIS_OPERAND_TYPE_REGISTER && op[1].size == 64) {
		to = reg_of(f, op[1].reg.value);
		value = to ? *to : value;
	} else if (op[1].type == ZYDIS_OPERAND_TYPE_MEMORY &&
		   op[0].type == ZYDIS_OPERAND_TYPE_REGISTER && op[1].size == op[0].size) {
		value = load(f, &op[0], &op[1].mem);
	}
	if (op[0].type == ZYDIS_OPERAND_TYPE_MEMORY)
		to = slot_of(f, &op[0].mem, value.what != NOTHING);
	else
		to = reg_of(f, op[0].reg.value);
	if (to)
		*to = value;
}

/* The first call says what it is given; after any, only saved registers and the stack are as they
 * were. */
static void call(struct follow *f)
{
	static const uint8_t lost[] = {0, 1, 2, 6, 7, 8, 9, 10, 11}; /* System V ABI, 3.2.1 */
	const struct held *rdi = reg_of(f, ZYDIS_REGISTER_RDI);
	const struct held *rsi = reg_of(f, ZYDIS_REGISTER_RSI);

	if (!f->has_called && rdi->what == LOADED && rsi->what == LOADED) {
		scry_pick_add(&f->first, (uint64_t)rdi->disp);
		scry_pick_add(&f->second, (uint64_t)rsi->disp);
	}
	f->has_called = true;
	for (size_t i = 0; i < sizeof(lost); i++)
		f->regs[lost[i]] = (struct held){0};
}

static void step(struct follow *f, const ZydisDecodedInstruction *insn,
		 const ZydisDecodedOperand *op)
{
	struct held *to;

	if (insn->mnemonic == ZYDIS_MNEMONIC_CALL) {
		call(f);
	} else if (insn->mnemonic == ZYDIS_MNEMONIC_MOV) {
		move(f, op);
	} else if (insn->operand_count_visible && op[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		   op[0].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) {
		to = reg_of(f, op[0].reg.value);
		if (to)
			*to = (struct held){0};
	}
}

static void note_jump(struct follow *f, int64_t to)
{
	if (f->jump_count == JUMPS)
		return;
	f->jumps[f->jump_count].to = to;
	memcpy(f->jumps[f->jump_count++].regs, f->regs, sizeof(f->regs));
}

/* Behind a call that never returns (rb_raise) what is jumped to goes by the jump. Where the call
 * does return, code that both lead to uses no register that it lost. */
static void land(struct follow *f, int64_t at)
{
	for (unsigned int i = 0; i < f->jump_count; i++)
		if (f->jumps[i].to == at) {
			memcpy(f->regs, f->jumps[i].regs, sizeof(f->regs));
			return;
		}
}

/* Follows an exported function to its return or its jump to another. */
static struct follow follow(struct scry_infer *infer, const char *function)
{
	struct follow f = {.regs[7] = {.what = ARGUMENT}}; /* rdi */
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;
	ZydisDecoder decoder;
	struct scry_sym sym;
	uint8_t code[CODE_BYTES];
	size_t size;

	if (scry_elf_symbol(infer->child->elf, function, &sym) || sym.type != STT_FUNC)
		return f;
	size = sym.size && sym.size < sizeof(code) ? sym.size : sizeof(code);
	if (scry_elf_read(infer->child->elf, sym.value, code, size))
		return f;
	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (size_t at = 0; at < size; at += insn.length) {
		if (!ZYAN_SUCCESS(
			    ZydisDecoderDecodeFull(&decoder, code + at, size - at, &insn, op)) ||
		    insn.meta.category == ZYDIS_CATEGORY_RET)
			break;
		if (insn.meta.category == ZYDIS_CATEGORY_COND_BR)
			note_jump(&f, (int64_t)(at + insn.length) + op[0].imm.value.s);
		if (insn.meta.category == ZYDIS_CATEGORY_UNCOND_BR) {
			int64_t to = (int64_t)(at + insn.length) + op[0].imm.value.s;

			if (op[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && to >= 0 &&
			    to < (int64_t)size)
				continue;
			call(&f);
			break;
		}
		step(&f, &insn, op);
		if (insn.mnemonic == ZYDIS_MNEMONIC_CALL)
			land(&f, (int64_t)(at + insn.length));
	}
	return f;
}

#define EMPTY_FUNCTION 16u /* bytes; since 3.1 the function is there and does nothing */

static void infer_recycling(struct scry_infer *infer)
{
	struct scry_ruby_check check = {.item = "frees without an event", .ok = true};
	struct scry_sym sym = {0};
	bool found = scry_elf_symbol(infer->child->elf, "rb_gc_force_recycle", &sym) == 0;

	infer->child->layout.recycles = found && sym.size > EMPTY_FUNCTION;
	snprintf(check.value, sizeof(check.value), infer->child->layout.recycles ? "yes" : "no");
	snprintf(check.how, sizeof(check.how), "size of rb_gc_force_recycle");
	if (found)
		snprintf(check.proof, sizeof(check.proof), "%" PRIu64 " bytes", sym.size);
	else
		snprintf(check.proof, sizeof(check.proof), "this Ruby has none");
	scry_ruby_add_check(infer->target, &check);
}

/* Context and frame: as decoded, else in the known order when that holds for the other two. */
static int infer_context(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct follow f = follow(infer, "rb_tracearg_binding");
	struct scry_ruby_check check = {.item = "trace argument ec, cfp", .ok = true};
	bool is_known = l->trace_event == KNOWN_EVENT && l->trace_data == KNOWN_DATA;

	l->trace_ec = KNOWN_EC;
	l->trace_cfp = KNOWN_CFP;
	if (f.first.hits == 1 && f.second.hits == 1) {
		l->trace_ec = (uint32_t)f.first.value;
		l->trace_cfp = (uint32_t)f.second.value;
		snprintf(check.how, sizeof(check.how), "decoded rb_tracearg_binding");
		snprintf(check.proof, sizeof(check.proof), "both are arguments of its first call");
	} else {
		snprintf(check.how, sizeof(check.how), "assumed order event, ec, cfp");
		snprintf(check.proof, sizeof(check.proof),
			 "the agent checks trace.ec->cfp == trace.cfp on its first event");
		check.ok = is_known;
	}
	snprintf(check.value, sizeof(check.value), "%u, %u", l->trace_ec, l->trace_cfp);
	scry_ruby_add_check(infer->target, &check);
	return check.ok ? 0
			: scry_fail(-ENOTSUP,
				    "cannot learn 'trace argument ec, cfp' of the Ruby in '%s': "
				    "rb_tracearg_binding does not say",
				    infer->target->module);
}

int scry_infer_trace(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct scry_pick data = follow(infer, "rb_tracearg_object").words;
	struct scry_pick event = follow(infer, "rb_tracearg_event_flag").halves;
	int err =
		scry_infer_item(infer, "trace argument data", &data, "decoded rb_tracearg_object");

	infer_recycling(infer);
	if (!err)
		err = scry_infer_item(infer, "trace argument event", &event,
				      "decoded rb_tracearg_event_flag");
	l->trace_data = (uint32_t)data.value;
	l->trace_event = (uint32_t)event.value;
	return err ? err : infer_context(infer);
}
