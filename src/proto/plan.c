/*
 * Types are gone through in breadth: what several pointers of one level lead to is read at once.
 */
#include "proto/plan.h"

#include <string.h>

#define TODO_MAX 256u
#define FOLLOWED_MAX 8u /* pointers within pointers */

/* A value whose pointers are to be followed: where it is, and of what type. */
struct value {
	const struct scry_type *type;
	const struct scry_type *outer;	/* the struct that it is a field of; NULL: none */
	const struct scry_place *place; /* of an argument or a result; NULL: in a part */
	uint32_t offset;		/* in the argument or part */
	uint32_t outer_offset;
	uint8_t part;
	uint8_t depth;
	bool is_sure;
	bool is_format;
};

struct making {
	const struct scry_proto *proto;
	const struct scry_plan_opts *opts;
	struct scry_type_places places;
	struct scry_plan *plan;
	bool is_back;
	struct value todo[TODO_MAX];
	uint32_t first, count;
};

static void add_value(struct making *m, const struct value *v)
{
	if (m->count < TODO_MAX)
		m->todo[m->count++] = *v;
	else
		m->plan->left_out++;
}

/* Where a word of the entry is found at the return. SCRY_AT_NOWHERE: no room to keep it. */
static uint8_t keep(struct making *m, uint8_t at)
{
	struct scry_call_plan *h = &m->plan->head;

	if (at >= SCRY_AT_SAVED || at == SCRY_AT_NOWHERE || !m->is_back)
		return at;
	for (uint8_t i = 0; i < h->saved_count; i++)
		if (h->saved[i] == at)
			return (uint8_t)(SCRY_AT_SAVED + i);
	if (h->saved_count == SCRY_PLAN_SAVED_MAX)
		return SCRY_AT_NOWHERE;
	h->saved[h->saved_count] = at;
	return (uint8_t)(SCRY_AT_SAVED + h->saved_count++);
}

/* The word at `offset` of an argument or a result. */
static uint8_t word_of(struct making *m, const struct scry_place *place, uint32_t offset)
{
	uint32_t word = offset / 8;

	if (offset % 8 || place->is_lost)
		return SCRY_AT_NOWHERE;
	if (place->is_memory)
		return place->at[0] + word < SCRY_AT_SAVED ? keep(m, (uint8_t)(place->at[0] + word))
							   : SCRY_AT_NOWHERE;
	if (word > 1 || (place->at[word] >= SCRY_AT_VECTOR && place->at[word] < SCRY_AT_STACK))
		return SCRY_AT_NOWHERE;
	return keep(m, place->at[word]);
}

/* Does showing it take what is known at the return only? */
static bool is_of_return(const struct scry_type *t)
{
	for (uint32_t i = 0; i < FOLLOWED_MAX && t; i++) {
		if (t->kind == SCRY_TYPE_ARRAY && t->length.kind == SCRY_LENGTH_RESULT)
			return true;
		t = t->kind == SCRY_TYPE_POINTER || t->kind == SCRY_TYPE_ARRAY ? t->inner : NULL;
	}
	return false;
}

static bool has_text(const struct scry_type *t)
{
	if (t->kind == SCRY_TYPE_ARRAY)
		t = t->inner;
	if (t->kind == SCRY_TYPE_CHAR)
		return true;
	for (uint32_t i = 0; t->kind == SCRY_TYPE_STRUCT && i < t->count; i++) {
		const struct scry_type *f = t->fields[i];

		if (f->kind == SCRY_TYPE_CHAR || f->kind == SCRY_TYPE_ARRAY ||
		    f->kind == SCRY_TYPE_STRUCT)
			return true;
	}
	return false;
}

/* Wide characters, shown as text. */
static bool is_wide_text(const struct scry_type *pointer)
{
	const struct scry_type *t = pointer->inner;

	return (pointer->lens == SCRY_LENS_STRING || t->lens == SCRY_LENS_STRING) &&
	       t->kind == SCRY_TYPE_ARRAY && scry_type_is_integer(t->inner) && t->inner->size == 4;
}

/* Where the length of `array` is. False: that is not known. */
static bool put_length(struct making *m, const struct value *v, const struct scry_type *array,
		       struct scry_fetch *op)
{
	const struct scry_length *length = &array->length;
	const struct scry_type *t = NULL;
	uint32_t i = length->value;

