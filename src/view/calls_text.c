/* See calls_text.h. */
#include "view/calls_text.h"

#include <string.h>

#include "base/text.h"
#include "view/calls_number.h"

size_t scry_call_put_char(struct scry_buf *buf, const uint8_t *at, size_t have)
{
	static const char escaped[] = "\\abtnvfr", codes[] = "\\\a\b\t\n\v\f\r";
	const char *code = *at ? strchr(codes, *at) : NULL;
	size_t bad, n = *at >= 0x80 ? scry_utf8_length(at, have, &bad) : 0, before = buf->len;

	if (!*at) {
		scry_buf_append(buf, "\\0", 2);
	} else if (code) {
		scry_buf_append(buf, "\\", 1);
		scry_buf_append(buf, &escaped[code - codes], 1);
	} else if (*at >= ' ' && *at < 0x7f) {
		scry_buf_append(buf, at, 1);
	} else {
		if (n)
			scry_text_escape(buf, (const char *)at, n);
		if (n && !buf->failed && buf->data[before] != '\\')
			return n;
		if (!buf->failed)
			buf->len = before;
		scry_buf_printf(buf, "\\%03o", *at);
	}
	return 1;
}

/* Bytes of UTF-8, 1 to 4; 0: it is not a character. */
static size_t encode(uint32_t c, uint8_t ret[4])
{
	if (c < 0x80) {
		ret[0] = (uint8_t)c;
		return 1;
	}
	if (c < 0x800) {
		ret[0] = (uint8_t)(0xc0 | c >> 6);
		ret[1] = (uint8_t)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		ret[0] = (uint8_t)(0xe0 | c >> 12);
		ret[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		ret[2] = (uint8_t)(0x80 | (c & 0x3f));
		return c >= 0xd800 && c < 0xe000 ? 0 : 3;
	}
	ret[0] = (uint8_t)(0xf0 | c >> 18);
	ret[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
	ret[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
	ret[3] = (uint8_t)(0x80 | (c & 0x3f));
	return c < 0x110000 ? 4 : 0;
}

void scry_call_put_wide(struct scry_buf *buf, uint32_t c)
{
	uint8_t bytes[4];
	const size_t n = encode(c, bytes), before = buf->len;

	if (n && scry_call_put_char(buf, bytes, n) == n)
		return;
	if (!buf->failed)
		buf->len = before; /* its first byte */
	scry_buf_printf(buf, "\\%03o", c);
}

void scry_call_put_utf8(struct scry_buf *buf, uint32_t c)
{
	uint8_t bytes[4];
	size_t n = encode(c, bytes);

	scry_buf_append(buf, n ? (const char *)bytes : "\xef\xbf\xbd", n ? n : 3);
}

void scry_call_put_flags(struct scry_buf *buf, const struct scry_type *t, uint64_t n)
{
	const uint64_t all = t->size < 8 ? (1ull << 8 * t->size) - 1 : ~0ull;
	const size_t before = buf->len;
	uint64_t rest = n;

	for (uint32_t i = 0; i < t->count; i++) {
		const struct scry_enum_name *name = &t->names[i];
		const uint64_t mask = (uint64_t)name->mask & all;

		if ((n & mask) != ((uint64_t)name->value & all) || (name->value && !(rest & mask)))
			continue;
		if (buf->len > before)
			scry_buf_append(buf, "|", 1);
		scry_buf_append(buf, name->name, strlen(name->name));
		rest &= ~mask;
	}
	if (!rest && buf->len > before)
		return;
	if (buf->len > before)
		scry_buf_append(buf, "|", 1);
	scry_call_put_based(buf, rest, 4);
}
