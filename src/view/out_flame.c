/*
 * The flame renderer: one HTML page, complete in itself, that draws the stacks of a table with a
 * column "stack" as a flame graph. It loads nothing, and works without a network.
 *
 * Rows go out at once, as numbers of frames; the frames' names follow when all rows are there. All
 * that comes from the recording is a JavaScript string in which `<`, `>` and `&` are escaped too,
 * and is shown as text: no byte of it can become markup.
 */
#include "base/buf.h"
#include "base/err.h"
#include "base/intern.h"
#include "base/text.h"
#include "view/doc.h"
#include "view/data_quality.h"
#include "view/flame_css.h" /* both made by meson: static const char flame_css[], flame_js[] */
#include "view/flame_js.h"
#include "view/gem.h"
#include "view/native_frames.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX (1u << 20)
#define NAMES_BYTES (256u << 20)

#define BETWEEN '\x1f' /* of a name and its gem: no text that was escaped has it */

enum { STACK, WEIGHT, NEEDED, THREAD = NEEDED, STATE, PARTS };

struct flame {
	struct scry_intern names;	    /* with their gems */
	struct scry_intern threads, states; /* of rows */
	struct scry_buf name, line;
	struct scry_buf talk; /* data quality and notes: a list of JavaScript strings */
	size_t columns[PARTS];
	bool has_table, is_short;
};

static const char head[] =
	"<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>scry stacks</title><style>\n";
static const char body[] =
	"</style></head><body><div id=\"t\"></div><div id=\"bar\">"
	"<input id=\"search\" placeholder=\"search\"><span id=\"found\"></span>"
	"<select id=\"thread\"></select><select id=\"state\"></select>"
	"<select id=\"frames\"></select><button id=\"reset\">reset</button></div>"
	"<div id=\"app\"></div><div id=\"gems\"></div><p id=\"h\">&nbsp;</p>"
	"<div id=\"g\"></div><script>\n";

/* `text`, printable already, between quotes. */
static void put_string(struct scry_buf *buf, const char *text, size_t length)
{
	scry_buf_append(buf, "\"", 1);
	for (size_t i = 0; i < length; i++) {
		if (strchr("\"\\<>&", text[i]) && text[i])
			scry_buf_printf(buf, "\\u%04x", (unsigned char)text[i]);
		else
			scry_buf_append(buf, text + i, 1);
	}
	scry_buf_append(buf, "\"", 1);
}

static void add_talk(struct flame *flame)
{
	put_string(&flame->talk, scry_buf_str(&flame->line), flame->line.len);
	scry_buf_append(&flame->talk, ",\n", 2);
}

static void flame_quality(struct scry_doc *doc, const struct scry_data_quality *quality)
{
	struct flame *flame = doc->renderer;

	scry_buf_clear(&flame->line);
	scry_data_quality_line(quality, doc->view, &flame->line);
	add_talk(flame);
}

static void flame_note(struct scry_doc *doc, const char *bytes, size_t length)
{
	struct flame *flame = doc->renderer;

	scry_buf_clear(&flame->line);
	scry_buf_printf(&flame->line, "note: ");
	scry_text_escape(&flame->line, bytes, length);
	add_talk(flame);
}

/* A stack says nothing of it. */
static void flame_verdict(struct scry_doc *doc, const char *bytes, size_t length)
{
}

static void flame_totals(struct scry_doc *doc, const struct scry_pair *pairs, size_t count)
{
}

static void flame_table(struct scry_doc *doc)
{
	struct flame *flame = doc->renderer;
	const char *keys[PARTS] = {"frames", doc->weight, "thread", "state"};
	const char *unit = strrchr(doc->weight, '_'); /* self_ns, at_bytes; temporary */

	for (size_t part = 0; part < PARTS; part++) {
		flame->columns[part] = doc->column_count;
		for (size_t i = 0; i < doc->column_count; i++)
			if (doc->columns[i].key && !strcmp(doc->columns[i].key, keys[part]))
				flame->columns[part] = i;
		assert(part >= NEEDED || flame->columns[part] < doc->column_count);
	}
	if (!flame->has_table)
		fprintf(doc->out, "const unit=\"%s\";\nconst rows=[\n",
			unit ? unit + 1 : doc->weight);
	flame->has_table = true;
}

static void put_native(struct flame *flame, const struct scry_doc_frame *f)
{
	struct scry_buf name = {0};

	scry_native_frame_name(f, &name);
	scry_text_escape(&flame->name, scry_buf_str(&name), name.len);
	scry_buf_printf(&flame->name, " (native)");
	if (f->file && f->method) {
		scry_buf_printf(&flame->name, "  ");
		scry_text_escape(&flame->name, f->file, f->file_length);
	}
	flame->is_short |= name.failed;
	scry_buf_done(&name);
}

static void put_gem(struct flame *flame, const struct scry_doc_frame *f)
{
	const char between = BETWEEN;
	const bool is_gc = f->method && f->method[0] == '('; /* is on the line that caused it */
	const char *gem = f->is_native ? "(native)" : f->is_c ? "(C)" : is_gc ? "(ruby)" : NULL;
	size_t length = gem ? strlen(gem) : 0;

	if (!gem)
		gem = scry_gem_name(f->file ? f->file : "<internal:", &length);
	scry_buf_append(&flame->name, &between, 1);
	scry_text_escape(&flame->name, gem, length);
}

