/*
 * Infers how many bytes an object has outside its slot, from samples whose ObjectSpace.memsize_of
 * the child reported: rules for wire/ruby_size.h.
 *
 * For each type a list of rules is grown. What one formula explains (ruby_infer_formula.c) is a
 * leaf; what none explains is split by the flag bit that sets most samples apart, and the rest goes
 * on. Half of the samples are held out: they must come out right through the evaluator itself, or
 * the type is not known. Flag bits that no sample had make an object unknown, so that a state that
 * was not seen is never guessed; objects with instance variables of their own must have such a bit.
 */
#include "vm/ruby_infer_size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "vm/ruby_size.h"

#define SAMPLES_MAX 8192u
#define SPLITS_MAX 8
#define GUARDS_MAX 3
#define AGE_BITS                                                                        \
	0x60u /* an object grows old: it is not a bit of its kind (fl_type.h, PROMOTED) \
	       */
#define LOW 0xffffffffull

static const char *const type_names[SCRY_SIZE_TYPES] = {
	[0x01] = "Object",   [0x04] = "Float",	[0x05] = "String", [0x07] = "Array",
	[0x08] = "Hash",     [0x09] = "Struct", [0x0a] = "Bignum", [0x0e] = "Complex",
	[0x0f] = "Rational", [0x14] = "Symbol",
};

/* What is being learned of one type. */
struct study {
	struct scry_infer *infer;
	struct scry_size_rules *rules;
	struct scry_size_sample *samples; /* of all types */
	size_t sample_count;
	uint8_t type;
	struct scry_size_set set; /* samples of the type that rules are made from */
	const char *why;	  /* not learned: the reason */
};

/* Words of a "size" fact. */
enum { SIZE_ADDRESS = 1, SIZE_MEMSIZE, SIZE_TAG, SIZE_FLAGS, SIZE_SLOT };

static bool read_sample(struct scry_infer *infer, const struct scry_fact *f,
			struct scry_size_sample *ret)
{
	const char *tag = f->count > SIZE_TAG ? f->words[SIZE_TAG] : "";
	long slot = scry_fact_number(f, SIZE_SLOT), own = slot;

	ret->addr = scry_fact_addr(f, SIZE_ADDRESS);
	ret->tag = strcmp(tag, "ivars") == 0	 ? SCRY_SAMPLE_IVARS
		   : strcmp(tag, "complex") == 0 ? SCRY_SAMPLE_COMPLEX
						 : SCRY_SAMPLE_PLAIN;
	if (!slot)
		own = slot = (long)infer->child->layout.slot_size;
	/* A hidden object's memsize comes with its wrapper's slot before its own. */
	if (strcmp(tag, "hidden") == 0)
		slot += own;
	ret->extra = scry_fact_number(f, SIZE_MEMSIZE) - slot;
	ret->head_size = (uint8_t)(own < (long)SCRY_SIZE_HEAD ? own : (long)SCRY_SIZE_HEAD);
	if (ret->extra < 0 ||
	    scry_mem_read(&infer->child->mem, ret->addr, ret->head, ret->head_size) != 0)
		return false;
	memcpy(&ret->flags, ret->head, sizeof(ret->flags));
	return true;
}

/* An object whose flags have changed since is two samples: its size is the same. */
static void collect(struct study *st)
{
	const struct scry_fact *f = NULL;

	while (st->sample_count + 2 <= SAMPLES_MAX &&
	       (f = scry_fact_next(st->infer->calib, f, "size"))) {
		struct scry_size_sample *s = &st->samples[st->sample_count];
		uint64_t then = scry_fact_addr(f, SIZE_FLAGS);

		if (!read_sample(st->infer, f, s))
			continue;
		st->sample_count++;
		if (!then || (then & ~(uint64_t)AGE_BITS) == (s->flags & ~(uint64_t)AGE_BITS))
			continue;
		s[1] = s[0];
		s[1].flags = then;
		st->sample_count++;
	}
}

static bool is_of_type(const struct study *st, const struct scry_size_sample *s)
{
	return s->flags % SCRY_SIZE_TYPES == st->type;
}

/* --- growing the list --------------------------------------------------------------------------*/

static void add_rule(struct study *st, const struct scry_size_rule *rule)
{
	struct scry_size_rules *r = st->rules;

	if (r->rule_count == SCRY_SIZE_RULES_MAX) {
		st->why = "more rules than there is room for";
		return;
	}
	r->rule[r->rule_count++] = *rule;
	r->type[st->type].count++;
}

