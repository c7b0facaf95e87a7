/*
 * The formulas that may say how many bytes an object has outside its slot: nothing, a constant, a
 * field times a scale, a table by the power of an st_table (st.c, st_memsize), the capacity that
 * the object's shape holds (shape.h).
 *
 * Each is looked for at all places of the object. It must explain all samples of a set, and enough
 * different values, at exactly one place.
 */
#include <string.h>

#include "vm/ruby_infer_size.h"

#define LEAF_MIN 3u	/* samples that prove "nothing" or a constant */
#define VALUES_MIN 5u	/* different sizes that prove a field */
#define POWERS_MIN 6u	/* different powers that prove a table */
#define BINS_MAX 48u	/* where in an st_table the pointer to its bins may be */
#define FIELD_FIRST 16u /* flags and class come before */
#define SCALE_MAX 4096u
#define TRIED_MAX 1024u

static bool field_of(const struct scry_size_sample *s, uint32_t at, uint32_t width, uint64_t *ret)
{
	*ret = 0;
	if (at + width > s->head_size)
		return false;
	memcpy(ret, s->head + at, width);
	return true;
}

/* How many different values of `extra` there are, up to `enough`. */
static size_t different(const struct scry_size_set *set, size_t enough)
{
	int64_t seen[16];
	size_t n = 0;

	for (size_t i = 0; i < set->count && n < enough; i++) {
		size_t k = 0;

		while (k < n && seen[k] != set->at[i]->extra)
			k++;
		if (k == n)
			seen[n++] = set->at[i]->extra;
	}
	return n;
}

static bool infer_none(const struct scry_size_set *set, struct scry_size_rule *ret)
{
	for (size_t i = 0; i < set->count; i++) {
		if (set->at[i]->extra)
			return false;
	}
	*ret = (struct scry_size_rule){.kind = SCRY_SIZE_NONE};
	return set->count >= LEAF_MIN;
}

/* One size, or nothing where a pointer is 0. */
static bool infer_const(const struct scry_size_set *set, struct scry_size_rule *ret)
{
	int64_t add = 0;
	bool zeros = false;

	for (size_t i = 0; i < set->count; i++) {
		if (set->at[i]->extra && add && set->at[i]->extra != add)
			return false;
		if (set->at[i]->extra)
			add = set->at[i]->extra;
		else
			zeros = true;
	}
	*ret = (struct scry_size_rule){.kind = SCRY_SIZE_CONST, .add = (int32_t)add};
	if (!zeros)
		return set->count >= LEAF_MIN && add;
	for (uint32_t at = FIELD_FIRST; at + 8 <= SCRY_SIZE_HEAD; at += 8) {
		bool fits = true;

		for (size_t i = 0; i < set->count && fits; i++) {
			uint64_t word;

			fits = field_of(set->at[i], at, 8, &word) &&
			       (word == 0) == (set->at[i]->extra == 0);
		}
		ret->null_at = (uint16_t)at;
		if (fits)
			return set->count >= LEAF_MIN;
	}
	return false;
}

/* Scale and add from two samples, then all must agree. */
static bool is_affine(const struct scry_size_set *set, struct scry_size_rule *ret)
{
	const struct scry_size_sample *a = set->at[0];
	uint64_t first, value;
	int64_t scale = 0;

	if (!field_of(a, ret->at, ret->width, &first))
		return false;
	for (size_t i = 1; i < set->count && !scale; i++) {
		if (!field_of(set->at[i], ret->at, ret->width, &value))
			return false;
		if (value == first && set->at[i]->extra != a->extra)
			return false;
		if (value != first)
			scale = (set->at[i]->extra - a->extra) / (int64_t)(value - first);
	}
	if (scale <= 0 || scale > SCALE_MAX || first > SCRY_SIZE_MAX)
		return false;
	ret->scale = (uint32_t)scale;
	ret->add = (int32_t)(a->extra - (int64_t)first * scale);
	for (size_t i = 0; i < set->count; i++) {
		if (!field_of(set->at[i], ret->at, ret->width, &value) || value > SCRY_SIZE_MAX ||
		    (int64_t)value * scale + ret->add != set->at[i]->extra)
			return false;
	}
	return true;
}

typedef bool (*formula_fn)(const struct scry_size_set *set, struct scry_size_rule *ret);

/*
 * The one field for which `fits` holds. Of several widths at a place the widest: a narrower one
 * reads the same. Two places that both explain all prove neither.
 */
static bool infer_field(const struct scry_size_set *set, formula_fn fits,
			struct scry_size_rule *ret)
{
	unsigned int hits = 0;
	uint32_t end = 0;

