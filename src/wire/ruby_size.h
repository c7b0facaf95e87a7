/*
 * How many bytes a Ruby object has outside its slot: rules as data, and the one evaluator of them.
 *
 * The rules are learned (vm/ruby_infer_size.c); nothing here knows a version. The evaluator gets
 * its loads from the caller: the agent loads in place, inside the FREEOBJ event; the host reads
 * another process. With a constant `load` all of it is inlined, so it makes no call and needs no
 * relocation.
 *
 * Of an object just made (NEWOBJ) only flags and class are written: ask when it is freed, or of a
 * living one. All zero: no type is known.
 */
#ifndef SCRY_WIRE_RUBY_SIZE_H
#define SCRY_WIRE_RUBY_SIZE_H

#include <stdint.h>

#define SCRY_INLINED static inline __attribute__((always_inline))
#define SCRY_SIZE_TYPES 32u /* the low five bits of the flags */
#define SCRY_SIZE_RULES_MAX 64u
#define SCRY_SIZE_TABLES 4u
#define SCRY_SIZE_POWERS 32u
#define SCRY_SIZE_DIRECT 0xffffu /* no pointer in between */
#define SCRY_SIZE_MAX (1ll << 46)

enum scry_size_kind {
	SCRY_SIZE_UNKNOWN,
	SCRY_SIZE_NONE,	  /* nothing outside the slot, or what is there belongs to another object */
	SCRY_SIZE_CONST,  /* add */
	SCRY_SIZE_LINEAR, /* field at `at`, * scale + add */
	SCRY_SIZE_TABLE,  /* byte at `at` of a struct st_table selects from bytes[table] */
	SCRY_SIZE_SHAPE,  /* field of the object's shape, * scale + add */
};

/* Holds where (flags & mask) == value and, with word_at, the word there is `word`. */
struct scry_size_rule {
	uint64_t mask, value;
	uint32_t same_mask, same_value; /* as in scry_size_type */
	uint64_t word;
	uint8_t kind;	  /* enum scry_size_kind */
	uint8_t width;	  /* of the field: 1, 2, 4, 8 */
	uint8_t table;	  /* index into bytes */
	uint8_t relative; /* `word` is relative to the Ruby module: the host adds the bias */
	uint16_t word_at; /* 0: no word to test */
	uint16_t null_at; /* pointer: 0, nothing outside; TABLE: in it, not 0, bytes[table + 1] */
	uint16_t via;	  /* TABLE: pointer at object + via; SCRY_SIZE_DIRECT: in the object */
	uint16_t at;	  /* of the field: in the object, the st_table, the shape */
	uint32_t scale;
	int32_t add;
};
_Static_assert(sizeof(struct scry_size_rule) == 56, "goes to the agent");

/* The rules of one type, tried in order; none holds: unknown. */
struct scry_size_type {
	uint64_t same_mask, same_value; /* flag bits that all samples had alike; else: unknown */
	uint16_t first, count;
	uint32_t reserved;
};

struct scry_size_rules {
	struct scry_size_type type[SCRY_SIZE_TYPES];
	struct scry_size_rule rule[SCRY_SIZE_RULES_MAX];
	int64_t bytes[SCRY_SIZE_TABLES][SCRY_SIZE_POWERS]; /* -1: unknown */
	/* The shape of an object: list + stride * (flags >> shape_shift & shape_mask). The list is
	 * the word at shape_root, or the word at shape_inner of what that points to. */
	uint64_t shape_root; /* relative to the Ruby module until the host adds the bias; 0: none */
	uint32_t shape_mask;
	uint16_t shape_stride, shape_inner;
	uint32_t shape_shift;
	uint32_t rule_count;
};

/* Reads `width` bytes, zero-extended. 0, or not 0 when they are not there. */
typedef int (*scry_load_fn)(void *ctx, uint64_t address, uint32_t width, uint64_t *ret);

static inline int scry_size_is_pointer(uint64_t value)
{
	return !(value & 7) && value > 0x10000 && value < 0x7fffffffffffull;
}

/* Address of the object's shape, 0 when it is not known. */
SCRY_INLINED uint64_t scry_size_shape(const struct scry_size_rules *rules, scry_load_fn load,
				      void *ctx, uint64_t flags)
{
	uint64_t list, id = flags >> rules->shape_shift & rules->shape_mask;

	if (!rules->shape_root || load(ctx, rules->shape_root, 8, &list))
		return 0;
	if (rules->shape_inner != SCRY_SIZE_DIRECT &&
	    (!scry_size_is_pointer(list) || load(ctx, list + rules->shape_inner, 8, &list)))
		return 0;
	return scry_size_is_pointer(list) ? list + id * rules->shape_stride : 0;
}

SCRY_INLINED int64_t scry_size_by_rule(const struct scry_size_rules *rules,
				       const struct scry_size_rule *rule, scry_load_fn load,
				       void *ctx, uint64_t object, uint64_t flags)
{
	uint64_t field = 0, word = 0, base = object;

	if (rule->kind <= SCRY_SIZE_NONE)
		return rule->kind == SCRY_SIZE_NONE ? 0 : -1;
	if (rule->null_at && rule->kind != SCRY_SIZE_TABLE) {
		if (load(ctx, base + rule->null_at, 8, &field))
			return -1;
		if (field == 0)
			return 0;
	}
	if (rule->kind == SCRY_SIZE_CONST)
		return rule->add;
	if (rule->kind == SCRY_SIZE_SHAPE)
		base = scry_size_shape(rules, load, ctx, flags);
	if (rule->kind == SCRY_SIZE_TABLE && rule->via != SCRY_SIZE_DIRECT &&
	    load(ctx, base + rule->via, 8, &base))
		return -1;
	if (!scry_size_is_pointer(base) || load(ctx, base + rule->at, rule->width, &field))
		return -1;
	if (rule->kind == SCRY_SIZE_TABLE) {
		if (rule->null_at && load(ctx, base + rule->null_at, 8, &word))
			return -1;
		return field < SCRY_SIZE_POWERS ? rules->bytes[rule->table + !!word][field] : -1;
	}
	return field < (uint64_t)SCRY_SIZE_MAX ? (int64_t)field * rule->scale + rule->add : -1;
}

/* Bytes that `object`, whose first word is `flags`, has outside its slot; -1 unknown. */
SCRY_INLINED int64_t scry_size_extra(const struct scry_size_rules *rules, scry_load_fn load,
				     void *ctx, uint64_t object, uint64_t flags)
{
	const struct scry_size_type *type = &rules->type[flags % SCRY_SIZE_TYPES];
	const struct scry_size_rule *rule = &rules->rule[type->first], *end = rule + type->count;
	uint64_t word;

	if ((flags & type->same_mask) != type->same_value)
		return -1;
	for (; rule != end; rule++) {
		if ((flags & rule->mask) != rule->value)
			continue;
		if (rule->word_at && load(ctx, object + rule->word_at, 8, &word))
			return -1;
		if (rule->word_at && word != rule->word)
			continue;
		if ((flags & rule->same_mask) != rule->same_value)
			return -1;
		return scry_size_by_rule(rules, rule, load, ctx, object, flags);
	}
	return -1;
}

#endif
