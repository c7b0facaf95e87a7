/*
 * One line of ltrace.conf(5): a typedef, a prototype, an import; and scry's own sections. Parsed by
 * descent, SCRY_PROTO_DEPTH_MAX deep at most. Where man page and ltrace differ it is as ltrace
 * does.
 */
#include "proto/parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define ALIGN_UP(n, a) (((n) + (a)-1) / (a) * (a))
#define SIZE_MAX_BYTES (1ull << 32)

struct line {
	struct scry_protos *set;
	const char *at;
	const char *why; /* what makes no sense */
	bool no_memory;
	uint32_t depth;
	bool may_declare;  /* "struct;" is a forward */
	uint32_t argument; /* being read, from 1; 0: none */
	uint32_t format;   /* the argument that is one */
	uint32_t *uses;	   /* typedefs met */
	uint32_t use_count, use_room;
};

#define SIMPLE(kind_, bytes)                                                         \
	{                                                                            \
		.kind = SCRY_TYPE_##kind_, .size = bytes, .align = bytes ? bytes : 1 \
	}
static const struct scry_type simple[] = {
	SIMPLE(VOID, 0), SIMPLE(CHAR, 1), SIMPLE(SHORT, 2), SIMPLE(USHORT, 2), SIMPLE(INT, 4),
	SIMPLE(UINT, 4), SIMPLE(LONG, 8), SIMPLE(ULONG, 8), SIMPLE(FLOAT, 4),  SIMPLE(DOUBLE, 8)};
static const struct {
	const char *word;
	enum scry_type_kind kind;
} words[] = {
	{"void", SCRY_TYPE_VOID},     {"int", SCRY_TYPE_INT},	    {"uint", SCRY_TYPE_UINT},
	{"long", SCRY_TYPE_LONG},     {"ulong", SCRY_TYPE_ULONG},   {"char", SCRY_TYPE_CHAR},
	{"short", SCRY_TYPE_SHORT},   {"ushort", SCRY_TYPE_USHORT}, {"float", SCRY_TYPE_FLOAT},
	{"double", SCRY_TYPE_DOUBLE}, {"llong", SCRY_TYPE_LONG},    {"ullong", SCRY_TYPE_ULONG},
	{"itn", SCRY_TYPE_INT}, /* a slip of old ltrace.conf */
};
static const struct {
	const char *word;
	enum scry_lens lens;
	uint8_t marks;
} lenses[] = {
	{"hide", SCRY_LENS_HIDE, 0},
	{"octal", SCRY_LENS_OCTAL, 0},
	{"oct", SCRY_LENS_OCTAL, 0},
	{"bitvec", SCRY_LENS_BITVEC, 0},
	{"bin", SCRY_LENS_BINARY, 0},
	{"hex", SCRY_LENS_HEX, 0},
	{"bool", SCRY_LENS_BOOL, 0},
	{"guess", SCRY_LENS_GUESS, 0},
	{"errno", SCRY_LENS_NONE, SCRY_MARK_ERRNO},
	{"sure", SCRY_LENS_NONE, SCRY_MARK_SURE},
	{"sql", SCRY_LENS_NONE, SCRY_MARK_SURE | SCRY_MARK_SQL},
	{"mysql", SCRY_LENS_NONE, SCRY_MARK_SURE | SCRY_MARK_SQL | SCRY_MARK_MYSQL},
};

static struct scry_type *parse_lens(struct line *l);

static void *fail(struct line *l, const char *why)
{
	if (!l->why)
		l->why = why;
	return NULL;
}

static int refuse(struct line *l, const char *why)
{
	fail(l, why);
	return -EINVAL;
}