	if (different(set, VALUES_MIN) < VALUES_MIN)
		return false;
	for (uint32_t at = FIELD_FIRST; at < SCRY_SIZE_HEAD; at++) {
		for (uint32_t width = 8; width && at >= end; width /= 2) {
			struct scry_size_rule rule = {.kind = SCRY_SIZE_LINEAR,
						      .at = (uint16_t)at,
						      .width = (uint8_t)width};

			if (at % width || !fits(set, &rule))
				continue;
			end = at + width;
			hits++;
			*ret = rule;
		}
	}
	return hits == 1;
}

/* --- st_table ----------------------------------------------------------------------------------*/

/* Does this byte select the size? Fills bytes for the powers that were seen. */
static bool is_power(struct scry_infer *infer, const struct scry_size_set *set,
		     const struct scry_size_rule *rule, int64_t bytes[2][SCRY_SIZE_POWERS])
{
	unsigned int n = 0;

	memset(bytes, -1, 2 * sizeof(bytes[0]));
	for (size_t i = 0; i < set->count; i++) {
		uint64_t base = set->at[i]->addr, word, bins = 0;
		int64_t *entry;
		uint8_t power;

		if (rule->via != SCRY_SIZE_DIRECT &&
		    (!field_of(set->at[i], rule->via, 8, &base) || !scry_size_is_pointer(base)))
			return false;
		if (!scry_infer_word(infer, (base + rule->at) & ~7ull, &word) ||
		    (rule->null_at && !scry_infer_word(infer, base + rule->null_at, &bins)))
			return false;
		power = (uint8_t)(word >> (base + rule->at) % 8 * 8);
		entry = &bytes[bins != 0][power % SCRY_SIZE_POWERS];
		if (power >= SCRY_SIZE_POWERS || (*entry >= 0 && *entry != set->at[i]->extra))
			return false;
		*entry = set->at[i]->extra;
	}
	for (size_t t = 0; t < 2; t++) {
		int64_t last = 0;

		for (size_t i = 0; i < SCRY_SIZE_POWERS; i++) {
			if (bytes[t][i] >= 0 && bytes[t][i] <= last)
				return false;
			last = bytes[t][i] >= 0 ? bytes[t][i] : last;
			n += bytes[t][i] >= 0;
		}
	}
	return n >= POWERS_MIN;
}

/*
 * Larger tables than a child should make: each power doubles entries and bins, and a bin has the
 * same width from 2^16 to 2^31 entries (st.c, features). Only where the sizes seen obey: the
 * constant part is the same in the smallest tables, which have no bins, and in the largest.
 */
static void extend_powers(const int64_t small[SCRY_SIZE_POWERS], int64_t large[SCRY_SIZE_POWERS])
{
	size_t top = SCRY_SIZE_POWERS - 1, low = 0;
	int64_t constant;

	while (top > 0 && large[top] < 0)
		top--;
	while (low < 4 && small[low] < 0)
		low++;
	if (top < 17 || low + 1 > 4 || large[top - 1] < 0 || small[low + 1] < 0)
		return;
	constant = 2 * large[top - 1] - large[top];
	if (constant != 2 * small[low] - small[low + 1])
		return;
	for (size_t i = top + 1; i < SCRY_SIZE_POWERS; i++)
		large[i] = 2 * large[i - 1] - constant;
}

/* With the table of a st_table given: by the power alone, or by the power and whether there are
 * bins, as a small table may have them too. */
static bool infer_power(struct scry_infer *infer, const struct scry_size_set *set,
			struct scry_size_rule *ret)
{
	int64_t bytes[2][SCRY_SIZE_POWERS];

	for (uint32_t bins = 0; bins <= BINS_MAX; bins += 8) {
		ret->null_at = (uint16_t)(bins ? (ret->at & ~7u) + bins : 0);
		if (is_power(infer, set, ret, bytes))
			return true;
	}
	return false;
}

static bool infer_table(struct scry_infer *infer, const struct scry_size_set *set,
			struct scry_size_rule *ret)
{
	if (different(set, POWERS_MIN) < POWERS_MIN)
		return false;
	*ret = (struct scry_size_rule){
		.kind = SCRY_SIZE_TABLE, .width = 1, .via = SCRY_SIZE_DIRECT};
	for (uint32_t at = FIELD_FIRST; at < set->at[0]->head_size; at++) {
		ret->at = (uint16_t)at;
		if (infer_power(infer, set, ret))
			return true;
	}
	for (uint32_t via = FIELD_FIRST; via + 8 <= set->at[0]->head_size; via += 8) {
		ret->via = (uint16_t)via;
		for (uint32_t at = 0; at < 8; at++) {
			ret->at = (uint16_t)at;
			if (infer_power(infer, set, ret))
				return true;
		}
	}
	return false;
}

