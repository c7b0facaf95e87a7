/*
 * A function's prototype from debug information, as a line of ltrace.conf(5).
 *
 * Pointers stay addresses, but for those to char, which are strings. What the language of
 * prototypes does not know (unions, bit-fields, long double, classes of C++ by value) gives none.
 * What was read is kept for the next time (name/proto_cache).
 */
#ifndef SCRY_NAME_DEBUG_PROTO_H
#define SCRY_NAME_DEBUG_PROTO_H

#include "base/buf.h"
#include "sys/elf.h"

struct scry_debug_protos;

/* NULL: there is no debug information. */
struct scry_debug_protos *scry_debug_protos_open(struct scry_elf *elf);
void scry_debug_protos_close(struct scry_debug_protos *protos); /* NULL is legal */

/* Appends "int NAME(int, string);\n" for the function that begins at the link-time `address`.
 * False: there is none, and nothing was appended. */
bool scry_debug_proto(struct scry_debug_protos *protos, uint64_t address, const char *name,
		      struct scry_buf *ret);

#endif