/* A leaf that explains `set`; a table gets its bytes. */
static void add_leaf(struct study *st, const struct scry_size_set *set, struct scry_size_rule *rule)
{
	uint8_t table = 0;

	for (uint32_t i = 0; i < st->rules->rule_count; i++)
		table += 2 * (st->rules->rule[i].kind == SCRY_SIZE_TABLE);
	if (rule->kind == SCRY_SIZE_TABLE && table + 2u > SCRY_SIZE_TABLES) {
		st->why = "more tables than there is room for";
		return;
	}
	if (rule->kind == SCRY_SIZE_TABLE) {
		rule->table = table;
		scry_infer_table_bytes(st->infer, set, rule, &st->rules->bytes[table]);
	}
	add_rule(st, rule);
}

/* Those of `set` with, or without, flags & mask == value, into `ret`, which
 * has room or is `set`. */
static void part(const struct scry_size_set *set, const struct scry_size_rule *rule, bool with,
		 struct scry_size_set *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < set->count; i++) {
		if (((set->at[i]->flags & rule->mask) == rule->value) == with)
			ret->at[n++] = set->at[i];
	}
	ret->count = n;
	ret->type = set->type;
}

/*
 * The flag bit by which most samples are explained. A formula with a field is taken only when the
 * rest is explained too: then nothing is left to which it might belong as well.
 */
static bool find_split(struct study *st, const struct scry_size_set *set,
		       struct scry_size_rule *ret)
{
	const struct scry_size_sample *some[2][SAMPLES_MAX];
	struct scry_size_set with = {.at = some[0]}, rest = {.at = some[1]};
	size_t best = 0;

	for (unsigned int i = 2 * SCRY_SIZE_TYPE_BIT; i < 2 * 32; i++) {
		struct scry_size_rule rule = {.mask = 1ull << i / 2}, leaf, other;

		rule.value = i % 2 ? rule.mask : 0;
		part(set, &rule, true, &with);
		if (with.count <= best || with.count == set->count ||
		    !scry_infer_leaf(st->infer, &with, &leaf))
			continue;
		part(set, &rule, false, &rest);
		if (leaf.kind == SCRY_SIZE_LINEAR &&
		    (with.count > rest.count || !scry_infer_leaf(st->infer, &rest, &other)))
			continue;
		best = with.count;
		*ret = leaf;
		ret->mask = rule.mask;
		ret->value = rule.value;
	}
	return best > 0;
}

/* Does a field of several flag bits, where it is 0, set apart what has something outside? */
static bool is_zero_field(const struct scry_size_set *set, uint64_t mask)
{
	for (size_t i = 0; i < set->count; i++) {
		if (!(set->at[i]->flags & mask) != (set->at[i]->extra > 0))
			return false;
	}
	return true;
}

/* A length of the content in the slot, 0 where it is outside: the narrowest such field. */
static bool grow_zero_field(struct study *st, const struct scry_size_set *set)
{
	const struct scry_size_sample *some[SAMPLES_MAX];
	struct scry_size_set outside = {.at = some};

	for (uint32_t width = 2; width <= 16; width++) {
		for (uint32_t shift = SCRY_SIZE_TYPE_BIT; shift + width <= 32; shift++) {
			struct scry_size_rule rule = {.mask = ((1ull << width) - 1) << shift}, leaf;

			if (!is_zero_field(set, rule.mask))
				continue;
			part(set, &rule, true, &outside);
			if (!scry_infer_leaf(st->infer, &outside, &leaf))
				return false;
			leaf.mask = rule.mask;
			add_leaf(st, &outside, &leaf);
			add_rule(st, &(struct scry_size_rule){.kind = SCRY_SIZE_NONE});
			return true;
		}
	}
	return false;
}

static bool is_pure(const struct scry_size_set *set, const struct scry_size_rule *literal)
{
	for (size_t i = 0; i < set->count; i++) {
		if ((set->at[i]->flags & literal->mask) == literal->value && set->at[i]->extra)
			return false;
	}
	return true;
}

/* The literal (a bit of the flags and its value) that alone means "nothing outside", and covers
 * most of what is not covered yet. 0: none. */
