/*
 * What a prototype says of a value: its type and the lens through which it is shown, in the terms
 * of ltrace.conf(5). Types are made by proto/parse.c, shared, read only, and live as long as their
 * struct scry_protos. Sizes and alignment are those of the x86-64 psABI.
 */
#ifndef SCRY_PROTO_TYPE_H
#define SCRY_PROTO_TYPE_H

#include <stdbool.h>
#include <stdint.h>

#define SCRY_PROTO_ARGS_MAX 32u
#define SCRY_PROTO_DEPTH_MAX 64u /* types within types, in a text */
#define SCRY_PROTO_FIELDS_MAX 256u

enum scry_type_kind {
	SCRY_TYPE_VOID,
	SCRY_TYPE_CHAR,
	SCRY_TYPE_SHORT,
	SCRY_TYPE_USHORT,
	SCRY_TYPE_INT,
	SCRY_TYPE_UINT,
	SCRY_TYPE_LONG,
	SCRY_TYPE_ULONG,
	SCRY_TYPE_FLOAT,
	SCRY_TYPE_DOUBLE,
	SCRY_TYPE_STRUCT,
	SCRY_TYPE_ARRAY,
	SCRY_TYPE_POINTER,
};

enum scry_lens {
	SCRY_LENS_NONE,
	SCRY_LENS_HIDE,
	SCRY_LENS_OCTAL,
	SCRY_LENS_HEX,
	SCRY_LENS_BOOL,
	SCRY_LENS_BITVEC,
	SCRY_LENS_GUESS, /* a number that may be an address */
	SCRY_LENS_STRING,
	SCRY_LENS_ENUM,
	SCRY_LENS_BINARY,
	SCRY_LENS_FLAGS, /* an enum of bits, several of which may be set */
};

/* How long an array is, in elements. */
enum scry_length_kind {
	SCRY_LENGTH_ENDLESS, /* until an element of zeros only */
	SCRY_LENGTH_NUMBER,  /* `value` */
	SCRY_LENGTH_ARG,     /* what argument `value`, from 0, holds */
	SCRY_LENGTH_RESULT,  /* what the function returns */
	SCRY_LENGTH_ELEMENT, /* what field `value`, from 0, of the surrounding struct holds */
};
struct scry_length {
	enum scry_length_kind kind;
	bool is_zero; /* at most so long: an element of zeros may end it before */
	uint32_t value;
};

/* What scry knows beyond ltrace.conf(5): see scry-prototypes(5). */
#define SCRY_MARK_SURE 1u  /* the function itself reads this argument first thing, whole */
#define SCRY_MARK_SQL 2u   /* a statement, quoted as the standard says */
#define SCRY_MARK_MYSQL 4u /* a statement as MySQL quotes */
#define SCRY_MARK_ERRNO 8u /* of a result: -1, or a pointer that is NULL, sets errno */

struct scry_enum_name {
	const char *name;
	int64_t value;
	int64_t mask; /* of flags: the bits that are the value */
};

struct scry_type {
	uint8_t kind;			 /* enum scry_type_kind */
	uint8_t lens;			 /* enum scry_lens */
	uint8_t marks;			 /* SCRY_MARK_* */
	bool is_forward;		 /* a struct that is declared only */
	uint32_t align;			 /* bytes */
	uint64_t size;			 /* bytes; of an array whose length is not a number 0 */
	uint32_t count;			 /* fields, or names of an enum */
	uint32_t number;		 /* of its typedef + 1, or 0: for recursion */
	const struct scry_type *inner;	 /* what is pointed to; an element */
	const struct scry_type **fields; /* of a struct */
	const uint32_t *offsets;	 /* of its fields, bytes */
	const struct scry_enum_name *names;
	struct scry_length length; /* of an array */
	uint32_t if_arg, if_mask;  /* shown only if this argument, from 1, has one of these bits */
};

struct scry_proto {
	const char *name;
	const char *library; /* glob of a file's name; NULL: any */
	bool is_named_only;  /* traced only when it is asked for */
	const struct scry_type *result;
	const struct scry_type *args[SCRY_PROTO_ARGS_MAX];
	uint32_t count;
	uint32_t outs;	  /* bit i: argument i is written by the function (a +) */
	uint32_t right;	  /* the first argument that is shown once it has returned; `count`: none */
	uint32_t format;  /* the argument, from 1, by which more follow as for printf; 0: none */
	const char *text; /* lines that say all of this, with the typedefs that they need */
};

static inline bool scry_type_is_integer(const struct scry_type *t)
{
	return t->kind >= SCRY_TYPE_CHAR && t->kind <= SCRY_TYPE_ULONG;
}
static inline bool scry_type_is_float(const struct scry_type *t)
{
	return t->kind == SCRY_TYPE_FLOAT || t->kind == SCRY_TYPE_DOUBLE;
}
/* A pointer that may be followed: addr and void* say nothing of what is there. */
static inline bool scry_type_is_followed(const struct scry_type *t)
{
	return t->kind == SCRY_TYPE_POINTER && t->inner->kind != SCRY_TYPE_VOID;
}

#endif
