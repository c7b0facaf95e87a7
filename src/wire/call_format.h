/*
 * What follows a format of printf(3): which arguments, in their order. Read by the agent, for the
 * strings among them, and by the host, to show them. Freestanding; the format is hostile.
 */
#ifndef SCRY_WIRE_CALL_FORMAT_H
#define SCRY_WIRE_CALL_FORMAT_H

#include "wire/call_plan.h"

#include <stddef.h>
#include <stdint.h>

#define SCRY_FORMAT_WIDE_MAX 4096u /* bytes */

enum scry_conversion_kind {
	SCRY_CONVERT_INT,
	SCRY_CONVERT_UINT,
	SCRY_CONVERT_OCTAL,
	SCRY_CONVERT_HEX,
	SCRY_CONVERT_CHAR,
	SCRY_CONVERT_DOUBLE,
	SCRY_CONVERT_LONG_DOUBLE, /* 16 bytes of the stack, aligned */
	SCRY_CONVERT_STRING,
	SCRY_CONVERT_POINTER,
	SCRY_CONVERT_WIDTH, /* an int, for a * */
	SCRY_CONVERT_NONE,
	SCRY_CONVERT_PRECISION, /* the same behind a point: how long a string is at most */
	SCRY_CONVERT_WIDE_CHAR, /* an int */
	SCRY_CONVERT_WIDE,	/* a string of these; its precision is of what is made of it */
};
struct scry_conversion {
	uint8_t kind;	    /* enum scry_conversion_kind */
	uint8_t bytes;	    /* of an integer: 1, 2, 4, 8 */
	uint8_t is_limited; /* strings: at most `precision` bytes, or what a PRECISION before said
			     */
	uint8_t is_star;    /* the latter */
	uint32_t precision;
};
struct scry_format {
	const char *at, *end;
	uint8_t is_inside; /* of a conversion, as a star came */
	uint8_t is_star;
};

/* What a letter ends a conversion of, or SCRY_CONVERT_NONE. */
static inline uint8_t scry_format_kind(char letter)
{
	static const char letters[] = "diuoxXcCaAeEfFgGsSpn";
	static const uint8_t kinds[] = {
		SCRY_CONVERT_INT,     SCRY_CONVERT_INT,	      SCRY_CONVERT_UINT,
		SCRY_CONVERT_OCTAL,   SCRY_CONVERT_HEX,	      SCRY_CONVERT_HEX,
		SCRY_CONVERT_CHAR,    SCRY_CONVERT_WIDE_CHAR, SCRY_CONVERT_DOUBLE,
		SCRY_CONVERT_DOUBLE,  SCRY_CONVERT_DOUBLE,    SCRY_CONVERT_DOUBLE,
		SCRY_CONVERT_DOUBLE,  SCRY_CONVERT_DOUBLE,    SCRY_CONVERT_DOUBLE,
		SCRY_CONVERT_DOUBLE,  SCRY_CONVERT_STRING,    SCRY_CONVERT_WIDE,
		SCRY_CONVERT_POINTER, SCRY_CONVERT_POINTER,
	};

	for (uint32_t i = 0; i < sizeof(kinds); i++)
		if (letters[i] == letter)
			return kinds[i];
	return SCRY_CONVERT_NONE;
}

/* 1: *ret is the next one; 0: there is none, or the rest is not understood ("%2$s"). */
static inline int scry_format_next(struct scry_format *f, struct scry_conversion *ret)
{
	int half = 0, is_long = 0, is_wide = 0, is_point = f->is_star;

	*ret = (struct scry_conversion){.is_limited = f->is_star, .is_star = f->is_star};
	for (; f->at < f->end; f->at++) {
		char c = *f->at;
		uint8_t kind = scry_format_kind(c);

		if (!f->is_inside) {
			half = is_long = is_wide = is_point = 0;
			*ret = (struct scry_conversion){0};
			f->is_star = 0;
			f->is_inside = c == '%';
		} else if (c == '%' || c == 'm') {
			f->is_inside = f->is_star = 0;
		} else if (c == '$') {
			return 0;
		} else if (c == '*') {
			ret->kind = is_point ? SCRY_CONVERT_PRECISION : SCRY_CONVERT_WIDTH;
			ret->bytes = 4;
			f->is_star = (uint8_t)is_point;
			f->at++;
			return 1;
		} else if (c == '.') {
			is_point = ret->is_limited = 1;
		} else if (c >= '0' && c <= '9') {
			if (is_point && ret->precision < 100000000)
				ret->precision = ret->precision * 10 + (uint32_t)(c - '0');
		} else if (c == 'h') {
			half++;
		} else if (c == 'L' || c == 'l' || c == 'q' || c == 'j' || c == 't' || c == 'z' ||
			   c == 'Z') {
			is_wide |= c == 'L';
			is_long = 1;
		} else if (kind != SCRY_CONVERT_NONE) {
			if (kind == SCRY_CONVERT_DOUBLE && is_wide)
				kind = SCRY_CONVERT_LONG_DOUBLE;
			if (kind == SCRY_CONVERT_STRING && is_long)
				kind = SCRY_CONVERT_WIDE;
			if (kind == SCRY_CONVERT_CHAR && is_long)
				kind = SCRY_CONVERT_WIDE_CHAR;
			ret->kind = kind;
			ret->bytes = is_long ? 8 : half >= 2 ? 1 : half ? 2 : 4;
			f->at++;
			f->is_inside = f->is_star = 0;
			return 1;
		}
	}
	return 0;
}

/* How much is read of a WIDE, bytes, where `max` characters are shown: its end is looked for when
 * it is shown. */
static inline uint32_t scry_format_wide_bytes(const struct scry_conversion *c, uint64_t precision,
					      uint32_t max)
{
	const uint64_t count = !c->is_limited ? max + 1ull : precision < max ? precision : max;

	return (uint32_t)(4 * count < SCRY_FORMAT_WIDE_MAX ? 4 * count : SCRY_FORMAT_WIDE_MAX);
}

/* Where an argument of `...` is: the words that are used up so far, counted on. */
struct scry_varargs {
	uint32_t registers, vectors, stack;
};
/* SCRY_AT_* of the next one's word (wire/call_plan.h). */
static inline uint32_t scry_varargs_next(struct scry_varargs *v, uint8_t kind)
{
	if (kind == SCRY_CONVERT_LONG_DOUBLE) {
		v->stack = (v->stack + 3) & ~1u;
		return SCRY_AT_STACK + v->stack - 2;
	}
	if (kind == SCRY_CONVERT_DOUBLE ? v->vectors < 8 : v->registers < 6)
		return kind == SCRY_CONVERT_DOUBLE ? SCRY_AT_VECTOR + v->vectors++
						   : SCRY_AT_REGISTER + v->registers++;
	return SCRY_AT_STACK + v->stack++;
}

#endif
