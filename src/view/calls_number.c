/* See calls_number.h. */
#include "view/calls_number.h"

#include <stdbool.h>

void scry_call_put_u64(struct scry_buf *buf, uint64_t value, unsigned int digits)
{
	char text[24], *at = text + sizeof(text);

	for (; value || digits; value /= 10) {
		*--at = (char)('0' + value % 10);
		digits -= digits > 0;
	}
	scry_buf_append(buf, at, (size_t)(text + sizeof(text) - at));
}

void scry_call_put_seconds(struct scry_buf *buf, uint64_t ns)
{
	scry_call_put_u64(buf, ns / 1000000000, 1);
	scry_buf_append(buf, ".", 1);
	scry_call_put_u64(buf, ns % 1000000000, 9);
}

void scry_call_put_i64(struct scry_buf *buf, int64_t value)
{
	if (value < 0)
		scry_buf_append(buf, "-", 1);
	scry_call_put_u64(buf, value < 0 ? -(uint64_t)value : (uint64_t)value, 1);
}

void scry_call_put_based(struct scry_buf *buf, uint64_t value, unsigned int bits)
{
	char text[66], *at = text + sizeof(text);
	bool is_zero = !value;

	do
		*--at = "0123456789abcdef"[value & ((1u << bits) - 1)];
	while (value >>= bits);
	if (bits != 3 && !is_zero)
		*--at = bits == 4 ? 'x' : 'b';
	if (bits == 3 || !is_zero)
		*--at = '0';
	scry_buf_append(buf, at, (size_t)(text + sizeof(text) - at));
}
