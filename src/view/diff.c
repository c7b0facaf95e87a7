/*
 * What grew between two moments. See diff.h.
 *
 * Both sides become rows over the same tables of texts and frames; they are laid behind each other,
 * sorted by key, and neighbours with equal keys are one row with two sets of counts.
 */
#include "view/diff.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"
#include "view/object_list.h"
#include "view/object_tree.h"
#include "view/table.h"
#include "view/verdict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct diff_row {
	struct scry_object_row key; /* its counts are those of `to` */
	struct scry_object_counts from;
	int64_t growth; /* of the column that sorts */
	int64_t allocated_growth;
};

struct diff {
	const struct scry_diff_side *from_side, *to_side;
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	struct scry_object_tables tables;
	struct scry_object_list from, to;
	struct diff_row *rows;
	size_t count, grown, shrunk, same, died;
	int sort;
	struct scry_frame_row frames;
};

static int compare_keys(const void *left, const void *right)
{
	const struct diff_row *a = left, *b = right;

	return scry_object_keys_compare(&a->key, &b->key);
}

static int compare_growth(const void *left, const void *right)
{
	const struct diff_row *a = left, *b = right;

	if (a->growth != b->growth)
		return a->growth < b->growth ? 1 : -1;
	if (a->allocated_growth != b->allocated_growth)
		return a->allocated_growth < b->allocated_growth ? 1 : -1;
	return scry_object_texts_compare(&a->key, &b->key);
}

static int64_t grown(uint64_t from, uint64_t to)
{
	return (int64_t)(to - from);
}

static bool is_same(const struct diff_row *row)
{
	const struct scry_object_counts *from = &row->from, *to = &row->key.counts;

	return from->allocated == to->allocated && from->bytes == to->bytes &&
	       from->live == to->live && from->live_bytes == to->live_bytes;
}

/* --live: nothing in it survived, neither then nor before. */
static bool has_died(const struct diff *d, const struct diff_row *row)
{
	return d->opts->live && !row->from.live && !row->key.counts.live;
}

static int match(struct diff *d)
{
	size_t i, all = d->from.count + d->to.count, kept = 0;

	d->rows = calloc(all + 1, sizeof(*d->rows));
	if (!d->rows)
		return scry_fail(-ENOMEM, "no memory for %zu rows", all);
	for (i = 0; i < d->to.count; i++)
		d->rows[i].key = d->to.rows[i];
	for (i = 0; i < d->from.count; i++) {
		struct diff_row *row = &d->rows[d->to.count + i];

		row->key = d->from.rows[i];
		row->from = row->key.counts;
		row->key.counts = (struct scry_object_counts){0};
	}
	qsort(d->rows, all, sizeof(*d->rows), compare_keys);
	for (i = 0; i < all; i++) {
		struct diff_row *into = kept ? &d->rows[kept - 1] : NULL;

		if (into && !compare_keys(into, &d->rows[i])) {
			scry_object_counts_add(&into->key.counts, &d->rows[i].key.counts);
			scry_object_counts_add(&into->from, &d->rows[i].from);
		} else {
			d->rows[kept++] = d->rows[i];
		}
	}
	for (i = 0; i < kept; i++) {
		struct diff_row *row = &d->rows[i];

		if (has_died(d, row)) {
			d->died++;
			continue;
		}
		if (is_same(row)) {
			d->same++;
			continue;
		}
		row->growth = grown(scry_object_figure(&row->from, d->sort),
				    scry_object_figure(&row->key.counts, d->sort));
		row->allocated_growth = grown(row->from.allocated, row->key.counts.allocated);
		d->grown += row->growth > 0;
		d->shrunk += row->growth < 0;
		d->rows[d->count++] = *row;
	}
	qsort(d->rows, d->count, sizeof(*d->rows), compare_growth);
	return 0;
}

/* --live: the living are what survived the last full mark, in all that follows. */
static void keep_survivors(struct scry_object_counts *counts)
{
	counts->live = counts->old_live;
	counts->live_bytes = counts->old_live_bytes;
	counts->live_samples = 0; /* of sampled ones no interval is known */
}

