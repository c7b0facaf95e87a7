/*
 * SQL without its literals, for what is kept: strings, numbers and comments may hold secrets.
 */
#ifndef SCRY_NAME_SQL_H
#define SCRY_NAME_SQL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/*
 * Appends `sql` with each string and number as `?`, comments left out. Names, keywords and
 * parameters stay. What is not closed, as the text is cut, counts as closed. MySQL: "x" is a string
 * and not a name, a backslash takes the quote's meaning, # begins a comment. Elsewhere E'x' and
 * $tag$x$tag$ are strings too.
 */
void scry_sql_digest(const char *sql, size_t length, bool is_mysql, struct scry_buf *ret);

#endif
