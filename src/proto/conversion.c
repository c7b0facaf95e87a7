/* See conversion.h. */
#include "proto/conversion.h"

const struct scry_type *scry_conversion_type(const struct scry_conversion *c,
					     struct scry_type *room, struct scry_type *inner)
{
	static const struct scry_type byte = {.kind = SCRY_TYPE_CHAR, .size = 1, .align = 1},
				      wide = {.kind = SCRY_TYPE_INT,
					      .lens = SCRY_LENS_STRING,
					      .size = 4,
					      .align = 4},
				      nothing = {.kind = SCRY_TYPE_VOID, .align = 1};
	bool is_signed = c->kind == SCRY_CONVERT_INT || c->kind == SCRY_CONVERT_WIDTH ||
			 c->kind == SCRY_CONVERT_PRECISION;

	*room = (struct scry_type){.size = c->bytes, .align = c->bytes};
	switch (c->bytes) {
	case 1:
		room->kind = SCRY_TYPE_CHAR;
		break;
	case 2:
		room->kind = is_signed ? SCRY_TYPE_SHORT : SCRY_TYPE_USHORT;
		break;
	case 4:
		room->kind = is_signed ? SCRY_TYPE_INT : SCRY_TYPE_UINT;
		break;
	default:
		room->kind = is_signed ? SCRY_TYPE_LONG : SCRY_TYPE_ULONG;
	}
	if (c->kind == SCRY_CONVERT_OCTAL)
		room->lens = SCRY_LENS_OCTAL;
	if (c->kind == SCRY_CONVERT_HEX)
		room->lens = SCRY_LENS_HEX;
	if (c->kind == SCRY_CONVERT_CHAR)
		*room = byte;
	if (c->kind == SCRY_CONVERT_WIDE_CHAR)
		*room = wide;
	if (c->kind == SCRY_CONVERT_DOUBLE || c->kind == SCRY_CONVERT_LONG_DOUBLE)
		*room = (struct scry_type){.kind = SCRY_TYPE_DOUBLE, .size = 8, .align = 8};
	if (c->kind == SCRY_CONVERT_POINTER)
		*room = (struct scry_type){
			.kind = SCRY_TYPE_POINTER, .size = 8, .align = 8, .inner = &nothing};
	if (c->kind == SCRY_CONVERT_STRING || c->kind == SCRY_CONVERT_WIDE) {
		*inner = (struct scry_type){
			.kind = SCRY_TYPE_ARRAY,
			.align = c->kind == SCRY_CONVERT_WIDE ? 4 : 1,
			.inner = c->kind == SCRY_CONVERT_WIDE ? &wide : &byte,
			.length = {.kind = c->is_limited ? SCRY_LENGTH_NUMBER : SCRY_LENGTH_ENDLESS,
				   .is_zero = true,
				   .value = c->precision}};
		*room = (struct scry_type){.kind = SCRY_TYPE_POINTER,
					   .lens = SCRY_LENS_STRING,
					   .size = 8,
					   .align = 8,
					   .inner = inner};
	}
	return room;
}