static void keep_survivors_of(struct scry_object_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		keep_survivors(&list->rows[i].counts);
	keep_survivors(&list->all);
}

enum {
	COLUMN_FILE,
	COLUMN_LINE,
	COLUMN_CLASS,
	COLUMN_METHOD,
	COLUMN_GEM,
	COLUMN_INTERNAL,
	COLUMN_LIVE_GROWTH,
	COLUMN_LIVE_GROWTH_ERROR,
	COLUMN_LIVE_BYTES_GROWTH,
	COLUMN_ALLOCATED_GROWTH,
	COLUMN_BYTES_GROWTH,
	COLUMN_LIVE_FROM,
	COLUMN_LIVE_TO,
	COLUMN_LIVE_BYTES_FROM,
	COLUMN_LIVE_BYTES_TO,
	COLUMN_AGE,
	COLUMN_SLOTS,
	COLUMN_LIVE_UNSIZED_FROM,
	COLUMN_LIVE_UNSIZED_TO,
	COLUMN_STACK,
	COLUMN_TEXT_METHOD,
	COLUMN_TEXT_PLACE,
	COLUMN_TEXT_CLASS,
	COLUMNS,
};
_Static_assert(COLUMNS <= SCRY_DOC_COLUMNS_MAX, "the table fits");

static const struct scry_column all_columns[COLUMNS] = {
	[COLUMN_FILE] = {NULL, "file", SCRY_CELL_TEXT, NULL, 0},
	[COLUMN_LINE] = {NULL, "line", SCRY_CELL_NUMBER, NULL, 0},
	[COLUMN_CLASS] = {NULL, "class", SCRY_CELL_TEXT, NULL, 0},
	[COLUMN_METHOD] = {NULL, "method", SCRY_CELL_TEXT, NULL, 0},
	[COLUMN_GEM] = {NULL, "gem", SCRY_CELL_TEXT, NULL, SCRY_COLUMN_ELASTIC},
	[COLUMN_INTERNAL] = {NULL, "is_internal", SCRY_CELL_BOOL, NULL, 0},
	[COLUMN_LIVE_GROWTH] = {"live", "live_growth", SCRY_CELL_DELTA, NULL, 0},
	[COLUMN_LIVE_GROWTH_ERROR] = {NULL, "live_growth_error", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_LIVE_BYTES_GROWTH] = {"live bytes", "live_bytes_growth", SCRY_CELL_DELTA, NULL, 0},
	[COLUMN_ALLOCATED_GROWTH] = {"allocated", "allocated_growth", SCRY_CELL_DELTA, NULL, 0},
	[COLUMN_BYTES_GROWTH] = {NULL, "bytes_growth", SCRY_CELL_DELTA, NULL, 0},
	[COLUMN_LIVE_FROM] = {NULL, "live_from", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_LIVE_TO] = {"live then", "live_to", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_LIVE_BYTES_FROM] = {NULL, "live_bytes_from", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_LIVE_BYTES_TO] = {NULL, "live_bytes_to", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_AGE] = {NULL, "max_age_gcs", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_SLOTS] = {NULL, "is_slots_only", SCRY_CELL_BOOL, NULL, 0},
	[COLUMN_LIVE_UNSIZED_FROM] = {NULL, "live_unsized_from", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_LIVE_UNSIZED_TO] = {NULL, "live_unsized_to", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_STACK] = {NULL, NULL, SCRY_CELL_FRAMES, NULL, 0},
	[COLUMN_TEXT_METHOD] = {NULL, NULL, SCRY_CELL_TEXT, NULL, SCRY_COLUMN_ELASTIC},
	[COLUMN_TEXT_PLACE] = {"file:line", NULL, SCRY_CELL_TEXT, NULL, SCRY_COLUMN_ELASTIC},
	[COLUMN_TEXT_CLASS] = {"class", NULL, SCRY_CELL_TEXT, NULL, SCRY_COLUMN_ELASTIC},
};

