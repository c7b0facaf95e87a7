/*
 * A value is shown by its type and the nearest lens around it, as ltrace does. Descent is bounded:
 * types by the depth of a text, pointers by DEPTH_MAX. Pointers of a target may lead to the same
 * bytes again and again, so what is shown of them in one go is bounded by SHOWN_MAX.
 */
#include "view/calls_value.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "proto/conversion.h"
#include "proto/plan.h"
#include "view/calls_number.h"
#include "view/calls_text.h"
#include "wire/call_format.h"

#define WIDE_MAX 0x10ffff
#define SMALL 10000 /* numbers nearer to 0 are not addresses */
#define DEPTH_MAX 40u
#define VALUES_MAX 65536u
#define VARARGS_MAX 32u
#define SHOWN_MAX (4u * 8u * SCRY_CALL_MORE_MAX) /* bytes of the target's: twice all of a call */

struct shown {
	const struct scry_call_image *image;
	const struct scry_proto *proto; /* NULL: its arguments are not asked for */
	const struct scry_type_places *places;
	const struct scry_call_out *out;
	const struct scry_type *followed[DEPTH_MAX];
	uint64_t addresses[DEPTH_MAX]; /* of what is being shown */
	uint32_t depth;
	uint32_t size; /* of what was shown so far, in the target's bytes */
	bool is_back;
};

struct value {
	const struct scry_type *type;
	enum scry_lens lens;  /* the nearest one */
	const uint8_t *bytes; /* `have` of them */
	uint64_t have;
	uint32_t flags;		       /* of the part that it is in */
	const struct scry_type *outer; /* the struct around it, and its bytes */
	const uint8_t *outer_bytes;
	uint64_t outer_have;
};

void scry_call_values_done(struct scry_call_values *v)
{
	for (size_t i = 0; i < v->count; i++)
		free((char *)(uintptr_t)v->values[i].bytes);
	free(v->values);
	*v = (struct scry_call_values){0};
}

static void push(const struct shown *s, struct scry_doc_value value)
{
	struct scry_call_values *v = s->out->values;

	if (v->count == v->room) {
		size_t room = v->room ? 2 * v->room : 16;
		struct scry_doc_value *more =
			room <= VALUES_MAX ? reallocarray(v->values, room, sizeof(*more)) : NULL;

		v->failed |= !more;
		if (!more)
			return;
		v->values = more;
		v->room = room;
	}
	if (value.kind == SCRY_VALUE_TEXT) {
		char *copy = malloc(value.number + 1);

		v->failed |= !copy;
		if (!copy)
			return;
		memcpy(copy, value.bytes, value.number);
		value.bytes = copy;
	}
	v->values[v->count++] = value;
}

static void put(const struct shown *s, const char *text)
{
	scry_buf_append(s->out->text, text, strlen(text));
}

static void show_unknown(const struct shown *s)
{
	if (s->out->text)
		put(s, "?");
	else
		push(s, (struct scry_doc_value){.kind = SCRY_VALUE_NULL});
}

static void show_address(const struct shown *s, uint64_t address)
{
	if (s->out->text && !address)
		put(s, "nil");
	else if (s->out->text)
		scry_call_put_based(s->out->text, address, 4);
	else
		push(s, (struct scry_doc_value){.kind = SCRY_VALUE_HEX, .number = address});
}

/* A number, extended to 64 bits as its type says. False: it is not known. */
static bool number_of(const struct scry_type *type, const uint8_t *bytes, uint64_t have,
		      uint64_t *ret)
{
	uint64_t n = 0;

	if (type->size > 8 || have < type->size)
		return false;
	memcpy(&n, bytes, type->size);
	switch (type->kind) {
	case SCRY_TYPE_CHAR:
		n = (uint64_t)(int64_t)(int8_t)n;
		break;
	case SCRY_TYPE_SHORT:
		n = (uint64_t)(int64_t)(int16_t)n;
		break;
	case SCRY_TYPE_INT:
		n = (uint64_t)(int64_t)(int32_t)n;
		break;
	default:
		break;
	}
	*ret = n;
	return true;
}

