/*
 * Decodes where the collector's state is. See ruby_gc.h.
 *
 * A function is followed straight on, past conditional jumps and along direct ones, with a note for
 * each register of what it holds: the address of the VM's word, the VM, its heap, or a field of
 * that.
 */
#include "vm/ruby_gc.h"

#include <Zydis/Zydis.h>
#include <elf.h>
#include <string.h>

#include "sys/elf.h"
#include "vm/ruby.h"

#define CODE_BYTES 128u
#define INSNS_MAX 48
#define JUMPS_MAX 3

enum holds { NOTHING, ROOT, VM, HEAP, FIELD };

struct held {
	enum holds what;
	uint32_t at, bits, shift; /* FIELD */
	uint64_t mask;
};

struct follow {
	const struct scry_ruby *ruby;
	struct held regs[16], got; /* got: what was asked for */
	bool is_done, wants_test;
	uint32_t objspace;
};

static struct held *reg_of(struct follow *f, ZydisRegister reg)
{
	int i = ZydisRegisterGetId(
		ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg));

	return i >= 0 && i < 16 && ZydisRegisterGetClass(reg) != ZYDIS_REGCLASS_XMM ? &f->regs[i]
										    : NULL;
}

/* What a load of `op` gives. */
static struct held load(struct follow *f, const ZydisDecodedOperand *op, uint64_t next)
{
	const ZydisDecodedOperandMem *mem = &op->mem;
	const struct scry_ruby *r = f->ruby;
	struct held *base;
	uint64_t at, word;

	if (mem->index != ZYDIS_REGISTER_NONE || mem->segment == ZYDIS_REGISTER_FS)
		return (struct held){0};
	if (mem->base == ZYDIS_REGISTER_RIP) {
		at = next + (uint64_t)mem->disp.value;
		if (at == r->layout.vm_root)
			return (struct held){.what = VM};
		/* A library's own word may be reached through its table of addresses. */
		if (scry_mem_u64(&r->mem, r->bias + at, &word) == 0 &&
		    word == r->bias + r->layout.vm_root)
			return (struct held){.what = ROOT};
		return (struct held){0};
	}
	base = mem->base == ZYDIS_REGISTER_NONE ? NULL : reg_of(f, mem->base);
	if (!base || mem->disp.value < 0 || mem->disp.value > 65536)
		return (struct held){0};
	at = (uint64_t)mem->disp.value;
	if (base->what == ROOT && at == 0)
		return (struct held){.what = VM};
	if (base->what == VM && op->size == 64) {
		f->objspace = (uint32_t)at;
		return (struct held){.what = HEAP};
	}
	if (base->what == HEAP)
		return (struct held){.what = FIELD, .at = (uint32_t)at, .bits = op->size};
	return (struct held){0};
}

static struct held value_of(struct follow *f, const ZydisDecodedOperand *op, uint64_t next)
{
	struct held *r;

	if (op->type == ZYDIS_OPERAND_TYPE_MEMORY)
		return load(f, op, next);
	r = op->type == ZYDIS_OPERAND_TYPE_REGISTER ? reg_of(f, op->reg.value) : NULL;
	return r ? *r : (struct held){0};
}

static void step(struct follow *f, const ZydisDecodedInstruction *insn,
		 const ZydisDecodedOperand *op, uint64_t next)
{
	struct held v = value_of(f, &op[0], next), *to;

	to = op[0].type == ZYDIS_OPERAND_TYPE_REGISTER ? reg_of(f, op[0].reg.value) : NULL;
	switch (insn->mnemonic) {
	case ZYDIS_MNEMONIC_MOV:
	case ZYDIS_MNEMONIC_MOVZX:
		v = value_of(f, &op[1], next);
		break;
	case ZYDIS_MNEMONIC_LEA:
		v = (struct held){0};
		if (op[1].mem.base == ZYDIS_REGISTER_RIP &&
		    next + (uint64_t)op[1].mem.disp.value == f->ruby->layout.vm_root)
			v.what = ROOT;
		break;
	case ZYDIS_MNEMONIC_SHR:
		v.shift += v.what == FIELD ? (uint32_t)op[1].imm.value.u : 0;
		break;
	case ZYDIS_MNEMONIC_AND:
		v.mask = v.what == FIELD ? op[1].imm.value.u << v.shift : 0;
		break;
	case ZYDIS_MNEMONIC_TEST:
		if (f->wants_test && v.what == FIELD &&
		    op[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
			v.mask = op[1].imm.value.u << v.shift;
			f->got = v;
			f->is_done = true;
		}
		return;
	default:
		v = (struct held){0};
		if (!(op[0].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE))
			return;
	}
	if (to)
		*to = v;
}

/* Follows `function`. True: it came to what was asked for, f->got. */
static bool follow(struct follow *f, const char *function)
{
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction insn;
	uint8_t code[CODE_BYTES];
	ZydisDecoder decoder;
	struct scry_sym sym;
	uint64_t at;
	size_t from = 0;
	int jumps = 0;

	if (scry_elf_symbol(f->ruby->elf, function, &sym) || sym.type != STT_FUNC ||
	    scry_elf_read(f->ruby->elf, sym.value, code, sizeof(code)))
		return false;
	at = sym.value;
	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (int i = 0; i < INSNS_MAX && !f->is_done; i++) {
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, code + from, sizeof(code) - from,
							 &insn, op)))
			return false;
		from += insn.length;
		if (insn.meta.category == ZYDIS_CATEGORY_RET) {
			f->got = f->regs[0];
			return !f->wants_test && f->got.what == FIELD;
		}
		if (insn.meta.category == ZYDIS_CATEGORY_CALL)
			return false;
		if (insn.meta.category == ZYDIS_CATEGORY_UNCOND_BR) {
			if (op[0].type != ZYDIS_OPERAND_TYPE_IMMEDIATE || ++jumps > JUMPS_MAX)
				return false;
			at += from + op[0].imm.value.u;
			from = 0;
			if (scry_elf_read(f->ruby->elf, at, code, sizeof(code)))
				return false;
			continue;
		}
		if (insn.meta.category != ZYDIS_CATEGORY_COND_BR && insn.operand_count_visible)
			step(f, &insn, op, at + from);
	}
	return f->is_done;
}

