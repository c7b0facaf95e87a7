/*
 * Infers which instructions allocate, and where the frame's pc is while they do.
 *
 * The child let Ruby itself say the line of each allocation. Around the hook the VM may add one
 * word to the newest frame's pc, and computes the line from pc minus one word. So with that
 * addition the reported line is the line of what pc points at: the instruction's own line (a leaf:
 * pc is still at it) or the following one's. Without the addition it is the previous instruction's
 * line or its own.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby_infer.h"

/* Words of a "leaf" fact. */
enum { LEAF_WORDS = 2, LEAF_NAME, LEAF_TYPE, LEAF_LINE, LEAF_BEFORE, LEAF_OWN, LEAF_AFTER, LEAF_C };

/*
 * Any allocation reported on a following line proves the addition; on a previous line, its absence.
 * From 3.3 on each is reported on its own line: pc is behind every instruction, and nothing is
 * added to it.
 */
struct lines {
	unsigned int after, before, own;
};

static struct lines count_lines(struct scry_infer *infer)
{
	const struct scry_fact *f = NULL;
	struct lines n = {0};

	while ((f = scry_fact_next(infer->calib, f, "leaf"))) {
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
static struct verdict judge(struct scry_infer *infer, const char *name, uint64_t word)
{
	struct verdict v = {.leaf = {.word = word - infer->child->bias, .pops_nothing = true}};
	const struct scry_fact *f = NULL;

	while ((f = scry_fact_next(infer->calib, f, "leaf"))) {
		int leaf;

		if (f->count <= LEAF_C || strcmp(f->words[LEAF_NAME], name) != 0)
			continue;
		v.leaf.words = (uint8_t)scry_fact_number(f, LEAF_WORDS);
		v.leaf.pops_nothing &= scry_fact_number(f, LEAF_BEFORE) <= 1;
		leaf = is_leaf_fact(f, infer->child->layout.trace_pc_advanced);
		if (leaf < 0)
			continue;
		v.votes[leaf]++;
		v.leaf.types |= 1u << (scry_fact_number(f, LEAF_TYPE) & 31);
	}
	if (v.leaf.types && !(v.leaf.types & (v.leaf.types - 1)))
		v.leaf.type = (uint8_t)__builtin_ctz(v.leaf.types);
	return v;
}

static void add_instruction(struct scry_infer *infer, const char *name, uint64_t word)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct verdict v = judge(infer, name, word);

	/* Facts that contradict each other name no instruction. */
	if (v.votes[1] && !v.votes[0] && l->leaf_count < SCRY_RUBY_LEAF_MAX)
		l->leaf[l->leaf_count++] = v.leaf;
	else if (v.votes[0] && !v.votes[1] && l->after_count < SCRY_RUBY_LEAF_MAX)
		l->after[l->after_count++] = v.leaf;
}

int scry_infer_allocators(struct scry_infer *infer)
{
	struct scry_ruby_layout *l = &infer->child->layout;
	struct lines n = count_lines(infer);
	struct scry_ruby_check check = {.item = "allocating instructions",
					.ok = !(n.after && n.before)};

	l->trace_pc_advanced = n.after > 0 && n.before == 0;
	if (!n.after != !n.before) {
		for (size_t i = 0; i < infer->word_count; i++)
			add_instruction(infer, infer->words_name[i], infer->words[i]);
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
			 "pc is behind every instruction: %u lines say so", n.own);
	else
		snprintf(check.proof, sizeof(check.proof),
			 "the child could not load 'objspace': lines of allocations may be the "
			 "next one's");
	scry_ruby_add_check(infer->target, &check);
	return 0;
}