static void *allocate(struct line *l, size_t size)
{
	void *at = scry_protos_alloc(l->set, size);

	l->no_memory |= !at;
	return at;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static void skip(struct line *l)
{
	while (*l->at == ' ' || *l->at == '\t' || *l->at == '\r' || *l->at == '\f' ||
	       *l->at == '\v')
		l->at++;
}

static bool take(struct line *l, char c)
{
	skip(l);
	if (*l->at != c)
		return false;
	l->at++;
	return true;
}

/* The length of the name that begins here, 0: none. */
static size_t name_length(const struct line *l)
{
	size_t n = 0;

	if (is_letter(*l->at))
		while (is_letter(l->at[n]) || is_digit(l->at[n]))
			n++;
	return n;
}

static bool take_word(struct line *l, const char *word)
{
	size_t n = strlen(word);

	skip(l);
	if (name_length(l) != n || memcmp(l->at, word, n) != 0)
		return false;
	l->at += n;
	return true;
}

static bool take_number(struct line *l, int64_t *ret)
{
	char *end;

	skip(l);
	if (!is_digit(*l->at) && *l->at != '-' && *l->at != '+')
		return false;
	*ret = strtoll(l->at, &end, 0);
	if (end == l->at)
		return false;
	l->at = end;
	return true;
}

static const char *take_name(struct line *l)
{
	size_t n;
	const char *name;

	skip(l);
	n = name_length(l);
	if (!n)
		return fail(l, "a name is missing");
	name = scry_protos_copy(l->set, l->at, n);
	l->no_memory |= !name;
	l->at += n;
	return name;
}

/* A copy of its own, to put a lens or a mark on. */
static struct scry_type *clone(struct line *l, const struct scry_type *type)
{
	struct scry_type *t = type ? allocate(l, sizeof(*t)) : NULL;

	if (t)
		*t = *type;
	return t;
}

static struct scry_type *pointer_to(struct line *l, const struct scry_type *inner)
{
	struct scry_type *t = inner ? allocate(l, sizeof(*t)) : NULL;

	if (t)
		*t = (struct scry_type){
			.kind = SCRY_TYPE_POINTER, .size = 8, .align = 8, .inner = inner};
	return t;
}

static struct scry_type *array_of(struct line *l, const struct scry_type *inner,
				  const struct scry_length *length)
{
	struct scry_type *t = inner ? allocate(l, sizeof(*t)) : NULL;

	if (!t)
		return NULL;
	if (inner->is_forward || inner->kind == SCRY_TYPE_VOID)
		return fail(l, "an array of something whose size is not known");
	*t = (struct scry_type){
		.kind = SCRY_TYPE_ARRAY, .align = inner->align, .inner = inner, .length = *length};
	if (length->kind == SCRY_LENGTH_NUMBER)
		t->size = inner->size * length->value;
	return t->size <= SIZE_MAX_BYTES ? t : fail(l, "too big an array");
}

/* 5, arg2, elt1, retval, zero, zero(arg2). */
static bool parse_length(struct line *l, struct scry_length *ret)
{
	static const struct {
		const char *prefix;
		enum scry_length_kind kind;
	} kinds[] = {{"arg", SCRY_LENGTH_ARG}, {"elt", SCRY_LENGTH_ELEMENT}};
	int64_t n;

	skip(l);
	if (take_word(l, "zero")) {
		if (!take(l, '('))
			return true;
		if (!parse_length(l, ret) || !take(l, ')'))
			return fail(l, "a length is missing in zero(...)");
		ret->is_zero = true;
		return true;
	}
	if (take_word(l, "retval")) {
		ret->kind = SCRY_LENGTH_RESULT;
		return true;
	}
	if (is_digit(*l->at) && take_number(l, &n) && n >= 0 && n <= INT32_MAX) {
		*ret = (struct scry_length){.kind = SCRY_LENGTH_NUMBER, .value = (uint32_t)n};
		return true;
	}
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strncmp(l->at, kinds[i].prefix, 3) != 0 || !is_digit(l->at[3]))
			continue;
		l->at += 3;
		if (!take_number(l, &n) || n > (int64_t)SCRY_PROTO_FIELDS_MAX)
			break;
		*ret = (struct scry_length){.kind = kinds[i].kind, .value = (uint32_t)n - 1};
		if (!n && kinds[i].kind == SCRY_LENGTH_ARG)
			ret->kind = SCRY_LENGTH_RESULT;
		return n > 0 || kinds[i].kind == SCRY_LENGTH_ARG;
	}
	return fail(l, "not a length: a number, argN, eltN, retval, zero");
}

static struct scry_type *parse_array(struct line *l)
{
	struct scry_length length = {0};
	struct scry_type *inner;

	if (!take(l, '('))
		return fail(l, "'(' is missing behind array");
	inner = parse_lens(l);
	if (!inner)
		return NULL;
	if (!take(l, ','))
		return fail(l, "the length of an array is missing");
	if (!parse_length(l, &length))
		return NULL;
	if (!take(l, ')'))
		return fail(l, "')' is missing");
	return array_of(l, inner, &length);
}