/* The one bit that a field's mask leaves. */
static bool bit_of(const struct held *v, struct scry_ruby_gc_bit *ret)
{
	uint32_t n;

	if (v->mask == 0 || v->mask & (v->mask - 1))
		return false;
	n = (uint32_t)__builtin_ctzll(v->mask);
	if (n >= v->bits)
		return false;
	*ret = (struct scry_ruby_gc_bit){v->at + n / 8, (uint8_t)(1u << n % 8)};
	return ret->at < SCRY_RUBY_GC_BYTES;
}

void scry_ruby_gc_find(const struct scry_ruby *ruby, struct scry_ruby_gc *ret)
{
	struct follow during = {.ruby = ruby}, count = {.ruby = ruby};
	struct follow marking = {.ruby = ruby, .wants_test = true};
	const struct scry_ruby_alloc_functions *m = &ruby->layout.alloc_functions;
	uint32_t end;

	*ret = (struct scry_ruby_gc){0};
	if (!follow(&during, "rb_during_gc") || !bit_of(&during.got, &ret->during))
		return;
	ret->is_known = true;
	ret->objspace = during.objspace;
	ret->from = ret->during.at;
	end = ret->from + 1;
	if (!ruby->layout.recycles && follow(&count, "rb_gc_count") && count.got.bits == 64 &&
	    !count.got.mask && !count.got.shift && count.objspace == during.objspace &&
	    count.got.at + 8 <= SCRY_RUBY_GC_BYTES &&
	    (!m->vm_objspace || !m->objspace_gcs ||
	     (m->vm_objspace == during.objspace && m->objspace_gcs == count.got.at)) &&
	    follow(&marking, "rb_gc_writebarrier") && bit_of(&marking.got, &ret->marking) &&
	    marking.objspace == during.objspace) {
		ret->has_epochs = true;
		ret->count = count.got.at;
		if (ret->marking.at < ret->from)
			ret->from = ret->marking.at;
		if (ret->count < ret->from)
			ret->from = ret->count;
		end = ret->count + 8 > end ? ret->count + 8 : end;
		end = ret->marking.at + 1 > end ? ret->marking.at + 1 : end;
	}
	ret->size = end - ret->from;
}

uint64_t scry_ruby_gc_heap(const struct scry_ruby *ruby, const struct scry_ruby_gc *gc)
{
	uint64_t vm, heap;

	if (!gc->is_known || scry_mem_u64(&ruby->mem, ruby->bias + ruby->layout.vm_root, &vm) ||
	    scry_mem_u64(&ruby->mem, vm + gc->objspace, &heap) || heap % 8)
		return 0;
	return heap;
}

struct scry_ruby_gc_now scry_ruby_gc_say(const struct scry_ruby_gc *gc, const uint8_t *bytes)
{
	struct scry_ruby_gc_now now = {.is_running =
					       bytes[gc->during.at - gc->from] & gc->during.mask};
	uint64_t count;

	if (!gc->has_epochs)
		return now;
	memcpy(&count, bytes + gc->count - gc->from, sizeof(count));
	now.count = count + 1;
	if (!now.is_running && !(bytes[gc->marking.at - gc->from] & gc->marking.mask))
		now.epoch = now.count;
	return now;
}