	op->length_from = SCRY_AT_NOWHERE;
	if (length->kind == SCRY_LENGTH_RESULT && m->is_back) {
		t = m->proto->result;
		op->length_from = word_of(m, &m->places.result, 0);
		op->flags |= SCRY_FETCH_RESULT;
	} else if (length->kind == SCRY_LENGTH_ARG && i < m->proto->count) {
		t = m->proto->args[i];
		op->length_from = word_of(m, &m->places.args[i], 0);
	} else if (length->kind == SCRY_LENGTH_ELEMENT && v->outer && i < v->outer->count) {
		t = v->outer->fields[i];
		if (v->place) {
			op->length_from =
				word_of(m, v->place, v->outer_offset + v->outer->offsets[i]);
		} else {
			op->length_from = SCRY_AT_PART;
			op->length_part = v->part;
			op->length_offset = (uint16_t)(v->outer_offset + v->outer->offsets[i]);
		}
	}
	op->flags |= SCRY_FETCH_HAS_LENGTH | (t && t->size == 4 ? SCRY_FETCH_INT : 0);
	return op->length_from != SCRY_AT_NOWHERE && t && scry_type_is_integer(t) && t->size >= 4;
}

static uint64_t elements(const struct making *m)
{
	return m->opts->elements ? m->opts->elements : SCRY_ARRAY_SHOWN;
}

/* How much of what it points to. False: that is not known. */
static bool put_size(struct making *m, const struct value *v, struct scry_fetch *op)
{
	const struct scry_type *t = v->type->inner, *element = t->inner;
	bool is_string = v->type->lens == SCRY_LENS_STRING || t->lens == SCRY_LENS_STRING;
	uint64_t shown = is_string ? m->opts->string_max : elements(m), bytes = t->size;

	op->scale = 1;
	if (t->kind == SCRY_TYPE_ARRAY) {
		bool is_nul = t->length.kind == SCRY_LENGTH_ENDLESS || t->length.is_zero;

		if (v->type->lens == SCRY_LENS_BITVEC || t->lens == SCRY_LENS_BITVEC)
			shown = 512;
		op->scale = (uint16_t)(element->size < 4096 ? element->size : 4096);
		bytes = shown * element->size;
		if (t->length.kind == SCRY_LENGTH_NUMBER && t->size < bytes)
			bytes = t->size;
		/* where wide elements end is looked for when they are shown */
		if (t->length.kind == SCRY_LENGTH_ENDLESS || t->length.kind == SCRY_LENGTH_NUMBER)
			op->length =
				is_nul && element->size == 1 ? SCRY_FETCH_NUL : SCRY_FETCH_FIXED;
		else if (!put_length(m, v, t, op))
			return false;
		else
			op->length =
				is_nul && element->size == 1 ? SCRY_FETCH_BOTH : SCRY_FETCH_COUNT;
		if (op->length == SCRY_FETCH_FIXED && t->length.kind == SCRY_LENGTH_ENDLESS)
			bytes += element->size;
	}
	if (!bytes && op->length == SCRY_FETCH_FIXED)
		return false;
	op->max = (uint16_t)(bytes < SCRY_CALL_TEXT_MAX ? bytes : SCRY_CALL_TEXT_MAX);
	return is_string ? m->opts->string_max != 0 : true;
}

static void add_op(struct making *m, const struct value *v)
{
	struct scry_call_plan *h = &m->plan->head;
	uint8_t *count = m->is_back ? &h->back : &h->entry;
	struct scry_fetch *op = &m->plan->ops[*count + (m->is_back ? h->entry : 0)];
	uint8_t marks = v->type->marks | v->type->inner->marks;
	struct value inner = {
		.type = v->type->inner, .part = *count, .depth = (uint8_t)(v->depth + 1)};

	if (m->opts->is_sure_only && !v->is_sure)
		return;
	if (*count == SCRY_PLAN_OPS_MAX || v->depth == FOLLOWED_MAX) {
		m->plan->left_out++;
		return;
	}
	*op = (struct scry_fetch){.from = SCRY_AT_PART, .part = v->part};
	if (v->place)
		op->from = word_of(m, v->place, v->offset);
	op->offset = (uint16_t)v->offset;
	if (op->from == SCRY_AT_NOWHERE || v->offset > UINT16_MAX || !put_size(m, v, op))
		return;
	op->flags |= (v->is_sure ? SCRY_FETCH_SURE : 0) |
		     (marks & SCRY_MARK_SQL ? SCRY_FETCH_SQL : 0) |
		     (marks & SCRY_MARK_MYSQL ? SCRY_FETCH_MYSQL : 0) |
		     (has_text(v->type->inner) || is_wide_text(v->type) ? SCRY_FETCH_TEXT : 0) |
		     (v->is_format ? SCRY_FETCH_FORMAT : 0);
	m->plan->is_unsure |= !v->is_sure || v->is_format;
	++*count;
	add_value(m, &inner);
}

