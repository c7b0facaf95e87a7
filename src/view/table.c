/*
 * Tables of rows. See table.h.
 */
#include "view/table.h"

#include "base/demangle.h"
#include "base/text.h"
#include "view/sort.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What cells are put together in: each column has its own. */
struct scratch {
	struct scry_buf texts[SCRY_DOC_COLUMNS_MAX];
	struct scry_buf line, text; /* for --grep; for --filter */
	struct scry_row_filter filter;
};

/* The options were checked before. */
static void scratch_init(struct scratch *scratch, const struct scry_table *t)
{
	*scratch = (struct scratch){.filter.count = 0};
	if (t->filter && scry_row_filter_init(&scratch->filter, t->filter))
		scratch->filter.count = 0;
}

static void scratch_done(struct scratch *scratch)
{
	for (size_t i = 0; i < SCRY_DOC_COLUMNS_MAX; i++)
		scry_buf_done(&scratch->texts[i]);
	scry_buf_done(&scratch->line);
	scry_buf_done(&scratch->text);
}

static const void *row_at(const struct scry_table *t, size_t i)
{
	if (!t->size)
		return ((const void *const *)t->rows)[i];
	return (const char *)t->rows + i * t->size;
}

static struct scry_cell number_at(const struct scry_column *column, const void *row)
{
	const void *at = (const char *)row + (column->how >> 16);

	switch (column->how >> 8 & 0xff) {
	case sizeof(uint8_t):
		return scry_cell_number(*(const uint8_t *)at);
	case sizeof(uint16_t):
		return scry_cell_number(*(const uint16_t *)at);
	case sizeof(uint32_t):
		return scry_cell_number(*(const uint32_t *)at);
	default:
		assert((column->how >> 8 & 0xff) == sizeof(uint64_t));
		return scry_cell_number(*(const uint64_t *)at);
	}
}

static struct scry_cell cell_of(const struct scry_table *t, size_t i, const void *row,
				struct scratch *scratch)
{
	if (!t->columns[i].get)
		return number_at(&t->columns[i], row);
	scry_buf_clear(&scratch->texts[i]);
	return t->columns[i].get(row, t->view, &scratch->texts[i]);
}

static bool is_grepped(const struct scry_table *t, const void *row, struct scratch *scratch)
{
	struct scry_buf *line = &scratch->line;

	if (!t->grep || !t->grep->text)
		return true;
	scry_buf_clear(line);
	for (size_t i = 0; i < t->column_count; i++) {
		struct scry_cell cell;

		if (!(t->columns[i].how & SCRY_COLUMN_GREP))
			continue;
		cell = cell_of(t, i, row, scratch);
		if (cell.is_unknown)
			continue;
		if (t->columns[i].kind == SCRY_CELL_SYMBOL &&
		    scry_grep_matches_symbol(t->grep, cell.bytes))
			return true;
		scry_buf_append(line, "\n", line->len ? 1 : 0);
		scry_buf_append(line, cell.bytes, cell.length);
	}
	return scry_grep_matches_row(t->grep, line);
}

static bool has_text(const struct scry_column *c)
{
	return c->key && (c->kind == SCRY_CELL_TEXT || c->kind == SCRY_CELL_SYMBOL ||
			  c->kind == SCRY_CELL_NUMBER);
}

/* The column that the term names; `column_count`: there is none. */
static size_t column_of(const struct scry_table *t, const struct scry_row_term *term)
{
	size_t i = 0;

	while (i < t->column_count &&
	       !(has_text(&t->columns[i]) && scry_row_term_is(term, t->columns[i].key)))
		i++;
	return i;
}

struct trial { /* of a row */
	const struct scry_table *table;
	const void *row;
	struct scratch *scratch;
};

static bool fits_symbol(const char *name, const void *term)
{
	return scry_row_term_fits(term, name);
}

static int fits(void *arg, const struct scry_row_term *term)
{
	const struct trial *trial = arg;
	const struct scry_table *t = trial->table;
	struct scry_buf *text = &trial->scratch->text;
	const size_t i = column_of(t, term);
	struct scry_cell cell;

	if (i == t->column_count)
		return -1;
	cell = cell_of(t, i, trial->row, trial->scratch);
	scry_buf_clear(text);
	if (cell.is_unknown)
		return scry_row_term_fits(term, "");
	if (t->columns[i].kind == SCRY_CELL_NUMBER)
		scry_buf_printf(text, "%" PRIu64, cell.number);
	else
		scry_buf_append(text, cell.bytes, cell.length);
	if (t->columns[i].kind == SCRY_CELL_SYMBOL) /* mangled or not */
		return scry_demangle_any(scry_buf_str(text), fits_symbol, term);
	return scry_row_term_fits(term, scry_buf_str(text));
}