static bool add_field(struct line *l, struct scry_type *t, const struct scry_type *field,
		      uint32_t *offsets)
{
	uint64_t at = ALIGN_UP(t->size, field->align);

	if (field->is_forward || field->kind == SCRY_TYPE_VOID)
		return fail(l, "a field whose size is not known");
	if (t->count == SCRY_PROTO_FIELDS_MAX || at + field->size > SIZE_MAX_BYTES / 2)
		return fail(l, "too big a struct");
	offsets[t->count] = (uint32_t)at;
	t->fields[t->count++] = field;
	t->size = at + field->size;
	t->align = field->align > t->align ? field->align : t->align;
	return true;
}

static struct scry_type *parse_struct(struct line *l)
{
	const struct scry_type *fields[SCRY_PROTO_FIELDS_MAX];
	uint32_t offsets[SCRY_PROTO_FIELDS_MAX], *at;
	struct scry_type *t = allocate(l, sizeof(*t));
	bool may_declare = l->may_declare;

	if (!t)
		return NULL;
	*t = (struct scry_type){.kind = SCRY_TYPE_STRUCT, .align = 1, .fields = fields};
	l->may_declare = false;
	skip(l);
	if (*l->at == ';' && may_declare) {
		t->is_forward = true;
		t->fields = NULL;
		return t;
	}
	if (!take(l, '('))
		return fail(l, "'(' is missing behind struct");
	while (!take(l, ')')) {
		const struct scry_type *field;

		if (t->count && !take(l, ','))
			return fail(l, "',' or ')' is missing in a struct");
		field = parse_lens(l);
		if (!field || !add_field(l, t, field, offsets))
			return NULL;
	}
	t->size = ALIGN_UP(t->size, t->align);
	t->fields = allocate(l, t->count * sizeof(fields[0]) + 1);
	at = allocate(l, t->count * sizeof(*at) + 1);
	if (!t->fields || !at)
		return NULL;
	memcpy(t->fields, fields, t->count * sizeof(fields[0]));
	memcpy(at, offsets, t->count * sizeof(*at));
	t->offsets = at;
	return t;
}

static bool parse_names(struct line *l, struct scry_type *t)
{
	struct scry_enum_name *names = NULL;
	uint32_t room = 0;
	int64_t value = 0, mask;
	bool is_ok = true;

	while (is_ok && !take(l, ')')) {
		if (t->count && !take(l, ',')) {
			is_ok = fail(l, "',' or ')' is missing in an enum");
			break;
		}
		if (t->count == room) {
			struct scry_enum_name *more =
				reallocarray(names, room = room ? 2 * room : 16, sizeof(*more));

			l->no_memory |= !more;
			if (!more) {
				is_ok = false;
				break;
			}
			names = more;
		}
		names[t->count].name = take_name(l);
		is_ok = names[t->count].name;
		if (is_ok && take(l, '=') && !take_number(l, &value))
			is_ok = fail(l, "a number is missing in an enum");
		mask = value ? value : -1;
		if (is_ok && t->lens == SCRY_LENS_FLAGS && take(l, ':') && !take_number(l, &mask))
			is_ok = fail(l, "a mask is missing in flags");
		names[t->count].mask = mask;
		names[t->count++].value = value;
		value = (int64_t)((uint64_t)value + 1);
	}
	if (is_ok && t->count) {
		struct scry_enum_name *copy = allocate(l, t->count * sizeof(*copy));

		if (copy)
			memcpy(copy, names, t->count * sizeof(*copy));
		t->names = copy;
		is_ok = copy;
	}
	free(names);
	return is_ok;
}

static struct scry_type *parse_plain(struct line *l);

static struct scry_type *parse_enum(struct line *l, enum scry_lens lens)
{
	struct scry_type *t;

	if (take(l, '[')) {
		t = clone(l, parse_plain(l));
		if (t && !scry_type_is_integer(t))
			return fail(l, "an enum of something that is not an integer");
		if (t && !take(l, ']'))
			return fail(l, "']' is missing");
	} else {
		t = clone(l, &simple[SCRY_TYPE_INT]);
	}
	if (!t)
		return NULL;
	if (!take(l, '('))
		return fail(l, "'(' is missing behind enum");
	t->lens = (uint8_t)lens;
	t->count = 0;
	return parse_names(l, t) ? t : NULL;
}

/* Behind "string" or "format": 3, [arg3], (array(char, 6)), nothing. */
static struct scry_type *parse_string(struct line *l)
{
	struct scry_length length = {0};
	struct scry_type *t;
	int64_t n;