static void show_char(const struct shown *s, const struct scry_type *t, uint64_t n)
{
	const uint8_t byte = (uint8_t)n;

	if (s->out->values) {
		push(s, (struct scry_doc_value){.kind = SCRY_VALUE_SIGNED, .number = n});
		return;
	}
	put(s, "'");
	if (t->size == 1)
		scry_call_put_char(s->out->text, &byte, 1);
	else
		scry_call_put_wide(s->out->text, (uint32_t)n);
	put(s, "'");
}

static uint64_t cut_to(uint64_t n, uint64_t size)
{
	return size < 8 ? n & ((1ull << 8 * size) - 1) : n;
}

/* A name, in JSON with the number that it stands for. */
static void show_name(const struct shown *s, const char *name, size_t length,
		      struct scry_doc_value number)
{
	struct scry_call_values *v = s->out->values;

	if (v && !v->count) {
		v->is_enum = true;
		v->enumerated = number;
	}
	if (s->out->text)
		scry_buf_append(s->out->text, name, length);
	else
		push(s, (struct scry_doc_value){
				.kind = SCRY_VALUE_TEXT, .bytes = name, .number = length});
}

static struct scry_doc_value integer_of(const struct scry_type *t, uint64_t n, bool is_signed)
{
	return (struct scry_doc_value){.kind = is_signed ? SCRY_VALUE_SIGNED : SCRY_VALUE_UNSIGNED,
				       .number = is_signed ? n : cut_to(n, t->size)};
}

static void show_flags(const struct shown *s, const struct scry_type *t, uint64_t n, bool is_signed)
{
	struct scry_buf names = {0};

	scry_call_put_flags(&names, t, cut_to(n, t->size));
	show_name(s, scry_buf_str(&names), names.len, integer_of(t, n, is_signed));
	scry_buf_done(&names);
}

static bool show_enum(const struct shown *s, const struct scry_type *t, uint64_t n, bool is_signed)
{

	for (uint32_t i = 0; i < t->count; i++) {
		if (cut_to((uint64_t)t->names[i].value, t->size) != cut_to(n, t->size))
			continue;
		show_name(s, t->names[i].name, strlen(t->names[i].name),
			  integer_of(t, n, is_signed));
		return true;
	}
	return false;
}

static void show_integer(const struct shown *s, const struct value *v, uint64_t n)
{
	const struct scry_type *t = v->type;
	bool is_signed = t->kind == SCRY_TYPE_CHAR || t->kind == SCRY_TYPE_SHORT ||
			 t->kind == SCRY_TYPE_INT || t->kind == SCRY_TYPE_LONG;
	bool is_address = v->lens == SCRY_LENS_GUESS && n + SMALL > 2 * SMALL;

	if (v->lens == SCRY_LENS_ENUM && show_enum(s, t, n, is_signed))
		return;
	if (v->lens == SCRY_LENS_FLAGS) {
		show_flags(s, t, n, is_signed);
		return;
	}
	if ((t->kind == SCRY_TYPE_CHAR && v->lens == SCRY_LENS_NONE) ||
	    (v->lens == SCRY_LENS_STRING &&
	     (t->size == 1 || (t->size == 4 && cut_to(n, 4) <= WIDE_MAX)))) {
		show_char(s, t, n);
		return;
	}
	if (s->out->values) {
		enum scry_value_kind kind = v->lens == SCRY_LENS_BOOL ? SCRY_VALUE_BOOL
					    : is_address	      ? SCRY_VALUE_HEX
					    : is_signed && v->lens != SCRY_LENS_HEX
						    ? SCRY_VALUE_SIGNED
						    : SCRY_VALUE_UNSIGNED;

		push(s, (struct scry_doc_value){
				.kind = kind,
				.number = kind == SCRY_VALUE_SIGNED ? n : cut_to(n, t->size)});
	} else if (v->lens == SCRY_LENS_BOOL) {
		put(s, n ? "true" : "false");
	} else if (v->lens == SCRY_LENS_HEX || is_address) {
		scry_call_put_based(s->out->text, cut_to(n, t->size), 4);
	} else if (v->lens == SCRY_LENS_OCTAL || v->lens == SCRY_LENS_BINARY) {
		scry_call_put_based(s->out->text, cut_to(n, t->size),
				    v->lens == SCRY_LENS_OCTAL ? 3 : 1);
	} else if (is_signed) {
		scry_call_put_i64(s->out->text, (int64_t)n);
	} else {
		scry_call_put_u64(s->out->text, n, 1);
	}
}

