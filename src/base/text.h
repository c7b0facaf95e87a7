/*
 * Foreign bytes as text that is safe to show, and numbers as people read them.
 *
 * Strings of a watched process may hold anything: terminal escapes, broken UTF-8, characters that
 * turn the writing direction. What is printed for people goes through scry_text_escape first.
 */
#ifndef SCRY_BASE_TEXT_H
#define SCRY_BASE_TEXT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Length of the well-formed UTF-8 character at `bytes` (1-4), or 0 when it is not one; then
 * *ret_bad is the number of bytes of the maximal bad part (table 3-7 of the Unicode standard).
 * `len` at least 1.
 */
size_t scry_utf8_length(const unsigned char *bytes, size_t len, size_t *ret_bad);

/*
 * Is the well-formed character of `len` bytes one that must not be shown as it is? Control
 * characters (C0, DEL, C1), line and paragraph separators, and those that turn the writing
 * direction (Bidi_Control in PropList.txt of the Unicode standard).
 */
bool scry_text_is_tricky(const unsigned char *at, size_t len);

/*
 * Appends the bytes; tricky characters and bad UTF-8 become \n, \t or \xNN for each byte. 0 or
 * -ENOMEM.
 */
int scry_text_escape(struct scry_buf *buf, const char *bytes, size_t len);

/* The same for printf: `scry_text_shown(comm).text`, good to the end of that statement. What is too
 * long ends in "...". */
#define SCRY_SHOWN_MAX 2048
struct scry_shown {
	char text[SCRY_SHOWN_MAX];
};
struct scry_shown scry_text_shown(const char *text);

/* The same between double quotes, with quotes and backslashes escaped: can be read back. */
int scry_text_quote(struct scry_buf *buf, const char *bytes, size_t len);

/* Columns that escaped text takes: its characters, each counted as one. */
size_t scry_text_width(const char *text);

/* Appends the text; of a word that takes more than `most` columns (at least 8) the middle is left
 * out for "...". 0 or -ENOMEM. */
int scry_text_shorten(struct scry_buf *buf, const char *text, size_t most);

/* part of whole in units of 1 / scale (100: percent), to the nearest: for what is shown. 0 of
 * nothing, UINT64_MAX where it is more. */
uint64_t scry_share(uint64_t part, uint64_t whole, uint64_t scale);

/* Appends a share as "38.2 %". 0 or -ENOMEM. */
int scry_text_percent(struct scry_buf *buf, uint64_t part, uint64_t whole);

/* What is known of a figure from a histogram: 989855 is 990000. Not more than `most`. */
uint64_t scry_two_digits(uint64_t value, uint64_t most);

/* Appends 1234567 as 1,234,567. 0 or -ENOMEM. */
int scry_text_count(struct scry_buf *buf, uint64_t value);

/* For "%zu row%s %s left": the ending of so many, and the verb. */
const char *scry_text_s(uint64_t count);
const char *scry_text_were(uint64_t count);

/* Appends "1,234 objects", or "1 object", of the plural. 0 or -ENOMEM. */
int scry_text_things(struct scry_buf *buf, uint64_t count, const char *plural);

/* Appends a size: 512 B, 1.5 KiB, 49.4 MiB. 0 or -ENOMEM. */
int scry_text_size(struct scry_buf *buf, uint64_t bytes);

/* Appends a time: 850 us, 0.4 ms, 30.0 s, 5 min 3 s. 0 or -ENOMEM. */
int scry_text_duration(struct scry_buf *buf, uint64_t ns);

#endif
