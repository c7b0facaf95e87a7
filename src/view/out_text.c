/*
 * The text renderer: made to be read. A document begins with its verdict; then comes what is
 * missing, if anything is, then notes and tables, and at the end, in one line, what was watched,
 * what that took, and the sums that are not 0 (with -v all of them, one a line). A document without
 * a verdict is bookkeeping itself: what was watched and all sums come first.
 *
 * Columns are as wide as their cells, so a table's first rows are held back (HELD_ROWS or
 * HELD_BYTES) until their widths are known; later rows are printed at once in those widths. A held
 * cell is escaped text with its NUL, one after the other.
 */
#include "base/buf.h"
#include "base/demangle.h"
#include "base/err.h"
#include "base/log.h"
#include "base/text.h"
#include "view/doc.h"
#include "view/data_quality.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HELD_ROWS 1000u
#define HELD_BYTES (1u << 20)
#define WIDTH_MAX 120u
#define TOTAL_WIDTH_MAX 40u
#define ELASTIC_MIN 16u /* columns: less of a path says nothing */

struct text {
	struct scry_column columns[SCRY_DOC_COLUMNS_MAX]; /* of the table whose rows are held */
	size_t column_count;
	struct scry_buf held;
	size_t held_rows;
	bool is_flowing; /* widths are settled, rows go out at once */
	bool has_table;
	bool has_rows; /* printed; the next remark keeps its distance */
	bool has_gap;  /* the last line is empty */
	size_t widths[SCRY_DOC_COLUMNS_MAX];
	size_t limits[SCRY_DOC_COLUMNS_MAX]; /* elastic columns are cut to these; 0: no limit */
	struct scry_buf line;
	bool has_verdict;
	bool has_head; /* printed; until then its sentences are kept, each with its NUL */
	struct scry_buf verdict, losses, notes;
	struct scry_buf watched, whole; /* to the end; whole: with losses, and what is 0 */
	struct scry_buf totals;		/* to the end: a sentence, or with -v lines */
	struct scry_buf costs; /* to the end: notes that are bookkeeping, each with its NUL */
	uint64_t shown;	       /* what `watched` counts; 0: nothing, or of two recordings */
};

/* The cell as people read it, escaped. */
static void put_cell(struct scry_buf *buf, enum scry_cell_kind kind, const struct scry_cell *cell)
{
	if (cell->is_blank)
		return;
	if (cell->is_unknown) {
		scry_buf_append(buf, cell->bytes ? cell->bytes : "-",
				cell->bytes ? cell->length : 1);
		scry_buf_append(buf, " ", cell->mark ? 1 : 0);
		return;
	}
	switch (kind) {
	case SCRY_CELL_TEXT:
		scry_text_escape(buf, cell->bytes, cell->length);
		break;
	case SCRY_CELL_SYMBOL:
		scry_demangle_show(cell->bytes, cell->length, buf);
		break;
	case SCRY_CELL_COUNT:
		scry_text_count(buf, cell->number);
		break;
	case SCRY_CELL_NUMBER:
		scry_buf_printf(buf, "%" PRIu64, cell->number);
		break;
	case SCRY_CELL_HEX:
		scry_buf_printf(buf, "0x%" PRIx64, cell->number);
		break;
	case SCRY_CELL_TIME:
		scry_buf_printf(buf, "%" PRIu64 ".%06" PRIu64, cell->number / 1000000000,
				cell->number % 1000000000 / 1000);
		break;
	case SCRY_CELL_DELTA:
		if (cell->number)
			scry_buf_append(buf, (int64_t)cell->number < 0 ? "-" : "+", 1);
		scry_text_count(buf, (int64_t)cell->number < 0 ? -cell->number : cell->number);
		break;
	case SCRY_CELL_TENTHS:
		scry_buf_printf(buf, "%" PRIu64 ".%u", cell->number / 10,
				(unsigned int)(cell->number % 10));
		break;
	case SCRY_CELL_BOOL:
	case SCRY_CELL_FRAMES:
	case SCRY_CELL_VALUE:
	case SCRY_CELL_VALUES: /* not for people */
	case SCRY_CELL_LINES:  /* print_lines */
		break;
	}
	if (cell->mark)
		scry_buf_append(buf, &cell->mark, 1);
}

