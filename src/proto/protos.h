/*
 * A set of prototypes: read from texts in the syntax of ltrace.conf(5), found by name.
 *
 * Life: new, (read*, find*)*, free. A prototype that was read first wins; one with a library is for
 * functions of files with such a name only. Texts may be hostile. One thread.
 */
#ifndef SCRY_PROTO_PROTOS_H
#define SCRY_PROTO_PROTOS_H

#include <stddef.h>

#include "proto/type.h"

#define SCRY_PROTOS_TEXT_MAX (16u << 20)

struct scry_protos;

/* NULL: no memory. */
struct scry_protos *scry_protos_new(void);
void scry_protos_free(struct scry_protos *p); /* NULL is legal */

/*
 * Reads a text; `origin` is what errors call it. Typedefs of one text do not hold in the next.
 * 0; -EINVAL with a sentence: the line that makes no sense, those before it are read; -ENOMEM;
 * -E2BIG.
 */
int scry_protos_read(struct scry_protos *p, const char *origin, const char *text, size_t length);
/* The same of a file, and of files that it imports, which lie beside it. Also -errno of opening. */
int scry_protos_read_file(struct scry_protos *p, const char *path);

/* That of `name` in the file at `path`; NULL: none. */
const struct scry_proto *scry_protos_find(const struct scry_protos *p, const char *name,
					  const char *path);
/* All, in their order; NULL behind the last. */
const struct scry_proto *scry_protos_at(const struct scry_protos *p, size_t i);

/* "long NAME(long, long, long, long)", of numbers that may be addresses: what is shown of functions
 * that nothing is known of. */
extern const struct scry_proto scry_proto_unknown;

#endif