static void show_real(const struct shown *s, double d, bool is_hex)
{
	struct scry_doc_value value = {.kind = SCRY_VALUE_DOUBLE};

	memcpy(&value.number, &d, sizeof(d));
	if (s->out->values)
		push(s, value);
	else
		scry_buf_printf(s->out->text, is_hex ? "%a" : "%f", d);
}

static void show_float(const struct shown *s, const struct value *v)
{
	double d = 0;
	float f = 0;

	if (v->have < v->type->size) {
		show_unknown(s);
		return;
	}
	memcpy(&d, v->bytes, v->type->size);
	memcpy(&f, v->bytes, sizeof(f));
	show_real(s, v->type->kind == SCRY_TYPE_FLOAT ? (double)f : d, v->lens == SCRY_LENS_HEX);
}

/* Numbers of the bits that are set, or, where these are more, of the bits that are not. */
static void show_bits(struct shown *s, const struct value *v)
{
	uint64_t size = v->type->size && v->type->size < v->have ? v->type->size : v->have;
	uint64_t bits = 0, first = 0;
	bool is_inside = false, is_more = false, is_inverse;
	struct scry_buf own = {0}, *buf = s->out->text ? s->out->text : &own;

	s->size += (uint32_t)size;
	for (uint64_t i = 0; i < size; i++)
		bits += (uint64_t)__builtin_popcount(v->bytes[i]);
	is_inverse = bits > size * 4;
	scry_buf_printf(buf, "%s<", is_inverse ? "~" : "");
	for (uint64_t i = 0; i <= 8 * size; i++) {
		bool is_set = i < 8 * size && (v->bytes[i / 8] >> (i % 8) & 1) != is_inverse;

		if (is_set && !is_inside)
			first = i;
		if (!is_set && is_inside) {
			scry_buf_printf(buf, "%s%" PRIu64, is_more ? "," : "", first);
			if (first < i - 1)
				scry_buf_printf(buf, "-%" PRIu64, i - 1);
			is_more = true;
		}
		is_inside = is_set;
	}
	scry_buf_append(buf, ">", 1);
	if (s->out->values) {
		uint64_t n = 0;

		memcpy(&n, v->bytes, size < 8 ? size : 8);
		push(s, (struct scry_doc_value){.kind = SCRY_VALUE_UNSIGNED, .number = n});
	}
	scry_buf_done(&own);
}

static void show(struct shown *s, const struct value *v);

static enum scry_lens lens_of(const struct value *outer, const struct scry_type *type)
{
	return type->lens ? (enum scry_lens)type->lens : outer->lens;
}

static void begin(const struct shown *s, const char *text)
{
	if (s->out->text)
		put(s, text);
	else
		push(s, (struct scry_doc_value){.kind = SCRY_VALUE_BEGIN});
}

static void end(const struct shown *s, const char *text)
{
	if (s->out->text)
		put(s, text);
	else
		push(s, (struct scry_doc_value){.kind = SCRY_VALUE_END});
}

/* Another value behind those before; one that shows nothing has no comma either. */
static void show_next(struct shown *s, const struct value *v, bool *need_comma)
{
	struct scry_buf *buf = s->out->text;
	size_t before = buf ? buf->len : 0, after;

	if (v->lens == SCRY_LENS_HIDE)
		return;
	if (buf && *need_comma)
		put(s, ", ");
	after = buf ? buf->len : 0;
	show(s, v);
	if (buf && buf->len == after && !buf->failed)
		buf->len = before;
	else
		*need_comma = true;
}