	if (is_digit(*l->at)) {
		if (!take_number(l, &n) || n > (int64_t)SCRY_PROTO_ARGS_MAX)
			return fail(l, "too big a number of an argument");
		length = (struct scry_length){.kind = n ? SCRY_LENGTH_ARG : SCRY_LENGTH_RESULT,
					      .is_zero = true,
					      .value = n ? (uint32_t)n - 1 : 0};
	} else if (take(l, '(')) {
		t = clone(l, parse_lens(l));
		if (!t)
			return NULL;
		if (!take(l, ')'))
			return fail(l, "')' is missing");
		/* char* is an array of them */
		if (t->kind == SCRY_TYPE_POINTER && scry_type_is_integer(t->inner))
			t->inner = array_of(l, t->inner, &length);
		t->lens = SCRY_LENS_STRING;
		return t->kind != SCRY_TYPE_POINTER || t->inner ? t : NULL;
	} else if (take(l, '[')) {
		if (!parse_length(l, &length))
			return NULL;
		if (!take(l, ']'))
			return fail(l, "']' is missing");
		length.is_zero = true;
	}
	t = pointer_to(l, array_of(l, &simple[SCRY_TYPE_CHAR], &length));
	if (t)
		t->lens = SCRY_LENS_STRING;
	return t;
}

static bool use(struct line *l, uint32_t typedef_number)
{
	if (l->use_count == l->use_room) {
		uint32_t room = l->use_room ? 2 * l->use_room : 8;
		uint32_t *more = reallocarray(l->uses, room, sizeof(*more));

		l->no_memory |= !more;
		if (!more)
			return false;
		l->uses = more;
		l->use_room = room;
	}
	l->uses[l->use_count++] = typedef_number;
	return true;
}

/* The newest typedef of that name, or addr or file; NULL. */
static struct scry_type *find_typedef(struct line *l)
{
	size_t n = name_length(l);

	for (uint32_t i = l->set->typedef_count; i-- > 0;) {
		const struct scry_typedef *t = &l->set->typedefs[i];

		if (strlen(t->name) != n || memcmp(t->name, l->at, n) != 0)
			continue;
		l->at += n;
		return use(l, i) ? t->type : NULL;
	}
	if (take_word(l, "addr") || take_word(l, "file"))
		return pointer_to(l, &simple[SCRY_TYPE_VOID]);
	return fail(l, n ? "an unknown type" : "a type is missing");
}

/* Behind "if(": an argument, a colon, bits, and the type. */
static struct scry_type *parse_if(struct line *l)
{
	struct scry_length length = {0};
	struct scry_type *t;
	int64_t mask = 0;

	if (!parse_length(l, &length) || length.kind != SCRY_LENGTH_ARG || !take(l, ':') ||
	    !take_number(l, &mask) || !take(l, ','))
		return fail(l, "if takes argN:BITS, and a type");
	t = clone(l, parse_lens(l));
	if (t && !take(l, ')'))
		return fail(l, "')' is missing");
	if (t) {
		t->if_arg = length.value + 1;
		t->if_mask = (uint32_t)mask;
	}
	return t;
}

/* A type without stars. */
static struct scry_type *parse_plain(struct line *l)
{
	struct scry_type *t;

	skip(l);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (take_word(l, words[i].word))
			return clone(l, &simple[words[i].kind]);
	if (take_word(l, "array"))
		return parse_array(l);
	if (take_word(l, "struct"))
		return parse_struct(l);
	if (take_word(l, "enum"))
		return parse_enum(l, SCRY_LENS_ENUM);
	if (!strncmp(l->at, "flags(", 6) || !strncmp(l->at, "flags[", 6)) {
		l->at += 5;
		return parse_enum(l, SCRY_LENS_FLAGS);
	}
	if (!strncmp(l->at, "if(", 3)) {
		l->at += 3;
		return parse_if(l);
	}
	if (l->argument && l->depth == 1 && take_word(l, "format")) {
		if (l->format)
			return fail(l, "more than one format");
		t = parse_string(l);
		l->format = l->argument;
		return t;
	}
	/* "string3" too */
	if (!strncmp(l->at, "string", 6) && !is_letter(l->at[6])) {
		l->at += 6;
		return parse_string(l);
	}
	return find_typedef(l);
}

static struct scry_type *parse_stars(struct line *l)
{
	struct scry_type *t = parse_plain(l);
	uint32_t stars = 0;

	while (t && take(l, '*'))
		t = ++stars > SCRY_PROTO_DEPTH_MAX ? fail(l, "too many stars") : pointer_to(l, t);
	return t;
}

