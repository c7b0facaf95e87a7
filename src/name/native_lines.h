/*
 * Files and lines of native code, by the debug information of the very build that was recorded.
 *
 * The object is opened by its path, and used where it has that build-id; else the debug file of
 * that build-id, where one is installed. Debug information is read in a child process
 * (sys/debug_info), and what it said is kept (name/proto_cache).
 */
#ifndef SCRY_NAME_NATIVE_LINES_H
#define SCRY_NAME_NATIVE_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct scry_native_lines;

struct scry_native_place {
	const char *module, *build_id; /* path; in hex */
	const char *symbol;	       /* NULL: `offset` is from the object */
	uint64_t offset;	       /* of a return address */
};

struct scry_native_lines *scry_native_lines_new(void); /* NULL: no memory */
void scry_native_lines_free(struct scry_native_lines *lines);

/* The line of the call: its file is appended to `ret_file`. 0: it is not known, or the symbol is
 * that of several functions, and nothing was appended. */
uint32_t scry_native_line(struct scry_native_lines *lines, const struct scry_native_place *place,
			  struct scry_buf *ret_file);

#endif
