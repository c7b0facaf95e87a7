/*
 * Tables of rows. See table.h.
 */
#include "view/table.h"

#include "base/demangle.h"
#include "base/text.h"
#include "view/sort.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
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

static int fits_column(const struct trial *trial, const struct scry_row_term *term, size_t i)
{
	const struct scry_table *t = trial->table;
	struct scry_buf *text = &trial->scratch->text;
	struct scry_cell cell;

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

static int fits(void *arg, const struct scry_row_term *term)
{
	const struct trial *trial = arg;
	const struct scry_table *t = trial->table;
	size_t i = column_of(t, term);
	int is;

	if (i == t->column_count)
		return -1;
	is = fits_column(trial, term, i);
	while (!is && ++i < t->column_count && t->columns[i].how & SCRY_COLUMN_FILTER)
		is = fits_column(trial, term, i);
	return is;
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

static void put_number(struct scry_buf *names, uint64_t number)
{
	number = htobe64(number);
	scry_buf_append(names, (const char *)&number, sizeof(number));
}

/* What names a row, so that it can be compared with others byte by byte; unknown ones are last. */
static void put_name(enum scry_cell_kind kind, const struct scry_cell *cell, struct scry_buf *names)
{
	if (cell->is_unknown) {
		scry_buf_append(names, "\xff", 1);
	} else if (kind == SCRY_CELL_TEXT || kind == SCRY_CELL_SYMBOL) {
		scry_buf_append(names, cell->bytes, cell->length);
	} else if (kind == SCRY_CELL_NUMBER || kind == SCRY_CELL_HEX) {
		put_number(names, cell->number);
	} else if (kind == SCRY_CELL_FRAMES) {
		for (uint64_t i = cell->number; i; i--) {
			const struct scry_doc_frame *f = &cell->frames[i - 1];

			scry_buf_append(names, f->file, f->file ? f->file_length : 0);
			put_number(names, f->line + f->offset);
			scry_buf_append(names, f->method, f->method ? f->method_length : 0);
			scry_buf_zeros(names, 1);
		}
	}
	scry_buf_zeros(names, 1);
}

static bool is_name(enum scry_cell_kind kind)
{
	return kind == SCRY_CELL_TEXT || kind == SCRY_CELL_SYMBOL || kind == SCRY_CELL_NUMBER ||
	       kind == SCRY_CELL_HEX || kind == SCRY_CELL_FRAMES;
}

static void put_names(const struct scry_table *t, const void *row, struct scratch *scratch,
		      struct scry_buf *names)
{
	for (size_t i = 0; i < t->column_count; i++) {
		struct scry_cell cell;

		if (!is_name(t->columns[i].kind))
			continue;
		cell = cell_of(t, i, row, scratch);
		put_name(t->columns[i].kind, &cell, names);
	}
}

struct tie {
	const void *row;
	size_t at, length; /* of its names */
};

static int compare_ties(const void *left, const void *right, void *names)
{
	const struct tie *a = left, *b = right;
	const size_t shorter = a->length < b->length ? a->length : b->length;
	const int order = memcmp((const char *)names + a->at, (const char *)names + b->at, shorter);

	return order ? order : (a->length > b->length) - (a->length < b->length);
}

/* Without memory they stay as they are. */
static void sort_by_names(const struct scry_table *t, const void **rows, size_t count,
			  struct scratch *scratch)
{
	struct tie *ties = calloc(count, sizeof(*ties));
	struct scry_buf names = {0};

	for (size_t i = 0; ties && i < count; i++) {
		ties[i] = (struct tie){.row = rows[i], .at = names.len};
		if (!t->has || t->has(rows[i], t->view))
			put_names(t, rows[i], scratch, &names);
		ties[i].length = names.len - ties[i].at;
	}
	if (ties && names.len && !names.failed) {
		qsort_r(ties, count, sizeof(*ties), compare_ties, names.data);
		for (size_t i = 0; i < count; i++)
			rows[i] = ties[i].row;
	}
	scry_buf_done(&names);
	free(ties);
}

static bool is_tie(const struct scry_table *t, const void *a, const void *b)
{
	return (t->size ? t->order(a, b) : t->order(&a, &b)) == 0;
}

static void break_ties(const struct scry_table *t, const void **rows, struct scratch *scratch)
{
	size_t end;

	for (size_t begin = 0; t->order && begin < t->count; begin = end) {
		for (end = begin + 1; end < t->count && is_tie(t, rows[begin], rows[end]); end++)
			;
		if (end > begin + 1)
			sort_by_names(t, rows + begin, end - begin, scratch);
	}
}

static bool is_named_before(const struct scry_table *t, const void *a, const void *b,
			    struct scratch *scratch)
{
	const void *rows[] = {b, a};

	sort_by_names(t, rows, 2, scratch);
	return rows[0] == a;
}

const void *scry_table_first(const struct scry_table *t)
{
	struct scratch scratch;
	const void *first = NULL;

	scratch_init(&scratch, t);
	for (size_t i = 0; i < t->count; i++) {
		const void *row = row_at(t, i);

		if (first && !(t->order && is_tie(t, first, row)))
			break;
		if ((t->has && !t->has(row, t->view)) || !is_wanted(t, row, &scratch))
			continue;
		if (!first || is_named_before(t, row, first, &scratch))
			first = row;
	}
	scratch_done(&scratch);
	return first;
}

/* By the column of --sort. *ret_is_unknown: they stay as they are, because it is known of none of
 * several. 0 or -ENOMEM. */
static int sort_by_column(const struct scry_table *t, size_t column, const void **rows,
			  struct scratch *scratch, bool *ret_is_unknown)
{
	struct place *places = calloc(t->count, sizeof(*places));
	size_t unknown = 0, others = 0; /* rows; those that do not belong to this table */

	if (!places)
		return -ENOMEM;
	for (size_t i = 0; i < t->count; i++) {
		struct scry_cell cell = scry_cell_unknown();

		places[i] = (struct place){.row = rows[i], .at = i};
		if (!t->has || t->has(rows[i], t->view))
			cell = cell_of(t, column, rows[i], scratch);
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
	return 0;
}

/* Rows as they are shown, to be freed. NULL: as they are. */
static const void **sorted_rows(const struct scry_table *t, struct scratch *scratch,
				struct scry_doc *doc, bool *ret_is_unknown)
{
	const size_t column = sorting_column(t);
	const void **rows = NULL;

	if ((column == t->column_count && !t->order) || !t->count)
		return NULL;
	rows = calloc(t->count, sizeof(*rows));
	for (size_t i = 0; rows && i < t->count; i++)
		rows[i] = row_at(t, i);
	if (rows)
		break_ties(t, rows, scratch);
	if (column < t->column_count &&
	    (!rows || sort_by_column(t, column, rows, scratch, ret_is_unknown)))
		scry_doc_remark(doc, "rows are not sorted: there is no memory for it");
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
