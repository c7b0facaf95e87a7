/*
 * What is known of functions by their name: calls_known.def.
 */
#ifndef SCRY_CMD_CALLS_KNOWN_H
#define SCRY_CMD_CALLS_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

#include "name/calls.h"

struct scry_known {
	const char *symbol, *library, *form;
	enum scry_calls_text text;
	bool is_default;
};
extern const struct scry_known scry_known[]; /* ends with a row without a symbol */

/* The row of a function of the object at `path`; NULL: it is not known. */
const struct scry_known *scry_known_find(const char *symbol, const char *path);

/* How many arguments a form has, and which of them, from 1, is a string, 0 none, and until where.
 */
struct scry_known_shape {
	uint32_t args, text_arg;
	enum scry_call_text text;
};
struct scry_known_shape scry_known_shape(const char *form);

#endif
