/*
 * Cells. See cell.h.
 */
#include "view/cell.h"

#include <math.h>
#include <string.h>

struct scry_cell scry_cell_text(const char *bytes, size_t length)
{
	return (struct scry_cell){.bytes = bytes, .length = length, .is_unknown = !bytes};
}

struct scry_cell scry_cell_number(uint64_t number)
{
	return (struct scry_cell){.number = number};
}

struct scry_cell scry_cell_few_samples(void)
{
	return (struct scry_cell){.is_unknown = true, .bytes = "few samples", .length = 11};
}

struct scry_cell scry_cell_known(uint64_t number, bool is_known)
{
	return (struct scry_cell){.number = number, .is_unknown = !is_known};
}

struct scry_cell scry_cell_unknown(void)
{
	return (struct scry_cell){.is_unknown = true};
}

struct scry_cell scry_cell_string(const char *string)
{
	return scry_cell_text(string, string ? strlen(string) : 0);
}

struct scry_cell scry_cell_buf(const struct scry_buf *buf)
{
	return scry_cell_text(buf->len ? buf->data : NULL, buf->len);
}

struct scry_cell scry_cell_ms(double seconds, struct scry_buf *buf)
{
	scry_buf_printf(buf, "%.1f", seconds * 1e3);
	return scry_cell_buf(buf);
}

struct scry_cell scry_cell_ms_change(double seconds, struct scry_buf *buf)
{
	scry_buf_printf(buf, "%s%.1f", seconds < 0 ? "-" : "+", fabs(seconds) * 1e3);
	return scry_cell_buf(buf);
}

struct scry_cell scry_cell_double(double number, struct scry_doc_value *value)
{
	*value = (struct scry_doc_value){.kind = SCRY_VALUE_DOUBLE};
	memcpy(&value->number, &number, sizeof(number));
	return (struct scry_cell){.values = value, .number = 1};
}