/* The number of a frame's name, from 0. */
static uint32_t name_of(struct flame *flame, const struct scry_doc_frame *f)
{
	uint32_t id = 0;

	scry_buf_clear(&flame->name);
	if (f->is_native)
		put_native(flame, f);
	else if (f->method)
		scry_text_escape(&flame->name, f->method, f->method_length);
	else
		scry_buf_printf(&flame->name, "(no frame known)");
	if (f->is_c)
		scry_buf_printf(&flame->name, " (C)");
	if (f->file && !f->is_native) {
		scry_buf_printf(&flame->name, "  ");
		const char *path = scry_gem_path(f->file);

		scry_text_escape(&flame->name, path, f->file_length - (size_t)(path - f->file));
		scry_buf_printf(&flame->name, ":%" PRIu32, f->line);
	}
	put_gem(flame, f);
	if (flame->name.failed ||
	    scry_intern_put(&flame->names, flame->name.data, flame->name.len, &id))
		flame->is_short = true;
	return id ? id - 1 : 0;
}

/* The number of a row's thread or state, from 0. */
static uint32_t word_of(struct flame *flame, const struct scry_doc *doc,
			const struct scry_cell *cells, int part)
{
	const struct scry_cell *cell =
		flame->columns[part] < doc->column_count ? &cells[flame->columns[part]] : NULL;
	uint32_t id = 0;

	scry_buf_clear(&flame->name);
	if (cell && cell->bytes)
		scry_text_escape(&flame->name, cell->bytes, cell->length);
	else
		scry_buf_append(&flame->name, "-", 1);
	if (flame->name.failed || scry_intern_put(part == THREAD ? &flame->threads : &flame->states,
						  flame->name.data, flame->name.len, &id))
		flame->is_short = true;
	return id ? id - 1 : 0;
}

static void flame_row(struct scry_doc *doc, const struct scry_cell *cells)
{
	struct flame *flame = doc->renderer;
	const struct scry_cell *stack = &cells[flame->columns[STACK]];
	const struct scry_cell *weight = &cells[flame->columns[WEIGHT]];

	if (weight->is_unknown || !weight->number)
		return;
	fprintf(doc->out, "[%" PRIu64 ",[", weight->number);
	for (uint64_t i = 0; i < stack->number && !stack->is_unknown; i++)
		fprintf(doc->out, "%s%" PRIu32, i ? "," : "", name_of(flame, &stack->frames[i]));
	fprintf(doc->out, "],%" PRIu32 ",%" PRIu32 "],\n", word_of(flame, doc, cells, THREAD),
		word_of(flame, doc, cells, STATE));
}

static void flame_remark(struct scry_doc *doc, const char *remark)
{
}

static void flame_abandon(struct scry_doc *doc)
{
	struct flame *flame = doc->renderer;

	scry_intern_done(&flame->names);
	scry_intern_done(&flame->threads);
	scry_intern_done(&flame->states);
	scry_buf_done(&flame->name);
	scry_buf_done(&flame->line);
	scry_buf_done(&flame->talk);
	free(flame);
	doc->renderer = NULL;
}

/* A JavaScript array of texts, or of the part of each before or behind its mark. */
enum half { BEFORE, BEHIND };
static void put_list(struct scry_doc *doc, const char *name, const struct scry_intern *texts,
		     enum half half)
{
	struct flame *flame = doc->renderer;

	fprintf(doc->out, "const %s=[\n", name);
	for (uint32_t i = 1; i <= texts->count; i++) {
		size_t length = 0;
		const char *text = scry_intern_get(texts, i, &length);
		const char *mark = memchr(text, BETWEEN, length);
		size_t before = mark ? (size_t)(mark - text) : length;

		scry_buf_clear(&flame->line);
		if (half == BEFORE)
			put_string(&flame->line, text, before);
		else
			put_string(&flame->line, mark + 1, length - before - 1);
		fprintf(doc->out, "%s,\n", scry_buf_str(&flame->line));
		flame->is_short |= flame->line.failed;
	}
	fputs("];\n", doc->out);
}

static int flame_end(struct scry_doc *doc)
{
	struct flame *flame = doc->renderer;
	bool is_short = flame->is_short || flame->talk.failed;

	fputs(flame->has_table ? "];\n" : "const unit='';\nconst rows=[];\n", doc->out);
	put_list(doc, "names", &flame->names, BEFORE);
	put_list(doc, "gems", &flame->names, BEHIND);
	put_list(doc, "threads", &flame->threads, BEFORE);
	put_list(doc, "states", &flame->states, BEFORE);
	is_short |= flame->is_short;
	fprintf(doc->out, "const talk=[\n%s];\n%s</script></body></html>\n",
		scry_buf_str(&flame->talk), flame_js);
	flame_abandon(doc);
	if (is_short)
		return scry_no_memory("the picture");
	return scry_flush(doc->out, "the picture");
}

int scry_out_flame_open(struct scry_doc *doc)
{
	static const struct scry_doc_ops ops = {
		.quality = flame_quality,
		.note = flame_note,
		.verdict = flame_verdict,
		.totals = flame_totals,
		.table = flame_table,
		.row = flame_row,
		.remark = flame_remark,
		.end = flame_end,
		.abandon = flame_abandon,
	};
	struct flame *flame = calloc(1, sizeof(*flame));

	if (!flame)
		return scry_no_memory("the picture");
	scry_intern_init(&flame->names, NAMES_MAX, NAMES_BYTES);
	scry_intern_init(&flame->threads, NAMES_MAX, NAMES_BYTES);
	scry_intern_init(&flame->states, NAMES_MAX, NAMES_BYTES);
	doc->ops = &ops;
	doc->is_data = doc->is_folded = true;
	doc->renderer = flame;
	fprintf(doc->out, "%s%s%s", head, flame_css, body);
	return 0;
}