/* A sentence, broken at blanks where it is wider than the terminal. */
static void print_wrapped(const struct scry_doc *doc, FILE *out, const char *sentence)
{
	size_t column = 0;

	while (*sentence) {
		size_t len = strcspn(sentence, " "), i, width = 0;

		for (i = 0; i < len; i++)
			width += ((unsigned char)sentence[i] & 0xc0) != 0x80;
		if (column && doc->width && column + 1 + width > doc->width) {
			fputs("\n  ", out);
			column = 2;
		} else if (column) {
			fputc(' ', out);
			column++;
		}
		fwrite(sentence, 1, len, out);
		column += width;
		sentence += len;
		sentence += *sentence == ' ';
	}
	fputc('\n', out);
}

/* Where remarks beside the data go; NULL: nothing reads them, or any more. */
static FILE *talk_of(const struct scry_doc *doc)
{
	if (!doc->is_stream)
		return doc->out;
	return ferror(doc->out) ? NULL : doc->talk;
}

/* Sentences that lie one behind the other. */
static void print_all(const struct scry_doc *doc, struct scry_buf *sentences)
{
	for (size_t at = 0; at < sentences->len; at += strlen(sentences->data + at) + 1)
		print_wrapped(doc, doc->out, sentences->data + at);
	scry_buf_clear(sentences);
}

static void put_head(struct scry_doc *doc)
{
	struct text *text = doc->renderer;

	if (text->has_head || doc->is_stream)
		return;
	text->has_head = true;
	text->has_gap = !text->verdict.len && !text->whole.len && !text->notes.len;
	if (text->has_verdict) {
		print_all(doc, &text->verdict);
		print_all(doc, &text->losses);
	} else {
		print_all(doc, &text->whole);
	}
	print_all(doc, &text->notes);
}

static void text_quality(struct scry_doc *doc, const struct scry_data_quality *quality)
{
	/* of two recordings it is a command, and no view */
	const char *view = strstr(doc->view, "_diff") ? "diff" : doc->view;
	struct text *text = doc->renderer;
	const size_t before = text->losses.len;
	FILE *out = talk_of(doc);

	if (doc->is_stream) {
		scry_buf_clear(&text->line);
		scry_data_quality_line(quality, view, &text->line);
		if (out)
			print_wrapped(doc, out, scry_buf_str(&text->line));
		return;
	}
	text->shown = quality->shown;
	if (text->whole.len || !quality->noun || quality->sample_every > 1 || quality->sample_bytes)
		text->shown = 0; /* its error follows, or it is of another */
	scry_data_quality_line(quality, view, &text->whole);
	scry_buf_zeros(&text->whole, 1);
	scry_data_quality_watched(quality, view, &text->watched);
	scry_buf_zeros(&text->watched, 1);
	scry_data_quality_losses(quality, &text->losses);
	if (text->losses.len > before)
		scry_buf_zeros(&text->losses, 1);
}

static void text_note(struct scry_doc *doc, const char *bytes, size_t length)
{
	struct text *text = doc->renderer;
	struct scry_buf *line = doc->is_stream || text->has_head ? &text->line : &text->notes;
	FILE *out = talk_of(doc);

	if (doc->is_cost && !doc->is_stream) {
		scry_text_escape(&text->costs, bytes, length);
		scry_buf_zeros(&text->costs, 1);
		return;
	}
	if (line == &text->line)
		scry_buf_clear(line);
	scry_buf_append(line, "note: ", 6);
	scry_text_escape(line, bytes, length);
	if (line == &text->notes)
		scry_buf_zeros(line, 1);
	else if (out)
		print_wrapped(doc, out, scry_buf_str(line));
}

