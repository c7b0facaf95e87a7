/*
 * The types of what a format of printf(3) names (wire/call_format.h), as a prototype would say
 * them.
 */
#ifndef SCRY_PROTO_CONVERSION_H
#define SCRY_PROTO_CONVERSION_H

#include "proto/type.h"
#include "wire/call_format.h"

/* The type, made in *room, and what it points to in *inner, which are the caller's. */
const struct scry_type *scry_conversion_type(const struct scry_conversion *c,
					     struct scry_type *room, struct scry_type *inner);

#endif