static bool has_ages(const struct diff *d)
{
	return d->to.quality.gcs > 0 || d->to.all.max_age > 0;
}

static bool has_slots(const struct diff *d)
{
	return d->from.all.live_unsized || d->to.all.live_unsized;
}

static void choose_columns(const struct diff *d, struct scry_column columns[COLUMNS])
{
	int by = d->opts->by;

	memcpy(columns, all_columns, sizeof(all_columns));
	if (by == SCRY_VIEW_BY_CLASS || by == SCRY_VIEW_BY_GEM)
		columns[COLUMN_TEXT_PLACE].title = NULL;
	if (by == SCRY_VIEW_BY_FILE || by == SCRY_VIEW_BY_METHOD)
		columns[COLUMN_TEXT_PLACE].title = "file";
	if (by != SCRY_VIEW_BY_LINE && by != SCRY_VIEW_BY_CLASS)
		columns[COLUMN_TEXT_CLASS].title = NULL;
	if (by == SCRY_VIEW_BY_METHOD)
		columns[COLUMN_TEXT_METHOD].title = "method";
	if (by == SCRY_VIEW_BY_GEM)
		columns[COLUMN_TEXT_METHOD].title = "gem";
	if (has_slots(d)) {
		columns[COLUMN_LIVE_BYTES_GROWTH].title = "live bytes*";
		columns[COLUMN_LIVE_UNSIZED_TO].title = "unsized then";
	}
	if (d->opts->live) {
		columns[COLUMN_LIVE_GROWTH].title = "survived";
		columns[COLUMN_LIVE_GROWTH].key = "old_live_growth";
		columns[COLUMN_LIVE_GROWTH_ERROR].key = "old_live_growth_error";
		columns[COLUMN_LIVE_BYTES_GROWTH].title =
			has_slots(d) ? "survived bytes*" : "survived bytes";
		columns[COLUMN_LIVE_BYTES_GROWTH].key = "old_live_bytes_growth";
		columns[COLUMN_LIVE_FROM].key = "old_live_from";
		columns[COLUMN_LIVE_TO].title = "survived then";
		columns[COLUMN_LIVE_TO].key = "old_live_to";
		columns[COLUMN_LIVE_BYTES_FROM].key = "old_live_bytes_from";
		columns[COLUMN_LIVE_BYTES_TO].key = "old_live_bytes_to";
	}
	if (d->from.all.is_scaled || d->to.all.is_scaled)
		columns[COLUMN_LIVE_GROWTH_ERROR].title = "+-";
	if (has_ages(d))
		columns[COLUMN_AGE].title = "GC age";
	if (d->opts->stacks)
		columns[COLUMN_STACK].key = "frames";
}

static struct scry_cell growth_cell(uint64_t from, uint64_t to)
{
	return scry_cell_number(to - from); /* read as int64_t */
}

static struct scry_cell error_cell(const struct diff_row *row)
{
	const struct scry_object_counts *from = &row->from, *to = &row->key.counts;
	uint64_t half = 0;

	if ((from->is_scaled || to->is_scaled) &&
	    !scry_object_interval(from->live_variance + to->live_variance,
				  from->live_samples + to->live_samples, &half))
		return scry_cell_few_samples();
	return scry_cell_number(half);
}

static void fill_counts(const struct diff *d, const struct diff_row *row,
			struct scry_cell cells[COLUMNS])
{
	const struct scry_object_counts *from = &row->from, *to = &row->key.counts;

