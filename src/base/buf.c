/*
 * A growable byte buffer: doubles, always NUL terminated. See buf.h.
 */
#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int scry_buf_reserve(struct scry_buf *buf, size_t extra)
{
	size_t cap = buf->cap ? buf->cap : 64;
	char *data;

	if (buf->failed)
		return -ENOMEM;
	if (extra >= SIZE_MAX / 2 - buf->len) {
		buf->failed = true;
		return -ENOMEM;
	}
	while (cap < buf->len + extra + 1)
		cap *= 2;
	if (cap == buf->cap)
		return 0;
	data = realloc(buf->data, cap);
	if (!data) {
		buf->failed = true;
		return -ENOMEM;
	}
	buf->data = data;
	buf->cap = cap;
	return 0;
}

int scry_buf_append(struct scry_buf *buf, const void *data, size_t len)
{
	int err = scry_buf_reserve(buf, len);

	if (err)
		return err;
	if (len)
		memcpy(buf->data + buf->len, data, len);
	buf->len += len;
	buf->data[buf->len] = '\0';
	return 0;
}

int scry_buf_zeros(struct scry_buf *buf, size_t len)
{
	int err = scry_buf_reserve(buf, len);

	if (err)
		return err;
	memset(buf->data + buf->len, 0, len + 1);
	buf->len += len;
	return 0;
}

int scry_buf_printf(struct scry_buf *buf, const char *fmt, ...)
{
	va_list ap;
	int len, err;

	va_start(ap, fmt);
	len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (len < 0)
		return -EINVAL;
	err = scry_buf_reserve(buf, (size_t)len);
	if (err)
		return err;
	va_start(ap, fmt);
	vsnprintf(buf->data + buf->len, (size_t)len + 1, fmt, ap);
	va_end(ap);
	buf->len += (size_t)len;
	return 0;
}

const char *scry_buf_str(const struct scry_buf *buf)
{
	return buf->data ? buf->data : "";
}

void scry_buf_clear(struct scry_buf *buf)
{
	buf->len = 0;
	buf->failed = false;
	if (buf->data)
		buf->data[0] = '\0';
}

void scry_buf_done(struct scry_buf *buf)
{
	free(buf->data);
	*buf = (struct scry_buf){0};
}