void scry_infer_table_bytes(struct scry_infer *infer, const struct scry_size_set *set,
			    const struct scry_size_rule *rule, int64_t ret[2][SCRY_SIZE_POWERS])
{
	if (is_power(infer, set, rule, ret))
		extend_powers(ret[0], ret[rule->null_at != 0]);
}

/* --- shapes ------------------------------------------------------------------------------------*/

/* The capacities of the samples' shapes, with the list at `base`? */
static bool is_capacity(struct scry_infer *infer, const struct scry_size_set *set, uint64_t base,
			const struct scry_size_rule *rule)
{
	const struct scry_size_rules *r = &infer->child->layout.sizes;

	for (size_t i = 0; i < set->count; i++) {
		uint64_t id = set->at[i]->flags >> r->shape_shift & r->shape_mask;
		uint64_t at = base + id * r->shape_stride + rule->at, word;

		if (!scry_infer_word(infer, at & ~7ull, &word))
			return false;
		word = word >> at % 8 * 8 & ((1ull << rule->width * 8) - 1);
		if ((int64_t)word * rule->scale != set->at[i]->extra)
			return false;
	}
	return true;
}

/* Tries each way to cut an array of structs, and each field in it. */
static bool is_shape_list(struct scry_infer *infer, const struct scry_size_set *set, uint64_t base,
			  struct scry_size_rule *ret)
{
	struct scry_size_rules *r = &infer->child->layout.sizes;

	*ret = (struct scry_size_rule){.kind = SCRY_SIZE_SHAPE, .scale = 8};
	for (r->shape_stride = 16; r->shape_stride <= 96; r->shape_stride += 8) {
		for (ret->width = 4; ret->width >= 2; ret->width /= 2) {
			for (ret->at = 0; ret->at < r->shape_stride; ret->at += ret->width) {
				if (is_capacity(infer, set, base, ret))
					return true;
			}
		}
	}
	return false;
}

/* What a search for the list of shapes has seen. */
struct shape_search {
	struct scry_infer *infer;
	const struct scry_size_set *set;
	uint64_t used; /* bits that the numbers of the samples' shapes have */
	uint64_t tried[TRIED_MAX];
	size_t tried_count;
};

static bool is_tried(struct shape_search *search, uint64_t base)
{
	for (size_t i = 0; i < search->tried_count; i++) {
		if (search->tried[i] == base)
			return true;
	}
	if (search->tried_count < TRIED_MAX)
		search->tried[search->tried_count++] = base;
	return false;
}

/* The list is mapped or a large block: its address is that of a page, or a block's head behind
 * one. The number of the shape may have flags above it: as many bits as fit are the number. */
static bool try_list(struct shape_search *search, uint64_t base, struct scry_size_rule *ret)
{
	struct scry_size_rules *r = &search->infer->child->layout.sizes;

	if (!scry_size_is_pointer(base) || (base % 4096 && base % 4096 != 16) ||
	    is_tried(search, base))
		return false;
	r->shape_shift = 32;
	for (unsigned int bits = 32; bits >= 16; bits--) {
		if (bits < 32 && !(search->used >> bits & 1))
			continue; /* the same numbers as with one bit more */
		r->shape_mask = (uint32_t)((1ull << bits) - 1);
		if (is_shape_list(search->infer, search->set, base, ret))
			return true;
	}
	return false;
}

/* The word at `root`, or one of those behind it, as the list of shapes. */
static bool try_root(struct shape_search *search, uint64_t root, struct scry_size_rule *ret)
{
	const struct scry_ruby *child = search->infer->child;
	struct scry_size_rules *r = &search->infer->child->layout.sizes;
	uint64_t struct_size = root == child->bias + child->layout.vm_root ? 8192 : 64;
	uint64_t value, word;

	if (!scry_infer_word(search->infer, root, &value) || !scry_size_is_pointer(value))
		return false;
	r->shape_root = root - child->bias;
	r->shape_inner = SCRY_SIZE_DIRECT;
	if (try_list(search, value, ret))
		return true;
	for (uint64_t inner = 0; inner < struct_size; inner += 8) {
		r->shape_inner = (uint16_t)inner;
		if (scry_infer_word(search->infer, value + inner, &word) &&
		    try_list(search, word, ret))
			return true;
	}
	return false;
}

bool scry_infer_shape(struct scry_infer *infer, const struct scry_size_set *set,
		      struct scry_size_rule *ret)
{
	struct scry_size_rules *r = &infer->child->layout.sizes;
	const struct scry_ruby *child = infer->child;
	struct shape_search search = {.infer = infer, .set = set};