	cells[COLUMN_LIVE_GROWTH] = growth_cell(from->live, to->live);
	cells[COLUMN_LIVE_GROWTH_ERROR] = error_cell(row);
	cells[COLUMN_LIVE_BYTES_GROWTH] = growth_cell(from->live_bytes, to->live_bytes);
	cells[COLUMN_ALLOCATED_GROWTH] = growth_cell(from->allocated, to->allocated);
	cells[COLUMN_BYTES_GROWTH] = growth_cell(from->bytes, to->bytes);
	cells[COLUMN_LIVE_FROM] = scry_cell_number(from->live);
	cells[COLUMN_LIVE_TO] = scry_cell_number(to->live);
	cells[COLUMN_LIVE_BYTES_FROM] = scry_cell_number(from->live_bytes);
	cells[COLUMN_LIVE_BYTES_TO] = scry_cell_number(to->live_bytes);
	cells[COLUMN_AGE] = scry_cell_known(to->max_age, has_ages(d) && to->live);
	cells[COLUMN_SLOTS] = scry_cell_number(from->is_slots || to->is_slots);
	cells[COLUMN_LIVE_UNSIZED_FROM] = scry_cell_number(from->live_unsized);
	cells[COLUMN_LIVE_UNSIZED_TO] = scry_cell_number(to->live_unsized);
}

/* For people: the callers below the row, innermost first. */
static void push_callers(const struct diff *d, uint32_t stack, struct scry_buf *buf)
{
	struct scry_cell cells[COLUMNS];
	size_t i;

	for (i = 0; i < COLUMNS; i++)
		cells[i] = (struct scry_cell){.is_blank = true};
	while (stack) {
		scry_buf_clear(buf);
		scry_buf_printf(buf, "  from ");
		scry_object_frame_text(&d->tables, stack, buf);
		cells[COLUMN_TEXT_PLACE] = scry_cell_text(scry_buf_str(buf), buf->len);
		d->doc->ops->row(d->doc, cells);
		stack = scry_frames_get(&d->tables.frames, stack).parent;
	}
}

static void push_row(struct diff *d, const struct diff_row *row, struct scry_buf *place)
{
	const struct scry_object_row *key = &row->key;
	int by = d->opts->by;
	bool by_line = by == SCRY_VIEW_BY_LINE;
	struct scry_cell cells[COLUMNS];

	scry_buf_clear(place);
	scry_object_place(key, by != SCRY_VIEW_BY_CLASS && (by_line || !key->line), place);
	cells[COLUMN_FILE] =
		key->line ? scry_name_text(key->names, key->file) : scry_cell_unknown();
	cells[COLUMN_LINE] = scry_cell_known(key->line, by_line);
	cells[COLUMN_CLASS] = scry_name_text(key->names, key->class);
	cells[COLUMN_METHOD] = scry_name_text(key->names, key->method);
	cells[COLUMN_GEM] = scry_name_text(key->names, key->gem);
	cells[COLUMN_INTERNAL] = scry_cell_number(key->is_internal);
	fill_counts(d, row, cells);
	cells[COLUMN_STACK] = scry_object_frames(&d->tables, key, &d->frames);
	cells[COLUMN_TEXT_METHOD] =
		by == SCRY_VIEW_BY_GEM ? cells[COLUMN_GEM] : cells[COLUMN_METHOD];
	cells[COLUMN_TEXT_PLACE] = scry_cell_text(scry_buf_str(place), place->len);
	if (by == SCRY_VIEW_BY_GEM && cells[COLUMN_GEM].is_unknown)
		cells[COLUMN_TEXT_METHOD] = cells[COLUMN_TEXT_PLACE];
	cells[COLUMN_TEXT_CLASS] = scry_object_class(key);
	d->doc->ops->row(d->doc, cells);
	if (d->opts->stacks && !d->doc->is_data)
		push_callers(d, key->stack, place);
}

