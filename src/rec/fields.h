/*
 * What each payload is made of: one row per field.
 *
 * The reader checks string ids and sites by it, the events view prints text and JSON by it. A new
 * field of wire/event.h gets its row here and is then checked and printed; a unit test compares the
 * rows with the sizes of the structs.
 */
#ifndef SCRY_REC_FIELDS_H
#define SCRY_REC_FIELDS_H

#include "wire/event.h"

#include <stddef.h>

enum scry_field_kind {
	SCRY_FIELD_NUMBER,
	SCRY_FIELD_STRING,   /* id of a string, 0 unknown */
	SCRY_FIELD_SITE,     /* id of a site defined before, 0 unknown */
	SCRY_FIELD_STACK,    /* id of a stack frame defined before, 0 none */
	SCRY_FIELD_ADDRESS,  /* printed in hex */
	SCRY_FIELD_RESERVED, /* not printed */
};

struct scry_field {
	const char *name; /* in text and JSON: *_str without its ending */
	uint16_t offset;  /* in the payload */
	uint8_t size;	  /* 4 or 8 */
	uint8_t kind;
};

struct scry_event_kind {
	const char *name;    /* NULL: no such type */
	const char *meaning; /* one line */
	size_t payload_size; /* of this version's struct */
	const struct scry_field *fields;
	size_t field_count;
};

/* The row of an event type; NULL for a type this version does not know. */
const struct scry_event_kind *scry_event_kind(uint16_t type);

/* A field's value. The payload must be at least payload_size bytes, which the reader warrants. */
uint64_t scry_field_value(const struct scry_field *field, const struct scry_event *event);

#endif
