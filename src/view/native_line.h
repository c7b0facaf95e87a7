/*
 * What knows the file and line of native code: the command's, as a view touches no object file.
 */
#ifndef SCRY_VIEW_NATIVE_LINE_H
#define SCRY_VIEW_NATIVE_LINE_H

#include "base/buf.h"

#include <stdint.h>

struct scry_view_code {
	const char *module, *build_id; /* path; in hex */
	const char *symbol;	       /* NULL: `offset` is from the object */
	uint64_t offset;	       /* of a return address */
};

struct scry_view_lines {
	/* Appends the file to `ret_file`. 0: not known, and nothing was appended. */
	uint32_t (*find)(void *arg, const struct scry_view_code *code, struct scry_buf *ret_file);
	void *arg;
};

#endif