static void show_struct(struct shown *s, const struct value *v)
{
	bool need_comma = false;

	begin(s, "{ ");
	for (uint32_t i = 0; i < v->type->count; i++) {
		const struct scry_type *t = v->type->fields[i];
		uint64_t at = v->type->offsets[i];
		const struct value field = {.type = t,
					    .lens = lens_of(v, t),
					    .bytes = at < v->have ? v->bytes + at : v->bytes,
					    .have = at < v->have ? v->have - at : 0,
					    .flags = v->flags,
					    .outer = v->type,
					    .outer_bytes = v->bytes,
					    .outer_have = v->have};

		show_next(s, &field, &need_comma);
	}
	end(s, " }");
}

static bool is_zero(const uint8_t *bytes, uint64_t size)
{
	for (uint64_t i = 0; i < size; i++)
		if (bytes[i])
			return false;
	return true;
}

/* How many elements an array has, by its expression alone. False: not known. */
static bool length_of(const struct shown *s, const struct value *v, uint64_t *ret)
{
	const struct scry_length *l = &v->type->length;
	const struct scry_type *t = NULL;
	const struct scry_place *place = NULL;
	uint64_t word;

	switch (l->kind) {
	case SCRY_LENGTH_ENDLESS:
		*ret = UINT64_MAX;
		return true;
	case SCRY_LENGTH_NUMBER:
		*ret = l->value;
		return true;
	case SCRY_LENGTH_ELEMENT:
		t = v->outer && l->value < v->outer->count ? v->outer->fields[l->value] : NULL;
		return t && scry_type_is_integer(t) &&
		       v->outer->offsets[l->value] <= v->outer_have &&
		       number_of(t, v->outer_bytes + v->outer->offsets[l->value],
				 v->outer_have - v->outer->offsets[l->value], ret);
	case SCRY_LENGTH_ARG:
		if (l->value < s->proto->count) {
			t = s->proto->args[l->value];
			place = &s->places->args[l->value];
		}
		break;
	case SCRY_LENGTH_RESULT:
		t = s->proto->result;
		place = &s->places->result;
		break;
	}
	if (!t || !scry_type_is_integer(t) ||
	    !scry_call_word(s->image, l->kind == SCRY_LENGTH_RESULT, place->at[0], &word) ||
	    !number_of(t, (const uint8_t *)&word, sizeof(word), ret))
		return false;
	/* it failed: what lies there is not what it has written */
	return l->kind != SCRY_LENGTH_RESULT || (int64_t)*ret >= 0;
}

struct extent {
	uint64_t count; /* elements that are there, and known */
	bool is_cut;	/* there are more, or it is not known */
};

static bool extent_of(const struct shown *s, const struct value *v, struct extent *ret)
{
	uint64_t size = v->type->inner->size, known, want, n = 0;
	bool ends_at_zero = v->type->length.kind == SCRY_LENGTH_ENDLESS || v->type->length.is_zero;

	if (!size || !length_of(s, v, &want))
		return false;
	known = v->have / size;
	if (v->type->length.kind == SCRY_LENGTH_ENDLESS && v->flags & SCRY_PART_DIGEST)
		ends_at_zero = false;
	while (ends_at_zero && n < known && n < want && !is_zero(v->bytes + n * size, size))
		n++;
	if (!ends_at_zero)
		n = known < want ? known : want;
	ret->count = n;
	/* text is recorded up to its end, without it; other things with it */
	ret->is_cut = n < want && n == known;
	if (ends_at_zero && size == 1 && v->have && !(v->flags & SCRY_PART_CUT))
		ret->is_cut = false;
	if (v->flags & SCRY_PART_DIGEST ||
	    (ends_at_zero && !v->have && v->bytes && !(v->flags & SCRY_PART_CUT)))
		ret->is_cut = false;
	return true;
}