static size_t best_cover(const struct scry_size_set *set, const struct scry_size_set *open,
			 uint64_t used, struct scry_size_rule *ret)
{
	size_t best = 0;

	for (unsigned int i = 2 * SCRY_SIZE_TYPE_BIT; i < 2 * 32; i++) {
		struct scry_size_rule rule = {.mask = 1ull << i / 2};
		size_t covers = 0;

		rule.value = i % 2 ? rule.mask : 0;
		if ((used & rule.mask) || !is_pure(set, &rule))
			continue;
		for (size_t k = 0; k < open->count; k++)
			covers += (open->at[k]->flags & rule.mask) == rule.value;
		if (covers > best) {
			best = covers;
			*ret = rule;
		}
	}
	return best;
}

/*
 * `split` says that some samples have nothing outside. Where other bits say the same of all of
 * them, it is not known which of them decides (a transient heap may hold just what is not in the
 * slot): an object for which they disagree is unknown.
 */
static void guard_split(struct study *st, const struct scry_size_set *set,
			const struct scry_size_rule *split)
{
	const struct scry_size_sample *some[SAMPLES_MAX];
	struct scry_size_set open = {.at = some};
	struct scry_size_rule other, guard;
	uint64_t used = split->mask;

	for (int covers = 0; covers < GUARDS_MAX; covers++) {
		guard = (struct scry_size_rule){.mask = split->mask, .value = split->value};
		part(set, split, true, &open);
		while (open.count && best_cover(set, &open, used, &other)) {
			used |= other.mask;
			guard.mask |= other.mask;
			guard.value |= ~other.value & other.mask;
			part(&open, &other, false, &open);
		}
		if (open.count)
			return;
		add_rule(st, &guard);
	}
}

static bool finish_list(struct study *st, const struct scry_size_set *set)
{
	struct scry_size_rule selected[SCRY_SIZE_SELECTED_MAX], rule;
	size_t n;

	if (scry_infer_leaf(st->infer, set, &rule)) {
		add_leaf(st, set, &rule);
		return true;
	}
	n = scry_infer_selected(set, selected);
	for (size_t i = 0; i < n; i++)
		add_rule(st, &selected[i]);
	return n > 0;
}

static void forget(struct study *st)
{
	struct scry_size_type *type = &st->rules->type[st->type];

	st->rules->rule_count = type->first;
	type->count = 0;
}

/* Rules that explain the samples with, or without, flags & mask == value, or none of them. */
static bool grow(struct study *st, const struct scry_size_rule *which, bool with, bool by_shape)
{
	const struct scry_size_sample *left[SAMPLES_MAX], *some[SAMPLES_MAX];
	struct scry_size_set set = {.at = left}, explained = {.at = some};
	struct scry_size_rule rule;

	part(&st->set, which, with, &set);
	for (int i = 0; i < SPLITS_MAX; i++) {
		if (finish_list(st, &set))
			return true;
		if (!find_split(st, &set, &rule))
			break;
		part(&set, &rule, true, &explained);
		if (rule.kind == SCRY_SIZE_NONE)
			guard_split(st, &set, &rule);
		add_leaf(st, &explained, &rule);
		part(&set, &rule, false, &set);
	}
	if (by_shape && scry_infer_shape(st->infer, &set, &rule)) {
		add_rule(st, &rule);
		return true;
	}
	forget(st);
	return false;
}

/* What all complex samples have in common and no other has: one bit, or the whole upper half. */
static bool find_complex(struct study *st, struct scry_size_rule *ret)
{
	uint64_t all = ~0ull, other = 0, upper = 0;
	bool same = true;

	*ret = (struct scry_size_rule){0};
	for (size_t i = 0; i < st->set.count; i++) {
		const struct scry_size_sample *s = st->set.at[i];

		if (s->tag == SCRY_SAMPLE_COMPLEX) {
			same = same && (!upper || upper == s->flags >> 32);
			upper = s->flags >> 32;
			all &= s->flags;
		} else {
			other |= s->flags;
		}
	}
	if (!upper)
		return false;
	all &= ~other & ~LOW;
	ret->mask = all ? all & -all : ~LOW;
	ret->value = all ? ret->mask : upper << 32;
	for (size_t i = 0; i < st->set.count && !all; i++) {
		const struct scry_size_sample *s = st->set.at[i];

		same = same && (s->tag == SCRY_SAMPLE_COMPLEX || s->flags >> 32 != upper);
	}
	return all || same;
}

