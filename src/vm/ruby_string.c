/*
 * Reads a Ruby String of another process as text that is safe to print.
 *
 * The target may change or free the string while we read: the length is bounded by the buffer,
 * each pointer is checked by the read itself, and what is not valid UTF-8 becomes '?'.
 */
#include <errno.h>
#include <string.h>

#include "vm/ruby.h"
#include "vm/ruby_value.h"

#define TEXT_MAX (64u << 10)

/* Length of the valid UTF-8 sequence at `p` with `left` bytes, 0 when it is none or a control code.
 */
static size_t sequence(const unsigned char *p, size_t left)
{
	static const unsigned char lowest[5] = {0, 0, 0, 0xa0, 0x90};
	size_t n = *p < 0x80		     ? 1
		   : *p >= 0xc2 && *p < 0xe0 ? 2
		   : (*p & 0xf0) == 0xe0     ? 3
		   : *p >= 0xf0 && *p < 0xf5 ? 4
					     : 0;

	if (n == 1)
		return *p >= 0x20 && *p != 0x7f;
	if (n == 0 || n > left)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((*p == 0xe0 || *p == 0xf0) && p[1] < lowest[n])
		return 0; /* overlong */
	if ((*p == 0xed && p[1] >= 0xa0) || (*p == 0xf4 && p[1] >= 0x90))
		return 0; /* surrogates, beyond U+10FFFF */
	if (*p == 0xc2 && p[1] < 0xa0)
		return 0; /* C1 control codes */
	return n;
}

void scry_ruby_make_printable(char *buf, size_t size)
{
	for (size_t i = 0; i < size;) {
		size_t n = sequence((unsigned char *)buf + i, size - i);

		if (n == 0) {
			buf[i] = '?';
			n = 1;
		}
		i += n;
	}
}

ssize_t scry_ruby_string(const struct scry_ruby *ruby, uint64_t str, char *buf, size_t size)
{
	const struct scry_ruby_layout *l = &ruby->layout;
	uint64_t flags, at = str + l->string_embed, length;

	if (size == 0 || str < SCRY_RUBY_NIL_MAX || str % 8)
		return -EINVAL;
	if (scry_mem_u64(&ruby->mem, str, &flags))
		return -EFAULT;
	if ((flags & SCRY_RUBY_TYPE_MASK) != SCRY_RUBY_T_STRING)
		return -EINVAL;
	if (flags & l->string_noembed) {
		if (scry_mem_u64(&ruby->mem, str + l->string_ptr, &at) ||
		    scry_mem_u64(&ruby->mem, str + l->string_len, &length))
			return -EFAULT;
	} else if (l->string_embed_len_mask) {
		length = (flags & l->string_embed_len_mask) >> l->string_embed_len_shift;
	} else if (scry_mem_u64(&ruby->mem, str + l->string_len, &length)) {
		return -EFAULT;
	}
	if (length > TEXT_MAX)
		length = TEXT_MAX;
	if (length > size - 1)
		length = size - 1;
	if (scry_mem_read(&ruby->mem, at, buf, length))
		return -EFAULT;
	scry_ruby_make_printable(buf, length);
	buf[length] = '\0';
	return (ssize_t)length;
}