static void show_string(struct shown *s, const struct value *v)
{
	struct extent e;

	if (v->flags & SCRY_PART_DIGEST)
		e = (struct extent){.count = v->have, .is_cut = v->flags & SCRY_PART_CUT};
	else if (!extent_of(s, v, &e)) {
		show_unknown(s);
		return;
	}
	s->size += (uint32_t)e.count;
	if (s->out->values) {
		s->out->values->is_cut |= e.is_cut;
		push(s, (struct scry_doc_value){.kind = SCRY_VALUE_TEXT,
						.bytes = (const char *)v->bytes,
						.number = e.count});
		return;
	}
	put(s, "\"");
	for (uint64_t i = 0; i < e.count;)
		i += scry_call_put_char(s->out->text, v->bytes + i, e.count - i);
	put(s, e.is_cut ? "\"..." : "\"");
}

static bool is_wide_text(const struct value *v)
{
	return v->lens == SCRY_LENS_STRING && scry_type_is_integer(v->type->inner) &&
	       v->type->inner->size == 4;
}

/* Of wide characters, as UTF-8. */
static void show_wide_string(struct shown *s, const struct value *v)
{
	struct scry_buf text = {0};
	struct extent e;
	uint32_t c;

	if (v->flags & SCRY_PART_DIGEST) {
		show_string(s, v);
		return;
	}
	if (!extent_of(s, v, &e)) {
		show_unknown(s);
		return;
	}
	if (e.is_cut && e.count && v->type->length.kind == SCRY_LENGTH_ENDLESS)
		e.count--; /* that was read to see whether it is the end */
	s->size += 4 * (uint32_t)e.count;
	for (uint64_t i = 0; i < e.count; i++) {
		memcpy(&c, v->bytes + 4 * i, sizeof(c));
		if (s->out->text)
			scry_call_put_wide(&text, c);
		else
			scry_call_put_utf8(&text, c);
	}
	if (s->out->values) {
		s->out->values->is_cut |= e.is_cut;
		push(s, (struct scry_doc_value){.kind = SCRY_VALUE_TEXT,
						.bytes = scry_buf_str(&text),
						.number = text.len});
	} else {
		put(s, "\"");
		scry_buf_append(s->out->text, scry_buf_str(&text), text.len);
		put(s, e.is_cut ? "\"..." : "\"");
	}
	scry_buf_done(&text);
}

/* Enough was shown: from here on pointers are not followed, and arrays end. */
static bool is_spent(const struct shown *s)
{
	if (s->size > SHOWN_MAX && s->out->values)
		s->out->values->is_long = true;
	return s->size > SHOWN_MAX;
}

static void show_array(struct shown *s, const struct value *v)
{
	const struct scry_type *t = v->type->inner;
	const uint64_t most = s->out->elements ? s->out->elements : SCRY_ARRAY_SHOWN;
	bool need_comma = false;
	struct extent e;

	if (v->lens == SCRY_LENS_STRING && t->kind == SCRY_TYPE_CHAR) {
		show_string(s, v);
		return;
	}
	if (is_wide_text(v)) {
		show_wide_string(s, v);
		return;
	}
	if (!extent_of(s, v, &e)) {
		show_unknown(s);
		return;
	}
	begin(s, "[ ");
	if (e.count > most)
		e = (struct extent){.count = most, .is_cut = true};
	for (uint64_t i = 0; i < e.count; i++) {
		const struct value element = {.type = t,
					      .lens = lens_of(v, t),
					      .bytes = v->bytes + i * t->size,
					      .have = v->have - i * t->size,
					      .flags = v->flags};

		if (is_spent(s)) {
			e.is_cut = true;
			break;
		}
		show_next(s, &element, &need_comma);
	}
	end(s, s->out->values || !e.is_cut ? " ]" : "... ]");
}

/* "..." or "recurse^", where it has been shown, or so many of its kind, or enough of all. */
static bool show_recursion(const struct shown *s, const struct scry_type *to, uint64_t address)
{
	uint32_t descendants = 0;

	for (uint32_t i = 0; i < s->depth; i++)
		descendants += s->followed[i] == to;
	if ((to->kind == SCRY_TYPE_STRUCT && descendants >= SCRY_ARRAY_SHOWN) ||
	    s->depth == DEPTH_MAX || is_spent(s)) {
		if (s->out->text)
			put(s, "...");
		else
			show_address(s, address);
		return true;
	}
	for (uint32_t i = s->depth; i-- > 0;) {
		if (s->addresses[i] != address || s->followed[i] != to)
			continue;
		if (s->out->values) {
			show_address(s, address);
			return true;
		}
		put(s, "recurse");
		for (uint32_t up = s->depth - i - 1; up; up--)
			put(s, "^");
		return true;
	}
	return false;
}