/* Objects whose variables are in a table of their own, and all others by their shape. */
static bool grow_beside_complex(struct study *st)
{
	const struct scry_size_sample *some[SAMPLES_MAX];
	struct scry_size_set set = {.at = some};
	struct scry_size_rule rule, leaf;

	if (!find_complex(st, &rule))
		return false;
	part(&st->set, &rule, true, &set);
	if (!scry_infer_leaf(st->infer, &set, &leaf))
		leaf = (struct scry_size_rule){.kind = SCRY_SIZE_UNKNOWN};
	leaf.mask = rule.mask;
	leaf.value = rule.value;
	add_leaf(st, &set, &leaf);
	return grow(st, &rule, false, true);
}

static bool grow_any(struct study *st)
{
	const struct scry_size_rule all = {0};

	if (grow(st, &all, true, false))
		return true;
	if (st->type == SCRY_RUBY_T_OBJECT)
		return grow_beside_complex(st) || grow(st, &all, true, true);
	return grow_zero_field(st, &st->set);
}

/* --- the proof ---------------------------------------------------------------------------------*/

/*
 * Flag bits that are alike in all samples: an object that has others is in a state that was not
 * seen. The upper half holds the number of the shape, which says something only where the lower
 * half does not distinguish objects with variables of their own.
 */
static void find_same(struct study *st)
{
	struct scry_size_type *type = &st->rules->type[st->type];
	uint64_t set = ~0ull, clear = ~0ull;
	bool reported = false;

	for (size_t i = 0; i < st->sample_count; i++) {
		if (!is_of_type(st, &st->samples[i]) || st->samples[i].tag == SCRY_SAMPLE_IVARS)
			continue;
		set &= st->samples[i].flags;
		clear &= ~st->samples[i].flags;
	}
	for (int whole = 0; whole < 2 && !reported; whole++) {
		type->same_mask = (set | clear) & ~(uint64_t)(AGE_BITS | SCRY_RUBY_TYPE_MASK) &
				  (whole ? ~0ull : LOW);
		type->same_value = set & type->same_mask;
		reported = true;
		for (size_t i = 0; i < st->sample_count; i++) {
			const struct scry_size_sample *s = &st->samples[i];

			if (is_of_type(st, s) && s->tag == SCRY_SAMPLE_IVARS)
				reported = reported &&
					   (s->flags & type->same_mask) != type->same_value;
		}
	}
	if (!reported)
		st->why = "objects with instance variables look like others";
}

/* The rule that `flags` come to, NULL: none. */
static struct scry_size_rule *rule_of(struct study *st, uint64_t flags)
{
	const struct scry_size_type *type = &st->rules->type[st->type];

	for (uint32_t i = type->first; i < (uint32_t)type->first + type->count; i++) {
		struct scry_size_rule *rule = &st->rules->rule[i];

		if ((flags & rule->mask) == rule->value)
			return rule;
	}
	return NULL;
}

/* A guard that a held-out sample comes to: here is an object for which the bits disagree, so the
 * proof will show which of them decides. */
static void drop_met_guards(struct study *st)
{
	struct scry_size_type *type = &st->rules->type[st->type];

	for (size_t i = 0; i < st->sample_count; i++) {
		struct scry_size_rule *rule;

		if (!is_of_type(st, &st->samples[i]) || st->samples[i].tag != SCRY_SAMPLE_PLAIN)
			continue;
		while ((rule = rule_of(st, st->samples[i].flags)) &&
		       rule->kind == SCRY_SIZE_UNKNOWN) {
			struct scry_size_rule *end = &st->rules->rule[--st->rules->rule_count];

			memmove(rule, rule + 1, (size_t)(end - rule) * sizeof(*rule));
			type->count--;
		}
	}
}

/*
 * As find_same, for the bits of the type in the samples of each rule that counts something: a bit
 * that it has not been shown may be one more reason why nothing is outside. That there is nothing
 * is marked by a bit which no other could be taken for (guard_split), whatever else is set.
 */
