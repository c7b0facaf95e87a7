/*
 * Which symbols of which objects are meant: the filter expressions of ltrace(1).
 *
 *   [{+|-}][SYMBOL][@LIBRARY]...     malloc+free-@libc.so*
 *
 * A chain of rules. A symbol begins unmarked; a rule that matches it marks it (+) or unmarks it
 * (-); what is marked at the end is taken. The first sign may be left out; a first - comes behind a
 * rule that takes all. A part that is left out matches all.
 *
 * Both parts are globs that match the whole name, or, between slashes, extended regular expressions
 * (/x/@/y/ or, shorter, /x@y/) that match any part of it. A C++ or Rust name is matched as it is,
 * demangled, and demangled without its parameters: std::*, ns::Class::method. LIBRARY is matched
 * with the soname and the last part of the path; MAIN is the program itself ([M]AIN a library of
 * that name); what begins with a slash, and is not a regular expression, is a glob for the path.
 *
 * Beyond ltrace: within brackets, within slashes, before a slash of a path, and doubled (libstdc++)
 * a sign is a sign of the name. So is, in a library, a dash before a digit, and one with ".so"
 * behind and none before it: libglib-2.0.so.0, ld-linux-x86-64.so.2. No symbol looks like what
 * follows these. Elsewhere it takes away, as ltrace has it; else [-] is a dash: @ld[-]linux*.
 */
#ifndef SCRY_SYS_FILTER_H
#define SCRY_SYS_FILTER_H

#include <stdbool.h>

struct scry_filter;

struct scry_filter_object {
	const char *soname; /* NULL: none */
	const char *path;
	bool is_main;
};

/* -EINVAL: no filter expression; -ENOMEM; with a sentence. */
int scry_filter_parse(const char *text, struct scry_filter **ret);
void scry_filter_free(struct scry_filter *f); /* NULL is legal */

bool scry_filter_takes(const struct scry_filter *f, const char *symbol,
		       const struct scry_filter_object *object);
/* May it take a symbol of this object? */
bool scry_filter_concerns(const struct scry_filter *f, const struct scry_filter_object *object);

#endif