static void show_pointer(struct shown *s, const struct value *v)
{
	const struct scry_type *to = v->type->inner;
	struct scry_call_memory memory;
	struct value inner = {.type = to, .lens = lens_of(v, to)};
	uint64_t address;

	if (!number_of(v->type, v->bytes, v->have, &address)) {
		show_unknown(s);
		return;
	}
	if (!address || to->kind == SCRY_TYPE_VOID) {
		show_address(s, address);
		return;
	}
	if (show_recursion(s, to, address))
		return;
	memory = scry_call_memory(s->image, address, s->is_back);
	inner.bytes = memory.bytes;
	inner.have = memory.have;
	inner.flags = memory.flags;
	inner.outer = v->outer; /* a length may be beside the pointer */
	inner.outer_bytes = v->outer_bytes;
	inner.outer_have = v->outer_have;
	if (to->kind == SCRY_TYPE_ARRAY && !memory.bytes) {
		uint64_t count;

		if (length_of(s, &inner, &count) && !count) {
			inner.bytes = (const uint8_t *)"";
			memory.bytes = inner.bytes;
		}
	}
	if (!memory.bytes || (to->kind != SCRY_TYPE_ARRAY && memory.have < to->size)) {
		show_address(s, address);
		return;
	}
	s->followed[s->depth] = to;
	s->addresses[s->depth++] = address;
	show(s, &inner);
	s->depth--;
}

static void show(struct shown *s, const struct value *v)
{
	uint64_t n;

	if (v->lens == SCRY_LENS_HIDE)
		return;
	if (v->type->kind != SCRY_TYPE_STRUCT && v->type->kind != SCRY_TYPE_ARRAY)
		s->size += 1 + v->type->size;
	if (v->type->kind == SCRY_TYPE_POINTER) {
		show_pointer(s, v);
	} else if (v->lens == SCRY_LENS_BITVEC) {
		show_bits(s, v);
	} else if (v->type->kind == SCRY_TYPE_STRUCT) {
		show_struct(s, v);
	} else if (v->type->kind == SCRY_TYPE_ARRAY) {
		show_array(s, v);
	} else if (scry_type_is_float(v->type)) {
		show_float(s, v);
	} else if (v->type->kind == SCRY_TYPE_VOID) {
		if (s->out->text)
			put(s, "<void>");
		else
			push(s, (struct scry_doc_value){.kind = SCRY_VALUE_NULL});
	} else if (number_of(v->type, v->bytes, v->have, &n)) {
		show_integer(s, v, n);
	} else {
		show_unknown(s);
	}
}

/* Words in a row, for a value that lies in them. Returns how many bytes are known. */
static uint64_t gather(const struct shown *s, bool is_result, const struct scry_place *place,
		       uint64_t size, uint64_t *words, uint32_t room)
{
	uint32_t want = (uint32_t)((size + 7) / 8), i;

	for (i = 0; i < want && i < room && !place->is_lost; i++) {
		uint8_t at = place->is_memory ? (uint8_t)(place->at[0] + i)
			     : i < 2	      ? place->at[i]
					      : (uint8_t)SCRY_AT_NOWHERE;

		if (!scry_call_word(s->image, is_result, at, &words[i]))
			break;
	}
	return i * 8ull;
}

static void show_placed(struct shown *s, const struct scry_type *t, const struct scry_place *place,
			bool *need_comma)
{
	uint64_t words[SCRY_PLAN_STACK_MAX];
	struct value v = {
		.type = t, .lens = (enum scry_lens)t->lens, .bytes = (const uint8_t *)words};

	v.have = gather(s, false, place, t->size, words, SCRY_PLAN_STACK_MAX);
	show_next(s, &v, need_comma);
}