static void push_totals(const struct diff *d)
{
	const struct scry_object_counts *from = &d->from.all, *to = &d->to.all;
	const struct scry_moment *m = &d->from_side->moment, *n = &d->to_side->moment;
	const bool live = d->opts->live;
	bool is_data = d->doc->is_data, has_numbers = m->has_numbers && n->has_numbers;
	const struct {
		bool is_shown;
		struct scry_pair pair;
	} rows[] = {
#define TOTAL(shown, key, unit, kind, ...)              \
	{                                               \
		shown,                                  \
		{                                       \
			key, unit, kind, 0, __VA_ARGS__ \
		}                                       \
	}
		TOTAL(true, live ? "old_live_growth" : "live_growth",
		      live ? "objects that survived a full mark" : "live objects", SCRY_CELL_DELTA,
		      growth_cell(from->live, to->live)),
		TOTAL(true, live ? "old_live_bytes_growth" : "live_bytes_growth",
		      live	     ? "bytes of these"
		      : has_slots(d) ? "bytes* of live objects"
				     : "bytes of live objects",
		      SCRY_CELL_DELTA, growth_cell(from->live_bytes, to->live_bytes)),
		TOTAL(true, "allocated_growth", "objects allocated", SCRY_CELL_DELTA,
		      growth_cell(from->allocated, to->allocated)),
		TOTAL(is_data, "bytes_growth", "", SCRY_CELL_DELTA,
		      growth_cell(from->bytes, to->bytes)),
		TOTAL(true, live ? "old_live_from" : "live_from",
		      live ? "had survived at first" : "live at first", SCRY_CELL_COUNT,
		      scry_cell_number(from->live)),
		TOTAL(true, live ? "old_live_to" : "live_to",
		      live ? "had survived then" : "live then", SCRY_CELL_COUNT,
		      scry_cell_number(to->live)),
		TOTAL(has_numbers || is_data, "rss_growth_bytes", "bytes of resident memory",
		      SCRY_CELL_DELTA,
		      {.number = n->rss_bytes - m->rss_bytes, .is_unknown = !has_numbers}),
		TOTAL(has_numbers || is_data, "gcs_growth", "garbage collections", SCRY_CELL_DELTA,
		      {.number = n->gc_count - m->gc_count, .is_unknown = !has_numbers}),
		TOTAL(is_data, "from_ns", "", SCRY_CELL_NUMBER, scry_cell_number(m->since_ns)),
		TOTAL(is_data, "to_ns", "", SCRY_CELL_NUMBER, scry_cell_number(n->since_ns)),
		TOTAL(true, "rows_grown", d->grown == 1 ? "row has grown" : "rows have grown",
		      SCRY_CELL_COUNT, scry_cell_number(d->grown)),
		TOTAL(true, "rows_shrunk", d->shrunk == 1 ? "row has shrunk" : "rows have shrunk",
		      SCRY_CELL_COUNT, scry_cell_number(d->shrunk)),
		TOTAL(true, "rows_same",
		      d->same == 1 ? "row has not changed, not listed"
				   : "rows have not changed, not listed",
		      SCRY_CELL_COUNT, scry_cell_number(d->same)),
#undef TOTAL
	};
	struct scry_pair pairs[sizeof(rows) / sizeof(rows[0])];
	size_t i, count = 0;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].is_shown)
			pairs[count++] = rows[i].pair;
	d->doc->ops->totals(d->doc, pairs, count);
}

static void put_moment(struct scry_buf *buf, const struct scry_moment *moment)
{
	if (moment->is_beginning) {
		scry_buf_printf(buf, "the beginning");
	} else if (!moment->slice) {
		scry_buf_printf(buf, "the end");
	} else {
		scry_text_duration(buf, moment->since_ns);
		scry_buf_printf(buf, " (slice %u)", moment->slice);
	}
}

static void note(const struct diff *d, struct scry_buf *buf)
{
	d->doc->ops->note(d->doc, scry_buf_str(buf), buf->len);
	scry_buf_clear(buf);
}

