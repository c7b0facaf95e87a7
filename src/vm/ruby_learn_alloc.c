/*
 * Learns which instructions allocate, and where the frame's pc stands while they do; and what a raw
 * event hook receives.
 *
 * The child let Ruby itself say the line of each allocation. Around the hook the VM may add one
 * word to the newest frame's pc, and computes the line from pc minus one word. So with that
 * addition the reported line is the line of what pc points at: the instruction's own line (a leaf:
 * pc still stands at it) or the following one's. Without the addition it is the previous
 * instruction's line or its own.
 */
#include <Zydis/Zydis.h>
#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby_learn.h"

/* Words of a "leaf" fact. */
enum { LEAF_WORDS = 2, LEAF_NAME, LEAF_TYPE, LEAF_LINE, LEAF_BEFORE, LEAF_OWN, LEAF_AFTER, LEAF_C };

/*
 * Any allocation reported on a following line proves the addition; on a previous line, its absence.
 * From 3.3 on each is reported on its own line: pc stands behind every instruction, and nothing is
 * added to it.
 */
struct lines {
	unsigned int after, before, own;
};

static struct lines count_lines(struct scry_learn *learn)
{
	const struct scry_fact *f = NULL;
	struct lines n = {0};

	while ((f = scry_fact_next(learn->calib, f, "leaf"))) {
		long line = scry_fact_number(f, LEAF_LINE), own = scry_fact_number(f, LEAF_OWN);
		long after = scry_fact_number(f, LEAF_AFTER),
		     before = scry_fact_number(f, LEAF_BEFORE);

		if (scry_fact_number(f, LEAF_C))
			continue;
		n.after += line == after && line != own && line != before;
		n.before += line == before && line != own && line != after;
		n.own += line == own && own != before && before >= 0 && own != after;
	}
	return n;
}

/* 1: pc stood at the instruction, 0: after it, -1: this fact says nothing. */
static int is_leaf_fact(const struct scry_fact *f, bool advanced)
{
	long line = scry_fact_number(f, LEAF_LINE), own = scry_fact_number(f, LEAF_OWN);
	long after = scry_fact_number(f, LEAF_AFTER), before = scry_fact_number(f, LEAF_BEFORE);
	long at = advanced ? own : before, past = advanced ? after : own;

	if (scry_fact_number(f, LEAF_C) || at == past)
		return -1;
	return line == at ? 1 : line == past ? 0 : -1;
}

/* What all facts about one instruction say together. */
struct verdict {
	unsigned int votes[2]; /* by is_leaf_fact */
	struct scry_ruby_leaf leaf;
};

/*
 * An instruction that begins a statement has an empty value stack below it, so it takes nothing
 * from it: then the instruction before belongs to the set-up on line 1, or does not exist (-1).
 */
static struct verdict judge(struct scry_learn *learn, const char *name, uint64_t word)
{
	struct verdict v = {.leaf = {.word = word - learn->child->bias, .pops_nothing = true}};
	const struct scry_fact *f = NULL;

	while ((f = scry_fact_next(learn->calib, f, "leaf"))) {
		int leaf;

		if (f->count <= LEAF_C || strcmp(f->words[LEAF_NAME], name) != 0)
			continue;
		v.leaf.words = (uint8_t)scry_fact_number(f, LEAF_WORDS);
		v.leaf.pops_nothing &= scry_fact_number(f, LEAF_BEFORE) <= 1;
		leaf = is_leaf_fact(f, learn->child->layout.trace_pc_advanced);
		if (leaf < 0)
			continue;
		v.votes[leaf]++;
		v.leaf.types |= 1u << (scry_fact_number(f, LEAF_TYPE) & 31);
	}
	if (v.leaf.types && !(v.leaf.types & (v.leaf.types - 1)))
		v.leaf.type = (uint8_t)__builtin_ctz(v.leaf.types);
	return v;
}

static void add_instruction(struct scry_learn *learn, const char *name, uint64_t word)
{
	struct scry_ruby_layout *l = &learn->child->layout;
	struct verdict v = judge(learn, name, word);

	/* Facts that contradict each other name no instruction. */
	if (v.votes[1] && !v.votes[0] && l->leaf_count < SCRY_RUBY_LEAF_MAX)
		l->leaf[l->leaf_count++] = v.leaf;
	else if (v.votes[0] && !v.votes[1] && l->after_count < SCRY_RUBY_LEAF_MAX)
		l->after[l->after_count++] = v.leaf;
}

int scry_learn_allocators(struct scry_learn *learn)
{
	struct scry_ruby_layout *l = &learn->child->layout;
	struct lines n = count_lines(learn);
	struct scry_ruby_check check = {.item = "allocating instructions",
					.ok = !(n.after && n.before)};

	l->trace_pc_advanced = n.after > 0 && n.before == 0;
	if (!n.after != !n.before) {
		for (size_t i = 0; i < learn->word_count; i++)
			add_instruction(learn, learn->words_name[i], learn->words[i]);
	}
	snprintf(check.value, sizeof(check.value), "%u at pc, %u before pc", l->leaf_count,
		 l->after_count);
	snprintf(check.how, sizeof(check.how), "ObjectSpace.allocation_sourceline in the child");
	if (n.after || n.before)
		snprintf(check.proof, sizeof(check.proof),
			 "pc %s around the hook: %u lines say so, %u the contrary",
			 l->trace_pc_advanced ? "is advanced" : "is not advanced",
			 l->trace_pc_advanced ? n.after : n.before,
			 l->trace_pc_advanced ? n.before : n.after);
	else if (n.own)
		snprintf(check.proof, sizeof(check.proof),
			 "pc stands behind every instruction: %u lines say so", n.own);
	else
		snprintf(check.proof, sizeof(check.proof),
			 "the child could not load 'objspace': lines of allocations may be the "
			 "next one's");
	scry_ruby_add_check(learn->target, &check);
	return 0;
}