static bool is_filtered(const struct scry_table *t, const void *row, struct scratch *scratch)
{
	return scry_row_filter_matches(&scratch->filter, fits, &(struct trial){t, row, scratch});
}

static bool is_wanted(const struct scry_table *t, const void *row, struct scratch *scratch)
{
	return is_grepped(t, row, scratch) && is_filtered(t, row, scratch);
}

bool scry_table_wants(const struct scry_table *t, const void *row)
{
	struct scratch scratch;
	bool is;

	scratch_init(&scratch, t);
	is = is_wanted(t, row, &scratch);
	scratch_done(&scratch);
	return is;
}

int scry_table_check_filter(const struct scry_table *t, const char *view)
{
	struct scry_row_filter filter = {0};
	struct scry_buf keys = {0};
	int err = t->filter ? scry_row_filter_init(&filter, t->filter) : 0;

	for (size_t i = 0; i < t->column_count; i++)
		if (has_text(&t->columns[i]))
			scry_buf_printf(&keys, "%s%s", keys.len ? "|" : "", t->columns[i].key);
	for (size_t i = 0; !err && i < filter.count; i++) {
		const struct scry_row_term *term = &filter.terms[i];
		char key[64];

		if (column_of(t, term) < t->column_count)
			continue;
		snprintf(key, sizeof(key), "%.*s", (int)term->key_length, term->key);
		err = scry_view_key_refuse(view, &(struct scry_view_key){key, scry_buf_str(&keys),
									 "filter", "filter by"});
	}
	scry_buf_done(&keys);
	return err;
}

const void *scry_table_first(const struct scry_table *t)
{
	struct scratch scratch;
	const void *first = NULL;

	scratch_init(&scratch, t);
	for (size_t i = 0; i < t->count && !first; i++) {
		const void *row = row_at(t, i);

		if ((!t->has || t->has(row, t->view)) && is_wanted(t, row, &scratch))
			first = row;
	}
	scratch_done(&scratch);
	return first;
}

static void push_row(const struct scry_table *t, const void *row, struct scratch *scratch,
		     struct scry_doc *doc)
{
	struct scry_cell cells[SCRY_DOC_COLUMNS_MAX];

	for (size_t i = 0; i < t->column_count; i++) {
		const struct scry_column *c = &t->columns[i];

		if (doc->is_data ? c->key : c->title)
			cells[i] = cell_of(t, i, row, scratch);
		else
			cells[i] = scry_cell_unknown();
	}
	doc->ops->row(doc, cells);
}

void scry_table_push_row(const struct scry_table *t, const void *row, struct scry_doc *doc)
{
	struct scratch scratch = {0};

	push_row(t, row, &scratch, doc);
	scratch_done(&scratch);
}

/* --- order ------------------------------------------------------------------------------------ */

struct place {
	const void *row;
	uint64_t number; /* of the column; in order also where it has a sign */
	bool is_unknown; /* comes last */
	size_t at;	 /* without --sort: what is equal stays so */
};

static int compare_places(const void *left, const void *right)
{
	const struct place *a = left, *b = right;

	if (a->is_unknown != b->is_unknown)
		return a->is_unknown ? 1 : -1;
	if (a->number != b->number)
		return a->number < b->number ? 1 : -1;
	return a->at < b->at ? -1 : 1;
}

static bool is_numeric(const struct scry_column *c)
{
	return c->kind == SCRY_CELL_COUNT || c->kind == SCRY_CELL_NUMBER ||
	       c->kind == SCRY_CELL_TIME || c->kind == SCRY_CELL_DELTA;
}

/* The column that --sort asks for; `column_count`: this table has none. */
static size_t sorting_column(const struct scry_table *t)
{
	size_t i = 0;

	while (i < t->column_count &&
	       !(t->sort && t->columns[i].key && is_numeric(&t->columns[i]) &&
		 !strcmp(t->columns[i].key, t->sort)))
		i++;
	return i;
}

/* Rows in the order of --sort, to be freed. NULL: as they are. *ret_is_unknown: as they are,
 * because the column is known of none of several. */
static const void **sorted_rows(const struct scry_table *t, struct scratch *scratch,
				struct scry_doc *doc, bool *ret_is_unknown)
{
	const size_t column = sorting_column(t);
	const void **rows = NULL;
	struct place *places;
	size_t unknown = 0, others = 0; /* rows; those that are none of this table */

