/*
 * Characters of lines of calls, escaped as ltrace does, and flags by their names.
 */
#ifndef SCRY_VIEW_CALLS_TEXT_H
#define SCRY_VIEW_CALLS_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "proto/type.h"

/* One character of a string of `have` bytes; UTF-8 stays. Returns how many bytes it takes. */
size_t scry_call_put_char(struct scry_buf *buf, const uint8_t *at, size_t have);
/* A wide character, as UTF-8; what is none in octal, as ltrace does. */
void scry_call_put_wide(struct scry_buf *buf, uint32_t c);
/* The same without escapes, for JSON; what is none becomes U+FFFD. */
void scry_call_put_utf8(struct scry_buf *buf, uint32_t c);

/* "O_WRONLY|O_CREAT|0x4000000": the names of flags that are set, then the rest. */
void scry_call_put_flags(struct scry_buf *buf, const struct scry_type *t, uint64_t n);

#endif