static void push_notes(const struct diff *d)
{
	uint64_t from = d->from.quality.watched_ns, to = d->to.quality.watched_ns;
	struct scry_buf buf = {0};

	scry_buf_printf(&buf, "growth from ");
	put_moment(&buf, &d->from_side->moment);
	if (d->from_side->name)
		scry_buf_printf(&buf, " of '%s'", d->from_side->name);
	scry_buf_printf(&buf, " to ");
	put_moment(&buf, &d->to_side->moment);
	if (d->to_side->name)
		scry_buf_printf(&buf, " of '%s'", d->to_side->name);
	note(d, &buf);
	if (d->from_side->name && from && to && (from > to + to / 10 || to > from + from / 10)) {
		scry_buf_printf(&buf, "the watches were not of one length: ");
		scry_text_duration(&buf, from);
		scry_buf_printf(&buf, " and ");
		scry_text_duration(&buf, to);
		note(d, &buf);
	}
	if (has_slots(d)) {
		scry_buf_printf(&buf,
				"bytes%s are too few: of the objects that are unsized only the "
				"heap slot is counted, or not all outside it",
				d->doc->is_data ? "" : "*");
		note(d, &buf);
	}
	if (d->opts->live && d->from.all.allocated && !d->from.all.live && d->to.all.live &&
	    (d->from_side->moment.slice || !d->from.quality.full_gcs)) {
		scry_buf_printf(&buf, "at the first moment nothing is known to have survived a "
				      "full mark: what has grown may have lived then already; fix: "
				      "record with --gc-slices, or compare later moments");
		note(d, &buf);
	}
	if (d->opts->live && !d->to.quality.full_gcs) {
		scry_buf_printf(&buf, "no full mark of the garbage collector was seen, so nothing "
				      "is known to have survived one; fix: record with "
				      "--gc-slices, or watch longer");
		note(d, &buf);
	}
	if (d->opts->stacks && !d->from.has_stacks && !d->to.has_stacks && d->count) {
		scry_buf_printf(&buf, "no stacks were recorded; fix: record with --stacks");
		note(d, &buf);
	}
	scry_buf_done(&buf);
}

/* "+20" */
static void put_growth(struct scry_buf *buf, int64_t growth)
{
	scry_buf_printf(buf, growth < 0 ? "-" : growth ? "+" : "");
	scry_text_count(buf, growth < 0 ? -(uint64_t)growth : (uint64_t)growth);
}

/* How much more there is, and of what most. */
static void judge(const struct diff *d)
{
	const char *const things[] = {
		[SCRY_VIEW_SORT_ALLOCATED] = "objects allocated",
		[SCRY_VIEW_SORT_BYTES] = "bytes allocated",
		[SCRY_VIEW_SORT_LIVE] =
			d->opts->live ? "objects that survived a full mark" : "live objects",
		[SCRY_VIEW_SORT_LIVE_BYTES] = d->opts->live
						      ? "bytes of objects that survived a full mark"
						      : "bytes of live objects",
		[SCRY_VIEW_SORT_OLD_LIVE] = "live objects that survived a full mark",
		[SCRY_VIEW_SORT_OLD_LIVE_BYTES] = "bytes of live objects that survived a full mark",
		[SCRY_VIEW_SORT_AGE] = "garbage collections that the oldest object survived",
	};
	const struct diff_row *most = d->count ? &d->rows[0] : NULL;
	struct scry_buf buf = {0};

	if (most) {
		put_growth(&buf, grown(scry_object_figure(&d->from.all, d->sort),
				       scry_object_figure(&d->to.all, d->sort)));
		scry_buf_printf(&buf, " %s", things[d->sort]);
		scry_buf_printf(&buf, most->growth > 0 ? "; " : "; no row has grown");
	} else if (d->same) {
		scry_buf_printf(&buf, "nothing has changed");
	} else if (d->died) {
		scry_buf_printf(&buf, "nothing is known to have survived a full mark");
	} else if (!d->from.all.allocated && !d->to.all.allocated) {
		scry_buf_printf(&buf, "no object was made, neither then nor before");
	} else {
		scry_buf_printf(&buf, "no row is let through by --grep or --filter");
	}
	if (most && most->growth > 0) {
		scry_object_subject(&most->key, d->opts->by, &buf);
		scry_buf_printf(&buf, " grew most, by ");
		scry_text_count(&buf, (uint64_t)most->growth);
	}
	scry_verdict(d->doc, &buf);
	scry_buf_done(&buf);
}