/* What a value holds is looked at next. */
static void add_inner(struct making *m, const struct value *v)
{
	const struct scry_type *t = v->type;
	struct value inner = *v;

	if (t->kind == SCRY_TYPE_STRUCT) {
		inner.outer = t;
		inner.outer_offset = v->offset;
		for (uint32_t i = 0; i < t->count; i++) {
			inner.type = t->fields[i];
			inner.offset = v->offset + t->offsets[i];
			if (inner.type->kind >= SCRY_TYPE_STRUCT)
				add_value(m, &inner);
		}
	} else if (t->kind == SCRY_TYPE_ARRAY && t->inner->kind >= SCRY_TYPE_STRUCT) {
		uint64_t n = elements(m);

		if (t->length.kind == SCRY_LENGTH_NUMBER && t->length.value < n)
			n = t->length.value;
		inner.outer = NULL;
		inner.type = t->inner;
		for (uint64_t i = 0; i < n; i++) {
			inner.offset = (uint32_t)(v->offset + i * t->inner->size);
			add_value(m, &inner);
		}
	}
}

static void run(struct making *m)
{
	for (m->first = 0; m->first < m->count; m->first++) {
		const struct value v = m->todo[m->first];

		if (v.type->lens == SCRY_LENS_HIDE)
			continue;
		if (scry_type_is_followed(v.type))
			add_op(m, &v);
		else
			add_inner(m, &v);
	}
	m->count = 0;
}

/* What is shown at the return is fetched there, as ltrace does: files rely on it. But not what the
 * function reads first thing. */
static bool is_fetched_back(const struct scry_proto *proto, uint32_t arg)
{
	if (proto->format == arg + 1 || proto->args[arg]->marks & SCRY_MARK_SURE)
		return false;
	return arg >= proto->right || is_of_return(proto->args[arg]);
}

static void add_args(struct making *m)
{
	for (uint32_t i = 0; i < m->proto->count; i++) {
		const struct value v = {
			.type = m->proto->args[i],
			.place = &m->places.args[i],
			.is_sure = m->proto->args[i]->marks & SCRY_MARK_SURE,
			.is_format = m->proto->format == i + 1,
		};

		if (is_fetched_back(m->proto, i) == m->is_back)
			add_value(m, &v);
	}
}

/* A result that lies in memory is where rax points to. */
static void add_result(struct making *m)
{
	struct value v = {.type = m->proto->result, .place = &m->places.result};

	if (m->places.result.is_memory) {
		struct scry_fetch *op = &m->plan->ops[m->plan->head.entry + m->plan->head.back];
		uint64_t bytes = v.type->size;

		if (m->opts->is_sure_only)
			return;
		*op = (struct scry_fetch){
			.from = SCRY_AT_RAX,
			.scale = 1,
			.max = (uint16_t)(bytes < SCRY_CALL_TEXT_MAX ? bytes : SCRY_CALL_TEXT_MAX),
			.flags = has_text(v.type) ? SCRY_FETCH_TEXT : 0};
		m->plan->is_unsure = true;
		v.part = m->plan->head.back++;
		v.place = NULL;
	}
	add_value(m, &v);
}

static void count_registers(struct making *m)
{
	struct scry_plan *plan = m->plan;
	struct scry_call_plan *h = &plan->head;

	plan->args = m->places.registers;
	h->vectors = m->places.vectors;
	h->stack = m->places.stack < SCRY_PLAN_STACK_MAX ? m->places.stack : SCRY_PLAN_STACK_MAX;
	h->named_registers = m->places.registers;
	h->named_vectors = m->places.vectors;
	h->named_stack = m->places.stack;
	for (uint32_t i = 0; i < 2 && !m->places.result.is_memory; i++) {
		uint8_t at = m->places.result.at[i];

		h->back_words |= at == SCRY_AT_RDX ? SCRY_BACK_RDX : 0;
		if (at >= SCRY_AT_VECTOR && at < SCRY_AT_STACK)
			h->back_vectors = (uint8_t)(at - SCRY_AT_VECTOR + 1);
	}
	if (m->opts->has_errno && m->proto->result->marks & SCRY_MARK_ERRNO)
		h->back_words |=
			SCRY_BACK_ERRNO |
			(m->proto->result->kind == SCRY_TYPE_POINTER ? SCRY_BACK_ERRNO_NULL : 0);
	if (m->proto->format)
		plan->args = SCRY_CALL_ARGS_MAX;
}

void scry_plan_make(const struct scry_proto *proto, const struct scry_plan_opts *opts,
		    struct scry_plan *ret)
{
	struct making m = {.proto = proto, .opts = opts, .plan = ret};
	const struct scry_call_plan *h = &ret->head;

	*ret = (struct scry_plan){0};
	scry_places_find(proto, &m.places);
	count_registers(&m);
	add_args(&m);
	run(&m);
	m.is_back = true;
	add_result(&m);
	add_args(&m);
	run(&m);
	ret->is_needed =
		h->entry || h->back || h->vectors || h->stack || h->back_words || h->back_vectors;
}
