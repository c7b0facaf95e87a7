/*
 * What all renderers share. See doc.h.
 */
#include "view/doc.h"

#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio_ext.h>
#include <string.h>

void scry_doc_table(struct scry_doc *doc, const struct scry_column *columns, size_t count)
{
	assert(count <= SCRY_DOC_COLUMNS_MAX && !doc->is_stream);
	doc->columns = columns;
	doc->column_count = count;
	doc->ops->table(doc);
}

void scry_doc_remark(struct scry_doc *doc, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	doc->ops->remark(doc, text);
}

void scry_doc_pass_on(struct scry_doc *doc)
{
	if (doc->is_stream && __fpending(doc->out) > __fbufsize(doc->out) / 2)
		fflush(doc->out);
}

int scry_doc_end(struct scry_doc *doc)
{
	return doc->ops->end(doc);
}

void scry_doc_abandon(struct scry_doc *doc)
{
	doc->ops->abandon(doc);
}

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