static void text_verdict(struct scry_doc *doc, const char *bytes, size_t length)
{
	struct text *text = doc->renderer;

	assert(!text->has_head && !text->has_verdict && !doc->is_stream);
	text->has_verdict = true;
	scry_text_escape(&text->verdict, bytes, length);
	scry_buf_zeros(&text->verdict, 1);
}

static bool is_right(enum scry_cell_kind kind)
{
	return kind != SCRY_CELL_TEXT && kind != SCRY_CELL_SYMBOL;
}

static bool is_elastic(const struct scry_column *column)
{
	return column->how & (SCRY_COLUMN_ELASTIC | SCRY_COLUMN_CUT_AT_END);
}

/* Prints the last `limit` characters of `text`, an ellipsis first. */
static void print_tail(struct scry_doc *doc, const char *text, size_t limit)
{
	size_t over = scry_text_width(text) - limit + 3;

	while (over && *text) {
		text++;
		over -= ((unsigned char)*text & 0xc0) != 0x80;
	}
	fprintf(doc->out, "...%s", text);
}

/* Prints the first `limit` characters, an ellipsis last. */
static void print_head(struct scry_doc *doc, const char *text, size_t limit)
{
	const char *end = text;
	size_t left = limit - 3;

	while (left && *end) {
		end++;
		left -= ((unsigned char)*end & 0xc0) != 0x80;
	}
	fprintf(doc->out, "%.*s...", (int)(end - text), text);
}

/* One line of cells that lie one behind the other at `cells`; returns what follows them. */
static const char *print_line(struct scry_doc *doc, const char *cells)
{
	const struct text *text = doc->renderer;
	size_t i, gap = 0; /* blanks owed before the next cell: none hang at a line's end */

	for (i = 0; i < text->column_count; i++) {
		bool right = is_right(text->columns[i].kind);
		size_t limit = text->limits[i], width, pad;

		if (!text->columns[i].title)
			continue;
		width = scry_text_width(cells);
		pad = text->widths[i] > width ? text->widths[i] - width : 0;
		if (!*cells) { /* blank: a line must not end in blanks */
			gap += 2 + text->widths[i];
		} else if (limit && width > limit) {
			fprintf(doc->out, "%*s", (int)gap, "");
			(text->columns[i].how & SCRY_COLUMN_CUT_AT_END ? print_head : print_tail)(
				doc, cells, limit);
			gap = 2;
		} else {
			fprintf(doc->out, "%*s%s", (int)(gap + (right ? pad : 0)), "", cells);
			gap = 2 + (right ? 0 : pad);
		}
		cells += strlen(cells) + 1;
	}
	fputc('\n', doc->out);
	return cells;
}

static void measure(const struct scry_doc *doc, const char *cells)
{
	struct text *text = doc->renderer;
	size_t i;

	for (i = 0; i < text->column_count; i++) {
		size_t width;

		if (!text->columns[i].title)
			continue;
		width = scry_text_width(cells);
		if (width > WIDTH_MAX)
			width = WIDTH_MAX;
		if (width > text->widths[i])
			text->widths[i] = width;
		cells += strlen(cells) + 1;
	}
}

/* Cuts elastic columns, the widest first, until a line fits the terminal. */
static void fit(struct scry_doc *doc)
{
	struct text *text = doc->renderer;
	size_t i, total = 0, widest;

	memset(text->limits, 0, sizeof(text->limits));
	for (i = 0; i < text->column_count; i++)
		total += text->columns[i].title ? text->widths[i] + (total ? 2 : 0) : 0;
	while (doc->width && total > doc->width) {
		for (i = 0, widest = text->column_count; i < text->column_count; i++)
			if (text->columns[i].title && is_elastic(&text->columns[i]) &&
			    text->widths[i] > ELASTIC_MIN &&
			    (widest == text->column_count ||
			     text->widths[i] > text->widths[widest]))
				widest = i;
		if (widest == text->column_count)
			return;
		text->widths[widest]--;
		text->limits[widest] = text->widths[widest];
		total--;
	}
	/* Rows that come later may be wider than those that were measured. */
	for (i = 0; doc->width && i < text->column_count; i++)
		if (is_elastic(&text->columns[i]) && !text->limits[i])
			text->limits[i] = text->widths[i] + (doc->width - total);
}