	if (different(set, VALUES_MIN) < VALUES_MIN)
		return false;
	for (size_t i = 0; i < set->count; i++)
		search.used |= set->at[i]->flags >> 32;
	for (size_t i = 0; i < child->maps.count; i++) {
		const struct scry_map_entry *e = &child->maps.entries[i];

		if (!scry_infer_is_data(child, i) || e->end - e->start > 64u << 20)
			continue;
		for (uint64_t at = e->start; at < e->end; at += 8) {
			if (try_root(&search, at, ret))
				return true;
		}
	}
	r->shape_root = 0;
	return false;
}

/* --- which formula -----------------------------------------------------------------------------*/

bool scry_infer_leaf(struct scry_infer *infer, const struct scry_size_set *set,
		     struct scry_size_rule *ret)
{
	*ret = (struct scry_size_rule){0};
	if (set->count == 0)
		return false;
	return infer_none(set, ret) || infer_const(set, ret) || infer_field(set, is_affine, ret) ||
	       infer_table(infer, set, ret);
}

/* What is left of the sample's size after field * scale. */
static bool rest_of(const struct scry_size_sample *s, const struct scry_size_rule *rule,
		    int64_t *ret)
{
	uint64_t value;

	if (!field_of(s, rule->at, rule->width, &value) || value > SCRY_SIZE_MAX)
		return false;
	*ret = s->extra - (int64_t)value * rule->scale;
	return *ret >= 0 && *ret < 64;
}

/* Fills `add` by the value of a flag field; -1 where no sample has the value. */
static bool adds_by_flags(const struct scry_size_set *set, const struct scry_size_rule *rule,
			  int8_t add[256], unsigned int seen[64])
{
	unsigned int shift = (unsigned int)__builtin_ctzll(rule->mask);

	memset(add, -1, 256);
	memset(seen, 0, 64 * sizeof(seen[0]));
	for (size_t i = 0; i < set->count; i++) {
		uint8_t value = (uint8_t)((set->at[i]->flags & rule->mask) >> shift);
		int64_t rest;

		if (!rest_of(set->at[i], rule, &rest) || (add[value] >= 0 && add[value] != rest))
			return false;
		add[value] = (int8_t)rest;
		seen[rest]++;
	}
	return true;
}

/* The one field of `width` flag bits that selects what is added; 0: none, or several. */
static uint64_t selecting_mask(const struct scry_size_set *set, struct scry_size_rule rule,
			       uint32_t width)
{
	uint64_t found = 0;
	int8_t add[256];
	unsigned int seen[64];

	for (uint32_t shift = SCRY_SIZE_TYPE_BIT; shift + width <= 32; shift++) {
		rule.mask = ((1ull << width) - 1) << shift;
		if (!adds_by_flags(set, &rule, add, seen))
			continue;
		if (found)
			return 0;
		found = rule.mask;
	}
	return found;
}

/* As is_affine, but what is added is selected by the narrowest field of the flags
 * that can do it; the rule's mask says which. */
static bool is_selected(const struct scry_size_set *set, struct scry_size_rule *ret)
{
	int64_t rest;

	for (ret->scale = 1; ret->scale <= 8; ret->scale *= 2) {
		size_t i = 0;

		while (i < set->count && rest_of(set->at[i], ret, &rest))
			i++;
		if (i < set->count)
			continue;
		for (uint32_t width = 1; width <= 8; width++) {
			ret->mask = selecting_mask(set, *ret, width);
			if (ret->mask)
				return true;
		}
	}
	return false;
}

size_t scry_infer_selected(const struct scry_size_set *set,
			   struct scry_size_rule ret[SCRY_SIZE_SELECTED_MAX])
{
	int8_t add[256];
	unsigned int seen[64], usual = 0;
	size_t n = 0;
	unsigned int shift;

	if (!infer_field(set, is_selected, &ret[0]) || !adds_by_flags(set, &ret[0], add, seen))
		return 0;
	shift = (unsigned int)__builtin_ctzll(ret[0].mask);
	for (unsigned int i = 0; i < 64; i++)
		usual = seen[i] > seen[usual] ? i : usual;
	for (unsigned int v = 0; v < 256; v++) {
		if (add[v] < 0 || add[v] == (int8_t)usual)
			continue;
		if (n + 1 == SCRY_SIZE_SELECTED_MAX)
			return 0;
		ret[n + 1] = ret[0];
		ret[n] = ret[0];
		ret[n].value = (uint64_t)v << shift;
		ret[n].add = add[v];
		n++;
	}
	ret[n].mask = ret[n].value = 0;
	ret[n].add = (int32_t)usual;
	return n + 1;
}