static struct scry_type *parse_in_lens(struct line *l, size_t which)
{
	struct scry_type *t;

	skip(l);
	if (lenses[which].lens == SCRY_LENS_OCTAL &&
	    *l->at != '(') { /* as long as there is ltrace */
		t = clone(l, &simple[SCRY_TYPE_INT]);
	} else {
		if (!take(l, '('))
			return fail(l, "'(' is missing behind a lens");
		t = lenses[which].marks ? parse_lens(l) : parse_stars(l);
		if (t && !take(l, ')'))
			return fail(l, "')' is missing");
		t = clone(l, t);
	}
	if (t && lenses[which].lens)
		t->lens = (uint8_t)lenses[which].lens;
	if (t)
		t->marks |= lenses[which].marks;
	return t;
}

static struct scry_type *parse_lens(struct line *l)
{
	struct scry_type *t = NULL;
	size_t i, count = sizeof(lenses) / sizeof(lenses[0]);

	if (++l->depth > SCRY_PROTO_DEPTH_MAX)
		return fail(l, "too many types within types");
	for (i = 0; i < count && !t; i++) {
		const char *before = l->at;

		if (!take_word(l, lenses[i].word))
			continue;
		skip(l);
		if (lenses[i].marks && *l->at != '(') { /* a typedef of the user's */
			l->at = before;
			continue;
		}
		t = parse_in_lens(l, i);
		break;
	}
	if (i == count)
		t = parse_stars(l);
	l->depth--;
	return t;
}

/* The lines of what is used, and of what these use, in their order. */
static const char *text_of(struct line *l, const char *last)
{
	uint32_t count = l->set->typedef_count;
	bool *is_needed = calloc(count + 1, sizeof(*is_needed));
	struct scry_buf buf = {0};
	const char *text = NULL;

	for (uint32_t i = 0; is_needed && i < l->use_count; i++) {
		const struct scry_typedef *t = &l->set->typedefs[l->uses[i]];

		if (is_needed[l->uses[i]])
			continue;
		is_needed[l->uses[i]] = true;
		for (uint32_t u = 0; u < t->use_count; u++)
			if (!is_needed[t->uses[u]])
				use(l, t->uses[u]);
		if (t->completed)
			use(l, t->completed - 1);
		if (t->completes)
			use(l, t->completes - 1);
	}
	for (uint32_t i = 0; is_needed && i < count; i++)
		if (is_needed[i])
			scry_buf_printf(&buf, "%s\n", l->set->typedefs[i].text);
	scry_buf_printf(&buf, "%s\n", last);
	if (is_needed && !buf.failed)
		text = scry_protos_copy(l->set, buf.data, buf.len);
	l->no_memory |= !text;
	free(is_needed);
	scry_buf_done(&buf);
	return text;
}

/* The line up to its last character that is not a space, without what follows its end. */
static const char *line_text(struct line *l, const char *begin)
{
	const char *text;

	skip(l);
	text = scry_protos_copy(l->set, begin, (size_t)(l->at - begin) + (*l->at == ';'));
	l->no_memory |= !text;
	return text;
}

static int parse_typedef(struct line *l, const char *begin)
{
	struct scry_protos *p = l->set;
	struct scry_typedef t = {.name = take_name(l)};
	int r;

	if (!t.name)
		return -EINVAL;
	if (!take(l, '='))
		return refuse(l, "'=' is missing in a typedef");
	if (scry_protos_is_defined_twice(p, t.name))
		return refuse(l, "a typedef of that name is in this file already");
	t.completes = scry_protos_forward(p, t.name);
	l->may_declare = true;
	t.type = parse_lens(l);
	if (!t.type)
		return -EINVAL;
	t.text = line_text(l, begin);
	if (t.completes) {
		struct scry_typedef *f = &p->typedefs[t.completes - 1];

		if (t.type->kind != SCRY_TYPE_STRUCT || t.type->is_forward)
			return refuse(l, "what was declared as a struct is not one");
		*f->type = *t.type; /* what points to it knows it by this address */
		f->completed = p->typedef_count + 1;
		t.type = f->type;
	}
	t.uses = l->uses;
	t.use_count = l->use_count;
	l->uses = NULL;
	r = t.text ? scry_protos_add_typedef(p, &t) : -ENOMEM;
	if (r < 0)
		free(t.uses);
	return r;
}