static bool has_titles(const struct text *text)
{
	for (size_t i = 0; i < text->column_count; i++)
		if (text->columns[i].title && *text->columns[i].title)
			return true;
	return false;
}

static const char *skip_line(const struct text *text, const char *cells)
{
	for (size_t i = 0; i < text->column_count; i++)
		if (text->columns[i].title)
			cells += strlen(cells) + 1;
	return cells;
}

/* Prints what is held; from then on widths are settled. */
static void let_flow(struct scry_doc *doc)
{
	struct text *text = doc->renderer;
	const char *at = text->held.data;
	size_t i;

	if (text->is_flowing || !text->has_table)
		return;
	text->is_flowing = true;
	fit(doc);
	if (text->held.failed || text->held_rows < 2) /* the titles alone say nothing */
		return;
	text->has_rows = true;
	text->has_gap = false;
	for (i = 0; i < text->held_rows; i++)
		at = i || has_titles(text) ? print_line(doc, at) : skip_line(text, at);
	scry_buf_done(&text->held);
}

static bool is_nothing(const struct scry_pair *pair)
{
	const uint64_t least = pair->kind == SCRY_CELL_TIME ? 1000 : 1; /* what is shown as 0 */

	return pair->cell.is_blank || pair->cell.is_unknown ||
	       (pair->kind != SCRY_CELL_TEXT && pair->cell.number < least);
}

/* "rows have changed" of one: "row has changed". */
static void put_unit(struct scry_buf *buf, const struct scry_pair *pair)
{
	static const char *const verbs[][2] = {
		{" have ", " has "}, {" are ", " is "}, {" were ", " was "}};
	const size_t word = strcspn(pair->unit, " *");
	const char *rest = pair->unit + word, *verb = "";

	if (!*pair->unit)
		return;
	if (pair->kind != SCRY_CELL_COUNT || pair->cell.is_unknown || pair->cell.number != 1 ||
	    word < 4 || pair->unit[word - 1] != 's' || pair->unit[word - 2] == 's') {
		scry_buf_printf(buf, " %s", pair->unit);
		return;
	}
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strncmp(rest, verbs[i][0], strlen(verbs[i][0])) != 0)
			continue;
		rest += strlen(verbs[i][0]);
		verb = verbs[i][1];
		break;
	}
	scry_buf_printf(buf, " %.*s%s%s", (int)(word - 1), pair->unit, verb, rest);
}

/* "1,104,279 objects allocated; 48,619 not freed yet": those that are not 0, and not first what was
 * `shown` to be watched. */
static void put_sentence(struct scry_buf *buf, const struct scry_pair *pairs, size_t count,
			 uint64_t shown)
{
	bool is_first = true;

	for (size_t i = 0; i < count; i++) {
		if (is_nothing(&pairs[i]))
			continue;
		if (!is_first || pairs[i].kind != SCRY_CELL_COUNT ||
		    pairs[i].cell.number != shown) {
			scry_buf_append(buf, "; ", buf->len ? 2 : 0);
			put_cell(buf, pairs[i].kind, &pairs[i].cell);
			put_unit(buf, &pairs[i]);
		}
		is_first = false;
	}
}

/* Values right-aligned in one column, what they are behind them. */
static void put_lines(struct text *text, const struct scry_pair *pairs, size_t count)
{
	size_t i, width = 0, pass;

	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < count; i++) {
			size_t own;

			if (pairs[i].cell.is_blank)
				continue;
			scry_buf_clear(&text->line);
			put_cell(&text->line, pairs[i].kind, &pairs[i].cell);
			own = scry_text_width(scry_buf_str(&text->line));
			if (own > width)
				width = own < TOTAL_WIDTH_MAX ? own : TOTAL_WIDTH_MAX;
			if (!pass)
				continue;
			scry_buf_printf(&text->totals, "%*s%s ",
					(int)(own < width ? width - own : 0), "",
					scry_buf_str(&text->line));
			put_unit(&text->totals, &pairs[i]);
			scry_buf_append(&text->totals, "\n", 1);
		}
	}
}

