/*
 * --where: which calls are shown, by what they took, returned and how long they were:
 * 'arg2 > 4096 && ret < 0', 'duration >= 5ms', 'arg1 ~ "*.conf" || !(ret == 0)'.
 *
 * Values are those that JSON has: numbers with the sign of their type, texts. A comparison with
 * what was not recorded, or of a text with a number, is neither true nor false; so is that of a
 * text that was cut with a pattern, or with a text that begins with it. An enum is a number, too.
 */
#ifndef SCRY_VIEW_CALLS_WHERE_H
#define SCRY_VIEW_CALLS_WHERE_H

#include "view/calls_line.h"

struct scry_call_where;

enum scry_call_where_answer { SCRY_WHERE_NO, SCRY_WHERE_UNKNOWN, SCRY_WHERE_YES };

/* NULL takes all. -EINVAL or -ENOMEM with a sentence. */
int scry_call_where_parse(const char *text, struct scry_call_where **ret);
void scry_call_where_free(struct scry_call_where *w); /* NULL is legal */

/* image->ret may be NULL: then result and duration are not known. `f` may be NULL. */
enum scry_call_where_answer scry_call_where_takes(const struct scry_call_where *w,
						  const struct scry_call_image *image,
						  const struct scry_call_function *f);

#endif
