/*
 * What all renderers share. See doc.h.
 */
#include "view/doc.h"

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