	if (column == t->column_count || !t->count)
		return NULL;
	places = calloc(t->count, sizeof(*places));
	rows = calloc(t->count, sizeof(*rows));
	if (!places || !rows) {
		scry_doc_remark(doc, "rows are not sorted: there is no memory for it");
		free(places);
		free(rows);
		return NULL;
	}
	for (size_t i = 0; i < t->count; i++) {
		struct scry_cell cell = scry_cell_unknown();

		places[i] = (struct place){.row = row_at(t, i), .at = i};
		if (!t->has || t->has(places[i].row, t->view))
			cell = cell_of(t, column, places[i].row, scratch);
		else
			others++;
		places[i].is_unknown = cell.is_unknown;
		unknown += cell.is_unknown;
		places[i].number = cell.is_unknown ? 0 : cell.number;
		if (t->columns[column].kind == SCRY_CELL_DELTA)
			places[i].number ^= 1ull << 63;
	}
	qsort(places, t->count, sizeof(*places), compare_places);
	for (size_t i = 0; i < t->count; i++)
		rows[i] = places[i].row;
	free(places);
	*ret_is_unknown = unknown == t->count && unknown > others + 1;
	return rows;
}

/* Of the keys of --filter that no column has. */
static void remark_no_column(const struct scry_table *t, const struct scry_row_filter *filter,
			     struct scry_doc *doc)
{
	for (size_t i = 0; i < filter->count; i++) {
		const struct scry_row_term *term = &filter->terms[i];
		size_t j = 0;

		while (j < i && !scry_row_term_is_same(&filter->terms[j], term))
			j++;
		if (j == i && column_of(t, term) == t->column_count)
			scry_doc_remark(
				doc,
				"--filter does not concern this table: it has no column '%.*s'",
				(int)term->key_length, term->key);
	}
}

uint64_t scry_table_push(const struct scry_table *t, struct scry_doc *doc)
{
	struct scry_left_out left_out = {.noun = t->noun};
	struct scratch scratch;
	bool is_unknown = false;
	const void **rows;
	uint64_t shown = 0;

	scratch_init(&scratch, t);
	rows = sorted_rows(t, &scratch, doc, &is_unknown);
	scry_doc_table(doc, t->columns, t->column_count);
	for (size_t i = 0; i < t->count; i++) {
		const void *row = rows ? rows[i] : row_at(t, i);

		if (t->has && !t->has(row, t->view))
			continue;
		if (!is_grepped(t, row, &scratch)) {
			left_out.by_grep++;
		} else if (!is_filtered(t, row, &scratch)) {
			left_out.by_filter++;
		} else if (t->top && shown == t->top) {
			left_out.by_top++;
		} else {
			push_row(t, row, &scratch, doc);
			shown++;
		}
	}
	if (t->last && shown > 1)
		push_row(t, t->last, &scratch, doc);
	if (shown)
		remark_no_column(t, &scratch.filter, doc);
	scratch_done(&scratch);
	free(rows);
	if (is_unknown)
		scry_doc_remark(doc, "rows are not sorted: '%s' is not known of any of them",
				t->sort);
	scry_left_out_push(&left_out, doc);
	return shown;
}

static void remark(const struct scry_left_out *l, uint64_t count, const char *by,
		   struct scry_doc *doc)
{
	const char *things = l->things ? l->things : l->noun ? l->noun : "rows";
	struct scry_buf buf = {0};

	if (count) {
		scry_text_things(&buf, count, things);
		scry_doc_remark(doc, "%s%s %s left out by %s", scry_buf_str(&buf),
				l->of ? l->of : "", count == 1 ? "is" : "are", by);
	}
	scry_buf_done(&buf);
}

void scry_left_out_push(const struct scry_left_out *l, struct scry_doc *doc)
{
	const char *noun = l->noun ? l->noun : "rows";
	const bool is_one = l->by_top == 1;
	struct scry_buf buf = {0};

	if (l->by_top) {
		scry_text_count(&buf, l->by_top);
		scry_buf_printf(&buf, " more %.*s", (int)strlen(noun) - is_one, noun);
		if (l->top_weight) {
			scry_buf_printf(&buf, " with ");
			scry_text_things(&buf, l->top_weight, l->things);
		}
		scry_doc_remark(doc, "%s %s not shown; --top 0 shows %s", scry_buf_str(&buf),
				is_one ? "is" : "are", is_one ? "it" : "them");
	}
	scry_buf_done(&buf);
	remark(l, l->by_grep, "--grep", doc);
	remark(l, l->by_filter, "--filter", doc);
	remark(l, l->by_live, "--live: nothing in their rows survived", doc);
}
