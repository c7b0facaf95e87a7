/*
 * A growable byte buffer.
 *
 * Life cycle: a zeroed struct is an empty buffer; scry_buf_done() frees it and makes it empty
 * again. The first failed growth is remembered in `failed`, later appends do nothing, so that a
 * caller may append many times and look once. The bytes are always followed by a NUL that `len`
 * does not count, but `data` is NULL until the first append: scry_buf_str() gives "" then.
 */
#ifndef SCRY_BASE_BUF_H
#define SCRY_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct scry_buf {
	char *data;
	size_t len; /* bytes in use */
	size_t cap; /* bytes allocated */
	bool failed;
};

/* Makes room for `extra` more bytes. 0 or -ENOMEM; pointers into the buffer are void afterwards. */
int scry_buf_reserve(struct scry_buf *buf, size_t extra);

/* Appends `len` bytes. `data` must not lie inside the buffer. 0 or -ENOMEM, then nothing is added.
 */
int scry_buf_append(struct scry_buf *buf, const void *data, size_t len);

/* Appends `len` zero bytes. 0 or -ENOMEM. */
int scry_buf_zeros(struct scry_buf *buf, size_t len);

/* Appends formatted text. 0, -ENOMEM, or -EINVAL for a format that cannot be printed. */
int scry_buf_printf(struct scry_buf *buf, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The content as a C string, "" when empty. Valid until the next call that changes the buffer. */
const char *scry_buf_str(const struct scry_buf *buf);

/* Forgets the content and the failure, keeps the memory. */
void scry_buf_clear(struct scry_buf *buf);

/* Frees the memory. */
void scry_buf_done(struct scry_buf *buf);

#endif