static void push_left_out(const struct diff *d, size_t shown)
{
	const struct scry_left_out left_out = {
		.by_top = d->count - shown,
		.things = "objects",
		.of = " of the later moment",
		.by_grep = d->to.grepped,
		.by_filter = d->to.filtered,
	};

	scry_left_out_push(&left_out, d->doc);
	if (d->died)
		scry_doc_remark(
			d->doc, "%zu row%s left out by --live: nothing in %s survived a full mark",
			d->died, d->died == 1 ? " is" : "s are", d->died == 1 ? "it" : "them");
}

/* For people in the order of time; for programs the later one is "data_quality". */
static void push_quality(struct diff *d)
{
	struct scry_data_quality *from = &d->from.quality, *to = &d->to.quality;

	if (!d->from_side->name) {
		d->doc->ops->quality(d->doc, to);
		return;
	}
	from->label = d->from_side->name;
	to->label = d->to_side->name;
	d->doc->ops->quality(d->doc, d->doc->is_data ? to : from);
	d->doc->ops->quality(d->doc, d->doc->is_data ? from : to);
}

static void push(struct diff *d)
{
	struct scry_column columns[COLUMNS];
	struct scry_buf place = {0};
	uint64_t top = scry_view_top(d->opts, d->doc);
	size_t i;

	if (!top || top > d->count)
		top = d->count;
	d->to.quality.noun = d->from.quality.noun = "objects";
	d->to.quality.shown = d->to.all.allocated;
	d->from.quality.shown = d->from.all.allocated;
	push_quality(d);
	scry_data_quality_notes(&d->to.quality, d->doc);
	if (d->from_side->name)
		scry_data_quality_notes(&d->from.quality, d->doc);
	push_notes(d);
	judge(d);
	push_totals(d);
	choose_columns(d, columns);
	scry_doc_table(d->doc, columns, COLUMNS);
	for (i = 0; i < top; i++)
		push_row(d, &d->rows[i], &place);
	scry_buf_done(&place);
	push_left_out(d, top);
}

static struct scry_object_list list_of(struct diff *d, const struct scry_diff_side *side)
{
	return (struct scry_object_list){
		.tables = &d->tables,
		.opts = d->opts,
		.keeps_methods = d->doc->is_data || d->opts->stacks,
		.until_ns = side->moment.until_ns,
		.is_nothing = side->moment.is_beginning,
	};
}

/* Line one is of the moment too: what came after it is neither in the counts nor in the time. */
static void set_moment(struct scry_data_quality *h, const struct scry_moment *moment)
{
	if (!moment->slice)
		return;
	h->watched_ns = moment->since_ns;
	h->is_moment = true;
}

int scry_view_diff(const struct scry_diff_side *from, const struct scry_diff_side *to,
		   const struct scry_view_opts *opts, struct scry_doc *doc)
{
	struct diff d = {.from_side = from, .to_side = to, .opts = opts, .doc = doc};
	int err;

	d.sort = opts->sort == SCRY_VIEW_SORT_DEFAULT ? SCRY_VIEW_SORT_LIVE : opts->sort;
	scry_object_tables_init(&d.tables);
	d.from = list_of(&d, from);
	d.to = list_of(&d, to);
	err = scry_object_list_read(&d.from, from->reader);
	if (!err)
		err = scry_object_list_read(&d.to, to->reader);
	set_moment(&d.from.quality, &from->moment);
	set_moment(&d.to.quality, &to->moment);
	if (opts->live) {
		keep_survivors_of(&d.from);
		keep_survivors_of(&d.to);
	}
	if (!err)
		err = match(&d);
	if (!err)
		push(&d);
	free(d.frames.frames);
	free(d.rows);
	scry_object_list_done(&d.from);
	scry_object_list_done(&d.to);
	scry_object_tables_done(&d.tables);
	return err;
}
