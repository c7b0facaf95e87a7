/*
 * The folded renderer: one line per stack, `frame;frame;[Class] count`, as flame graph tools take
 * it. Rows are stacks; data quality and notes go to the talk, since such a file has no place for
 * them.
 *
 * A frame is file:line:method; a C function's is its name and "_[c]". The class is there where the
 * table has one. A `;` in a text becomes a
 * `,`, and blanks and control characters become `_`, so that a line splits in one way only.
 */
#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"
#include "view/doc.h"
#include "view/data_quality.h"
#include "view/native_frames.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { STACK, WEIGHT, NEEDED, CLASS = NEEDED, IS_C, PARTS };

struct folded {
	struct scry_buf line;
	size_t columns[PARTS]; /* where they are in a row */
	bool is_short;	       /* no memory for a line */
};

static void folded_quality(struct scry_doc *doc, const struct scry_data_quality *quality)
{
	struct folded *folded = doc->renderer;

	scry_buf_clear(&folded->line);
	scry_data_quality_line(quality, doc->view, &folded->line);
	if (doc->talk)
		fprintf(doc->talk, "%s\n", scry_buf_str(&folded->line));
}

static void folded_note(struct scry_doc *doc, const char *bytes, size_t length)
{
	struct folded *folded = doc->renderer;

	scry_buf_clear(&folded->line);
	scry_text_escape(&folded->line, bytes, length);
	if (doc->talk)
		fprintf(doc->talk, "note: %s\n", scry_buf_str(&folded->line));
}

/* A stack says nothing of it. */
static void folded_verdict(struct scry_doc *doc, const char *bytes, size_t length)
{
}

static void folded_totals(struct scry_doc *doc, const struct scry_pair *pairs, size_t count)
{
}

static void folded_table(struct scry_doc *doc)
{
	struct folded *folded = doc->renderer;
	const char *keys[PARTS] = {"frames", doc->weight, "class", "is_c"};
	size_t i, part;

	for (part = 0; part < PARTS; part++) {
		folded->columns[part] = doc->column_count;
		for (i = 0; i < doc->column_count; i++)
			if (doc->columns[i].key && !strcmp(doc->columns[i].key, keys[part]))
				folded->columns[part] = i;
		assert(part >= NEEDED || folded->columns[part] < doc->column_count);
	}
}

/* Bytes that would split a line are replaced. */
static void put_plain(struct scry_buf *buf, const char *bytes, size_t length)
{
	size_t i, begin = buf->len;

	scry_text_escape(buf, bytes, length);
	for (i = begin; i < buf->len; i++) {
		if (buf->data[i] == ';')
			buf->data[i] = ',';
		else if (buf->data[i] == ' ')
			buf->data[i] = '_';
	}
}

/* `is_mixed`: native frames are among others, and are marked. */
static void put_frame(struct scry_buf *buf, const struct scry_doc_frame *frame, bool is_mixed)
{
	struct scry_buf name = {0};

	if (frame->is_native) {
		scry_native_frame_name(frame, &name);
		put_plain(buf, scry_buf_str(&name), name.len);
		scry_buf_append(buf, "_[n]", is_mixed ? 4 : 0);
		scry_buf_done(&name);
		return;
	}
	if (frame->is_c && frame->method) {
		put_plain(buf, frame->method, frame->method_length);
		scry_buf_append(buf, "_[c]", 4);
		return;
	}
	if (frame->file)
		put_plain(buf, frame->file, frame->file_length);
	else
		put_plain(buf, "(no Ruby frame)", 15);
	if (frame->line)
		scry_buf_printf(buf, ":%" PRIu32, frame->line);
	if (frame->method) {
		scry_buf_append(buf, ":", 1);
		put_plain(buf, frame->method, frame->method_length);
	}
}

/* The cell of a part that not every table has. */
static const struct scry_cell *cell_of(const struct scry_doc *doc, const struct scry_cell *cells,
				       int part)
{
	const struct folded *folded = doc->renderer;

	return folded->columns[part] < doc->column_count ? &cells[folded->columns[part]] : NULL;
}

static void folded_row(struct scry_doc *doc, const struct scry_cell *cells)
{
	static const struct scry_doc_frame nameless;
	static const struct scry_cell none = {.frames = &nameless, .number = 1};
	struct folded *folded = doc->renderer;
	const struct scry_cell *weight = &cells[folded->columns[WEIGHT]],
			       *stack = &cells[folded->columns[STACK]];
	const struct scry_cell *class = cell_of(doc, cells, CLASS);
	const bool is_mixed = cell_of(doc, cells, IS_C) != NULL;
	struct scry_buf *line = &folded->line;

	if (weight->is_unknown || !weight->number)
		return;
	if (stack->is_unknown || !stack->number)
		stack = &none;
	scry_buf_clear(line);
	for (uint64_t i = 0; i < stack->number; i++) {
		scry_buf_append(line, ";", i ? 1 : 0);
		put_frame(line, &stack->frames[i], is_mixed);
	}
	if (class) {
		scry_buf_append(line, ";[", 2);
		put_plain(line, class->is_unknown ? "(unknown)" : class->bytes,
			  class->is_unknown ? 9 : class->length);
		scry_buf_append(line, "]", 1);
	}
	scry_buf_printf(line, " %" PRIu64 "\n", weight->number);
	folded->is_short |= line->failed;
	if (!line->failed)
		fputs(scry_buf_str(line), doc->out);
}

static void folded_remark(struct scry_doc *doc, const char *remark)
{
	if (doc->talk)
		fprintf(doc->talk, "%s\n", scry_text_shown(remark).text);
}

static void folded_abandon(struct scry_doc *doc)
{
	struct folded *folded = doc->renderer;

	scry_buf_done(&folded->line);
	free(folded);
	doc->renderer = NULL;
}

static int folded_end(struct scry_doc *doc)
{
	bool is_short = ((struct folded *)doc->renderer)->is_short;

	folded_abandon(doc);
	if (is_short)
		return scry_no_memory("the report");
	return scry_flush(doc->out, "the report");
}

int scry_out_folded_open(struct scry_doc *doc)
{
	static const struct scry_doc_ops ops = {
		.quality = folded_quality,
		.note = folded_note,
		.verdict = folded_verdict,
		.totals = folded_totals,
		.table = folded_table,
		.row = folded_row,
		.remark = folded_remark,
		.end = folded_end,
		.abandon = folded_abandon,
	};

	doc->ops = &ops;
	doc->is_data = doc->is_folded = true;
	doc->renderer = calloc(1, sizeof(struct folded));
	return doc->renderer ? 0 : scry_no_memory("the report");
}