static void text_totals(struct scry_doc *doc, const struct scry_pair *pairs, size_t count)
{
	struct text *text = doc->renderer;

	put_head(doc);
	if (text->has_verdict && scry_log_level() <= 0) {
		put_sentence(&text->totals, pairs, count, text->shown);
		return;
	}
	put_lines(text, pairs, count);
	if (text->has_verdict)
		return;
	fprintf(doc->out, "\n%s", scry_buf_str(&text->totals));
	scry_buf_clear(&text->totals);
}

/* What was watched, and the sums, below all tables. */
static void print_bookkeeping(struct scry_doc *doc)
{
	struct text *text = doc->renderer;
	struct scry_buf *watched = scry_log_level() > 0 ? &text->whole : &text->watched;

	if (!text->has_verdict)
		watched->len = text->totals.len = 0;
	if (!watched->len && !text->totals.len && !text->costs.len)
		return;
	if (!text->has_gap)
		fputc('\n', doc->out);
	if (scry_log_level() > 0) {
		print_all(doc, watched);
		fputs(scry_buf_str(&text->totals), doc->out);
		print_all(doc, &text->costs);
		return;
	}
	for (size_t at = 0; at < text->costs.len; at += strlen(text->costs.data + at) + 1)
		scry_buf_printf(&text->totals, "%s%s", text->totals.len ? "; " : "",
				text->costs.data + at);
	/* one line, but of two recordings each has its own */
	if (watched->len && text->totals.len && strlen(watched->data) + 1 == watched->len) {
		watched->len--;
		scry_buf_printf(watched, "; %s", scry_buf_str(&text->totals));
		scry_buf_zeros(watched, 1);
		scry_buf_clear(&text->totals);
	}
	print_all(doc, watched);
	if (text->totals.len)
		print_wrapped(doc, doc->out, scry_buf_str(&text->totals));
}

static void hold(struct scry_doc *doc)
{
	struct text *text = doc->renderer;

	if (scry_buf_append(&text->held, text->line.data, text->line.len))
		return;
	measure(doc, text->line.data);
	text->held_rows++;
	if (text->held_rows >= HELD_ROWS || text->held.len >= HELD_BYTES)
		let_flow(doc);
}

static void text_table(struct scry_doc *doc)
{
	struct text *text = doc->renderer;
	size_t i;

	put_head(doc);
	if (text->has_table)
		let_flow(doc);
	memcpy(text->columns, doc->columns, doc->column_count * sizeof(*doc->columns));
	text->column_count = doc->column_count;
	if (!text->has_gap || doc->title)
		fputc('\n', doc->out);
	if (doc->title)
		print_wrapped(doc, doc->out, doc->title);
	text->has_gap = !doc->title;
	memset(text->widths, 0, sizeof(text->widths));
	scry_buf_clear(&text->held);
	text->held_rows = 0;
	text->is_flowing = false;
	text->has_table = true;
	scry_buf_clear(&text->line);
	for (i = 0; i < doc->column_count; i++)
		if (doc->columns[i].title)
			scry_buf_append(&text->line, doc->columns[i].title,
					strlen(doc->columns[i].title) + 1);
	hold(doc);
}

/* A row that is a paragraph of its own. */
static void print_lines(struct scry_doc *doc, const struct scry_cell *cell)
{
	struct text *text = doc->renderer;

	if (!text->has_gap)
		fputc('\n', doc->out);
	fwrite(cell->bytes, 1, cell->length, doc->out);
	text->has_gap = false;
}