/* --- the trace argument
 * ---------------------------------------------------------------------------- */

struct load {
	ZydisRegister to;
	int64_t disp;
};

/* Is `op` a load of 8 bytes from [argument + disp]? `copy` is a register the argument was copied
 * to. */
static bool is_argument_load(const ZydisDecodedOperand *op, ZydisRegister copy)
{
	return op[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	       op[1].type == ZYDIS_OPERAND_TYPE_MEMORY && op[1].size == 64 &&
	       op[1].mem.index == ZYDIS_REGISTER_NONE &&
	       (op[1].mem.base == ZYDIS_REGISTER_RDI || op[1].mem.base == copy);
}

/*
 * Loads from the argument in the first instructions of an exported function, up to its first call
 * (or return, when nothing was loaded before a branch). Returns how many.
 */
static size_t argument_loads(struct scry_learn *learn, const char *function, struct load *loads,
			     size_t room)
{
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
	ZydisRegister copy = ZYDIS_REGISTER_RDI;
	ZydisDecodedInstruction insn;
	ZydisDecoder decoder;
	struct scry_sym sym;
	uint8_t code[160];
	size_t n = 0, size;

	if (scry_elf_symbol(learn->child->elf, function, &sym) || sym.type != STT_FUNC)
		return 0;
	size = sym.size && sym.size < sizeof(code) ? sym.size : sizeof(code);
	if (scry_elf_read(learn->child->elf, sym.value, code, size))
		return 0;
	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	for (size_t at = 0; at < size && n < room; at += insn.length) {
		if (!ZYAN_SUCCESS(
			    ZydisDecoderDecodeFull(&decoder, code + at, size - at, &insn, op)))
			break;
		if (insn.mnemonic == ZYDIS_MNEMONIC_CALL)
			break;
		if (insn.mnemonic != ZYDIS_MNEMONIC_MOV)
			continue;
		if (op[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    op[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    op[1].reg.value == ZYDIS_REGISTER_RDI)
			copy = op[0].reg.value;
		else if (is_argument_load(op, copy))
			loads[n++] = (struct load){op[0].reg.value, op[1].mem.disp.value};
	}
	return n;
}

/* The offset that `function` loads into register `to`, if there is exactly one. */
static struct scry_pick pick_load(struct scry_learn *learn, const char *function, ZydisRegister to)
{
	struct load loads[16];
	struct scry_pick pick = {0};
	size_t n = argument_loads(learn, function, loads, 16);

	for (size_t i = 0; i < n; i++) {
		if (loads[i].to == to && loads[i].disp >= 8 && loads[i].disp < 256)
			scry_pick_add(&pick, (uint64_t)loads[i].disp);
	}
	return pick;
}

#define EMPTY_FUNCTION 16u /* bytes; since 3.1 the function is there and does nothing */

static void learn_recycling(struct scry_learn *learn)
{
	struct scry_ruby_check check = {.item = "frees without an event", .ok = true};
	struct scry_sym sym = {0};
	bool found = scry_elf_symbol(learn->child->elf, "rb_gc_force_recycle", &sym) == 0;

	learn->child->layout.recycles = found && sym.size > EMPTY_FUNCTION;
	snprintf(check.value, sizeof(check.value), learn->child->layout.recycles ? "yes" : "no");
	snprintf(check.how, sizeof(check.how), "size of rb_gc_force_recycle");
	if (found)
		snprintf(check.proof, sizeof(check.proof), "%" PRIu64 " bytes", sym.size);
	else
		snprintf(check.proof, sizeof(check.proof), "this Ruby has none");
	scry_ruby_add_check(learn->target, &check);
}

int scry_learn_trace(struct scry_learn *learn)
{
	struct scry_ruby_layout *l = &learn->child->layout;
	struct scry_pick data = pick_load(learn, "rb_tracearg_object", ZYDIS_REGISTER_RAX);
	/* rb_tracearg_binding(arg) calls f(arg->ec, arg->cfp): first argument rdi, second rsi. */
	struct scry_pick ec = pick_load(learn, "rb_tracearg_binding", ZYDIS_REGISTER_RDI);
	struct scry_pick cfp = pick_load(learn, "rb_tracearg_binding", ZYDIS_REGISTER_RSI);
	struct scry_ruby_check check = {.item = "trace argument ec, cfp", .ok = true};
	int err =
		scry_learn_item(learn, "trace argument data", &data, "decoded rb_tracearg_object");

	learn_recycling(learn);
	if (err)
		return err;
	l->trace_data = (uint32_t)data.value;
	l->trace_ec = 8;
	l->trace_cfp = 16;
	if (ec.hits == 1 && cfp.hits == 1) {
		l->trace_ec = (uint32_t)ec.value;
		l->trace_cfp = (uint32_t)cfp.value;
		snprintf(check.how, sizeof(check.how), "decoded rb_tracearg_binding");
		snprintf(check.proof, sizeof(check.proof), "both are arguments of its first call");
	} else {
		snprintf(check.how, sizeof(check.how), "assumed order event, ec, cfp");
		snprintf(check.proof, sizeof(check.proof),
			 "the agent checks trace.ec->cfp == trace.cfp on its first event");
	}
	snprintf(check.value, sizeof(check.value), "%u, %u", l->trace_ec, l->trace_cfp);
	scry_ruby_add_check(learn->target, &check);
	return 0;
}