static void find_same_of_rules(struct study *st)
{
	const struct scry_size_type *type = &st->rules->type[st->type];
	uint32_t bits = (uint32_t)(LOW << SCRY_SIZE_TYPE_BIT);

	for (uint32_t i = type->first; i < (uint32_t)type->first + type->count; i++) {
		struct scry_size_rule *rule = &st->rules->rule[i];
		uint32_t set = ~0u, clear = ~0u;

		if (rule->kind == SCRY_SIZE_NONE)
			continue;
		for (size_t k = 0; k < st->sample_count; k++) {
			const struct scry_size_sample *s = &st->samples[k];

			if (!is_of_type(st, s) || s->tag == SCRY_SAMPLE_IVARS ||
			    rule_of(st, s->flags) != rule)
				continue;
			set &= (uint32_t)s->flags;
			clear &= ~(uint32_t)s->flags;
		}
		rule->same_mask = (set | clear) & bits;
		rule->same_value = set & rule->same_mask & ~clear;
	}
}

/* Do all samples come out right? */
static bool prove(struct study *st, size_t *ret_held_out, size_t *ret_sizes)
{
	struct scry_size_rules rules;
	int64_t last = -1;

	scry_ruby_size_rules(st->infer->child, &rules);
	*ret_held_out = *ret_sizes = 0;
	for (size_t i = 0; i < st->sample_count; i++) {
		const struct scry_size_sample *s = &st->samples[i];
		int64_t extra;

		if (!is_of_type(st, s))
			continue;
		extra = scry_size_extra(&rules, scry_ruby_size_load, st->infer->child, s->addr,
					s->flags);
		/* A complex object may be unknown, no other. */
		if (extra != s->extra && (extra >= 0 || s->tag == SCRY_SAMPLE_PLAIN))
			return false;
		if (s->tag == SCRY_SAMPLE_IVARS)
			continue;
		*ret_held_out += s->held_out;
		*ret_sizes += extra > 0 && extra != last;
		last = extra;
	}
	return true;
}

static void say(struct study *st, size_t held_out, size_t sizes)
{
	struct scry_ruby_check check = {.how = "ObjectSpace.memsize_of in the child",
					.ok = !st->why};

	snprintf(check.item, sizeof(check.item), "size of %s", type_names[st->type]);
	if (st->why) {
		snprintf(check.value, sizeof(check.value), "slot only");
		snprintf(check.proof, sizeof(check.proof), "%s", st->why);
	} else {
		snprintf(check.value, sizeof(check.value), "%u rules",
			 st->rules->type[st->type].count);
		snprintf(check.proof, sizeof(check.proof), "%zu of %zu held-out samples, %zu sizes",
			 held_out, held_out, sizes);
	}
	scry_ruby_add_check(st->infer->target, &check);
}

/* Half of the samples make the rules; all must come out right. */
static void infer_type(struct study *st)
{
	struct scry_size_type *type = &st->rules->type[st->type];
	size_t held_out = 0, sizes = 0, n = 0;

	st->why = NULL;
	st->set.count = 0;
	st->set.type = st->type;
	for (size_t i = 0; i < st->sample_count; i++) {
		if (!is_of_type(st, &st->samples[i]) || st->samples[i].tag == SCRY_SAMPLE_IVARS)
			continue;
		/* 0 1 1 0: of two samples of one object each is the first in turn */
		st->samples[i].held_out = (n ^ n >> 1) & 1;
		if (!st->samples[i].held_out)
			st->set.at[st->set.count++] = &st->samples[i];
		n++;
	}
	*type = (struct scry_size_type){.first = (uint16_t)st->rules->rule_count};
	if (st->set.count == 0)
		st->why = "the child reported no samples";
	else if (!grow_any(st))
		st->why = "no rule explains the samples";
	if (!st->why) {
		drop_met_guards(st);
		find_same(st);
	}
	if (!st->why && !prove(st, &held_out, &sizes))
		st->why = "held-out samples have other sizes";
	if (!st->why)
		find_same_of_rules(st);
	else
		forget(st);
	say(st, held_out, sizes);
}

int scry_infer_sizes(struct scry_infer *infer)
{
	struct study st = {.infer = infer, .rules = &infer->child->layout.sizes};

	st.samples = calloc(SAMPLES_MAX, sizeof(*st.samples));
	st.set.at = calloc(SAMPLES_MAX, sizeof(st.set.at[0]));
	if (st.samples && st.set.at) {
		collect(&st);
		for (st.type = 0; st.type < SCRY_SIZE_TYPES; st.type++) {
			if (type_names[st.type])
				infer_type(&st);
		}
	}
	free(st.samples);
	free(st.set.at);
	return 0;
}