static bool parse_args(struct line *l, struct scry_proto *proto)
{
	proto->right = UINT32_MAX;
	while (!take(l, ')')) {
		struct scry_type *t;

		if (proto->count && !take(l, ','))
			return fail(l, "',' or ')' is missing behind an argument");
		if (proto->count == SCRY_PROTO_ARGS_MAX)
			return fail(l, "more than 32 arguments");
		if (take(l, '+') && proto->right == UINT32_MAX)
			proto->right = proto->count;
		l->argument = proto->count + 1;
		t = parse_lens(l);
		if (!t)
			return false;
		if (t->kind == SCRY_TYPE_ARRAY) { /* decays, as in C */
			struct scry_type *whole = pointer_to(l, t);

			if (!whole)
				return false;
			whole->lens = t->lens;
			whole->marks = t->marks;
			t = whole;
		}
		if (t->is_forward)
			return fail(l, "an argument whose size is not known");
		proto->args[proto->count++] = t;
	}
	/* (void); in longer lists void was the way to hide an int */
	if (proto->count == 1 && proto->args[0]->kind == SCRY_TYPE_VOID)
		proto->count = 0;
	for (uint32_t i = 0; i < proto->count; i++) {
		static const struct scry_type hidden = {
			.kind = SCRY_TYPE_INT, .lens = SCRY_LENS_HIDE, .size = 4, .align = 4};

		if (proto->args[i]->kind == SCRY_TYPE_VOID)
			proto->args[i] = &hidden;
	}
	if (proto->right > proto->count)
		proto->right = proto->count;
	return true;
}

static int parse_prototype(struct line *l, const char *begin)
{
	struct scry_proto *proto = allocate(l, sizeof(*proto));

	if (!proto)
		return -ENOMEM;
	proto->result = parse_lens(l);
	if (!proto->result)
		return -EINVAL;
	if (proto->result->is_forward || proto->result->kind == SCRY_TYPE_ARRAY)
		return refuse(l, "a result whose size is not known");
	proto->name = take_name(l);
	if (!proto->name)
		return -EINVAL;
	if (!take(l, '('))
		return refuse(l, "'(' is missing behind the function's name");
	if (!parse_args(l, proto))
		return -EINVAL;
	proto->format = l->format <= proto->count ? l->format : 0;
	proto->library = l->set->library;
	proto->is_named_only = l->set->is_named_only;
	proto->text = line_text(l, begin);
	if (proto->text)
		proto->text = text_of(l, proto->text);
	return proto->text ? scry_protos_add(l->set, proto) : -ENOMEM;
}

/* "[libpq.so*]", or "[libpq.so* named]": what follows is of that library, and traced only when it
 * is asked for. */
static int parse_section(struct line *l)
{
	size_t n = strcspn(l->at, " \t");
	const char *end = strrchr(l->at, ']');

	if (!end || end == l->at)
		return refuse(l, "']' is missing behind a library");
	l->set->is_named_only = false;
	if (l->at + n < end) {
		const char *glob = l->at;

		l->at += n;
		if (!take_word(l, "named") || l->at != end)
			return refuse(l, "a library's glob, then 'named' or nothing");
		l->set->is_named_only = true;
		l->at = glob;
	} else {
		n = (size_t)(end - l->at);
	}
	l->set->library = scry_protos_copy(l->set, l->at, n);
	return l->set->library ? 0 : -ENOMEM;
}

static int parse_import(struct line *l, const char **ret_import)
{
	size_t n;

	skip(l);
	n = *l->at == '"' ? strcspn(l->at + 1, "\"") : 0;
	if (!n || l->at[1 + n] != '"' || memchr(l->at + 1, '/', n))
		return refuse(l, "the name of a file beside this one is missing");
	*ret_import = scry_protos_copy(l->set, l->at + 1, n);
	return *ret_import ? 0 : -ENOMEM;
}

int scry_protos_line(struct scry_protos *p, const char *text, const char **ret_why,
		     const char **ret_import)
{
	struct line l = {.set = p, .at = text};
	const char *begin;
	int r;

	skip(&l);
	begin = l.at;
	if (!*l.at || *l.at == ';' || *l.at == '#')
		return 0;
	if (*l.at == '[') {
		l.at++;
		r = parse_section(&l);
	} else if (take_word(&l, "typedef")) {
		r = parse_typedef(&l, begin);
	} else if (take_word(&l, "import")) {
		r = parse_import(&l, ret_import);
	} else {
		take_word(&l, "function");
		r = parse_prototype(&l, begin);
	}
	free(l.uses);
	*ret_why = l.why;
	return l.no_memory ? -ENOMEM : r;
}