static void show_long_double(struct shown *s, const struct scry_place *place, bool *need_comma)
{
	uint64_t words[2] = {0};
	long double d = 0;

	if (s->out->text && *need_comma)
		put(s, ", ");
	*need_comma = true;
	if (gather(s, false, place, 16, words, 2) < 16) {
		show_unknown(s);
		return;
	}
	memcpy(&d, words, 10);
	show_real(s, (double)d, false);
}

/* What a format names. It is known here as it was in the target, or nothing is shown. */
static void show_varargs(struct shown *s, bool *need_comma)
{
	struct scry_varargs args = {s->places->registers, s->places->vectors, s->places->stack};
	const struct scry_place *place = &s->places->args[s->proto->format - 1];
	const struct scry_call_part *part = NULL;
	struct scry_conversion c;
	struct scry_format format;
	uint64_t address, precision = 0;

	if (scry_call_word(s->image, false, place->at[0], &address))
		part = scry_call_format(s->image, address);
	if (!part)
		return;
	format = (struct scry_format){.at = (const char *)(part + 1),
				      .end = (const char *)(part + 1) + part->bytes};
	for (uint32_t i = 0; i < VARARGS_MAX && scry_format_next(&format, &c); i++) {
		uint32_t at = scry_varargs_next(&args, c.kind);
		const struct scry_place word = {
			.at = {(uint8_t)(at < SCRY_AT_SAVED ? at : SCRY_AT_NOWHERE),
			       SCRY_AT_NOWHERE},
			.is_memory = c.kind == SCRY_CONVERT_LONG_DOUBLE};
		struct scry_type type, inner;

		if (c.kind == SCRY_CONVERT_LONG_DOUBLE) {
			show_long_double(s, &word, need_comma);
			continue;
		}
		if (c.kind == SCRY_CONVERT_PRECISION &&
		    !scry_call_word(s->image, false, word.at[0], &precision))
			precision = 0;
		if (c.is_star)
			c.precision = (uint32_t)precision & 0x7fffffff;
		show_placed(s, scry_conversion_type(&c, &type, &inner), &word, need_comma);
	}
}

/* An argument that is there only if another one says so. */
static bool is_wanted(const struct shown *s, const struct scry_type *t)
{
	uint64_t word;

	return !t->if_arg || t->if_arg > s->proto->count ||
	       !scry_call_word(s->image, false, s->places->args[t->if_arg - 1].at[0], &word) ||
	       word & t->if_mask;
}

void scry_call_show_args(const struct scry_call_image *image, const struct scry_proto *proto,
			 uint32_t from, uint32_t to, bool *need_comma,
			 const struct scry_call_out *out)
{
	struct scry_type_places places;
	struct shown s = {.image = image, .proto = proto, .places = &places, .out = out};

	scry_places_find(proto, &places);
	for (uint32_t i = from; i < to && i < proto->count; i++) {
		s.is_back = i >= proto->right;
		if (!is_wanted(&s, proto->args[i]))
			continue;
		show_placed(&s, proto->args[i], &places.args[i], need_comma);
	}
	s.is_back = false;
	if (proto->format && to >= proto->count)
		show_varargs(&s, need_comma);
}

void scry_call_show_result(const struct scry_call_image *image, const struct scry_proto *proto,
			   const struct scry_call_out *out)
{
	struct scry_type_places places;
	struct shown s = {
		.image = image, .proto = proto, .places = &places, .out = out, .is_back = true};
	uint64_t words[2] = {0};
	struct value v = {.type = proto->result,
			  .lens = (enum scry_lens)proto->result->lens,
			  .bytes = (const uint8_t *)words};

	scry_places_find(proto, &places);
	if (places.result.is_memory) {
		uint64_t address = 0;
		struct scry_call_memory memory = {0};

		if (scry_call_word(image, true, SCRY_AT_RAX, &address))
			memory = scry_call_memory(image, address, true);
		v.bytes = memory.bytes;
		v.have = memory.have;
	} else {
		v.have = gather(&s, true, &places.result, proto->result->size, words, 2);
	}
	show(&s, &v);
}
