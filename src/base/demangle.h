/*
 * The names that compilers make of C++ and Rust functions, as their programmers wrote them.
 *
 * By libiberty, with its limit on recursion. What is read and what is made are at most
 * SCRY_DEMANGLE_MAX bytes: short names exist whose readable form has no end. A name that is not
 * mangled, not understood, or over these limits is shown as it is. Recordings and JSON's `symbol`
 * keep the mangled name, which alone says which function it is.
 */
#ifndef SCRY_BASE_DEMANGLE_H
#define SCRY_BASE_DEMANGLE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"

#define SCRY_DEMANGLE_MAX 4096

/* Appends `name` as people read it, with its parameters where it has them. False: it is not
 * mangled, not understood, or there is no room; then nothing is appended. */
bool scry_demangle(const char *name, size_t length, struct scry_buf *buf);

/* The same, or the name itself. */
void scry_demangle_put(const char *name, size_t length, struct scry_buf *buf);

/* The same, escaped for a page or a terminal (base/text). */
void scry_demangle_show(const char *name, size_t length, struct scry_buf *buf);

/* The same without its parameters: for a line that shows the arguments themselves. */
void scry_demangle_show_bare(const char *name, size_t length, struct scry_buf *buf);

/* For printf, as scry_text_shown. */
struct scry_shown scry_demangle_shown(const char *name);

/* In JSON: a key "demangled", where the name is mangled. NULL: none. */
void scry_demangle_key(struct scry_json *json, const char *name, size_t length);

/* Does `is` take the name: as it is, demangled, or demangled without its parameters? So a pattern
 * may be ns::Class::method, ns::*, or the mangled name. */
bool scry_demangle_any(const char *name, bool (*is)(const char *name, const void *arg),
		       const void *arg);

#endif