static void text_row(struct scry_doc *doc, const struct scry_cell *cells)
{
	struct text *text = doc->renderer;
	size_t i;

	if (doc->columns[0].kind == SCRY_CELL_LINES) {
		print_lines(doc, &cells[0]);
		return;
	}

	scry_buf_clear(&text->line);
	for (i = 0; i < doc->column_count; i++) {
		if (!doc->columns[i].title)
			continue;
		put_cell(&text->line, doc->columns[i].kind, &cells[i]);
		scry_buf_zeros(&text->line, 1);
	}
	if (text->line.failed)
		return;
	if (text->is_flowing)
		print_line(doc, text->line.data);
	else
		hold(doc);
}

static void text_remark(struct scry_doc *doc, const char *remark)
{
	struct text *text = doc->renderer;
	FILE *out = talk_of(doc);

	put_head(doc);
	let_flow(doc);
	if (text->has_rows)
		fputc('\n', doc->out);
	text->has_rows = text->has_gap = false;
	scry_buf_clear(&text->line);
	scry_text_escape(&text->line, remark, strlen(remark));
	if (out)
		print_wrapped(doc, out, scry_buf_str(&text->line));
}

static void text_record(struct scry_doc *doc, const struct scry_pair *pairs, size_t count)
{
	struct text *text = doc->renderer;
	struct scry_buf *line = &text->line;
	size_t i;

	scry_buf_clear(line);
	for (i = 0; i < count; i++) {
		const struct scry_pair *pair = &pairs[i];
		size_t begin = line->len, width;

		if (i)
			scry_buf_append(line, "  ", pair->bare_width ? 2 : 1);
		if (!pair->bare_width)
			scry_buf_printf(line, "%s=", pair->key);
		if (!pair->bare_width && pair->kind == SCRY_CELL_TEXT && !pair->cell.is_unknown)
			scry_text_quote(line, pair->cell.bytes, pair->cell.length);
		else
			put_cell(line, pair->kind, &pair->cell);
		width = line->len - begin - (pair->bare_width && i ? 2 : 0);
		if (i + 1 < count && width < pair->bare_width)
			scry_buf_printf(line, "%*s", (int)(pair->bare_width - width), "");
	}
	fprintf(doc->out, "%s\n", scry_buf_str(line));
}

static void text_text(struct scry_doc *doc, const char *bytes, size_t length)
{
	fwrite_unlocked(bytes, 1, length, doc->out);
	scry_doc_pass_on(doc);
}

static void text_abandon(struct scry_doc *doc)
{
	struct text *text = doc->renderer;

	scry_buf_done(&text->held);
	scry_buf_done(&text->line);
	scry_buf_done(&text->verdict);
	scry_buf_done(&text->losses);
	scry_buf_done(&text->notes);
	scry_buf_done(&text->watched);
	scry_buf_done(&text->whole);
	scry_buf_done(&text->totals);
	scry_buf_done(&text->costs);
	free(text);
	doc->renderer = NULL;
}

static int text_end(struct scry_doc *doc)
{
	struct text *text = doc->renderer;
	bool failed;

	put_head(doc);
	let_flow(doc);
	print_bookkeeping(doc);
	failed = text->held.failed || text->line.failed || text->verdict.failed ||
		 text->losses.failed || text->notes.failed || text->watched.failed ||
		 text->whole.failed || text->totals.failed || text->costs.failed;
	text_abandon(doc);
	if (failed)
		return scry_no_memory("the report");
	return scry_flush(doc->out, "the report");
}

int scry_out_text_open(struct scry_doc *doc)
{
	static const struct scry_doc_ops ops = {
		.quality = text_quality,
		.note = text_note,
		.verdict = text_verdict,
		.totals = text_totals,
		.table = text_table,
		.row = text_row,
		.remark = text_remark,
		.record = text_record,
		.text = text_text,
		.end = text_end,
		.abandon = text_abandon,
	};

	doc->ops = &ops;
	doc->renderer = calloc(1, sizeof(struct text));
	return doc->renderer ? 0 : scry_no_memory("the report");
}
