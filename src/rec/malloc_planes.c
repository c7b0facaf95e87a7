/* See malloc_planes.h. */
#include "rec/malloc_planes.h"

#define PLANES 10 /* bytes of the longest varint */
#define MORE 0x80u

void scry_malloc_planes_split(const uint8_t *column, size_t len, uint8_t *ret_planes)
{
	size_t count[PLANES] = {0};
	uint8_t *at[PLANES];
	unsigned int plane = 0;

	for (size_t i = 0; i < len; i++) {
		count[plane]++;
		plane = column[i] & MORE ? plane + 1 : 0;
	}
	for (plane = 0; plane < PLANES; plane++) {
		at[plane] = ret_planes;
		ret_planes += count[plane];
	}
	plane = 0;
	for (size_t i = 0; i < len; i++) {
		*at[plane]++ = column[i];
		plane = column[i] & MORE ? plane + 1 : 0;
	}
}

/* Bytes of `bytes` that have MORE. */
static size_t with_more(const uint8_t *bytes, size_t len)
{
	size_t count = 0;

	for (size_t i = 0; i < len; i++)
		count += bytes[i] >> 7;
	return count;
}

bool scry_malloc_planes_join(const uint8_t *planes, size_t len, uint8_t *ret_column)
{
	size_t count = len - with_more(planes, len), left = len;
	const uint8_t *at[PLANES + 1], *first = planes + count;

	for (unsigned int plane = 0; plane <= PLANES; plane++) {
		if (count > left || (count && plane == PLANES))
			return false;
		at[plane] = planes;
		planes += count;
		left -= count;
		count = with_more(at[plane], count);
	}
	if (left)
		return false;
	while (at[0] < first)
		for (unsigned int plane = 0;; plane++) {
			*ret_column++ = *at[plane];
			if (!(*at[plane]++ & MORE))
				break;
		}
	return true;
}
