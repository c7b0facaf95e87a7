/*
 * The objects view: which line makes objects of which class, and how many of them live.
 *
 * object_list reads and sums; here is what is shown of it: totals, one table for people and
 * programs, and why a page is empty. Bounded by scry_sites.
 */
#include "base/buf.h"
#include "base/text.h"
#include "view/object_list.h"
#include "view/object_tree.h"
#include "view/view.h"

#include <stdlib.h>
#include <string.h>

struct objects {
	struct scry_object_list list;
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	int sort;
	bool has_ages, has_full; /* GCs were seen, full ones */
	bool has_stars;		 /* only some sizes are of slots only */
	struct scry_object_frames frames;
};

/* One table for people and programs: titles are for the one, keys for the other. */
enum {
	COLUMN_PID,
	COLUMN_FILE,
	COLUMN_LINE,
	COLUMN_CLASS,
	COLUMN_METHOD,
	COLUMN_GEM,
	COLUMN_INTERNAL,
	COLUMN_ALLOCATED,
	COLUMN_ALLOCATED_ERROR,
	COLUMN_BYTES,
	COLUMN_LIVE,
	COLUMN_LIVE_ERROR,
	COLUMN_LIVE_BYTES,
	COLUMN_OLD_LIVE,
	COLUMN_OLD_LIVE_BYTES,
	COLUMN_AGE,
	COLUMN_SLOTS,
	COLUMN_SAMPLES,
	COLUMN_LIVE_SAMPLES,
	COLUMN_STACK,
	COLUMN_TEXT_METHOD,
	COLUMN_TEXT_PLACE,
	COLUMN_TEXT_CLASS,
	COLUMNS,
};
_Static_assert(COLUMNS <= SCRY_DOC_COLUMNS_MAX, "the table fits");

static const struct scry_column all_columns[COLUMNS] = {
	[COLUMN_PID] = {NULL, "pid", SCRY_CELL_NUMBER, false},
	[COLUMN_FILE] = {NULL, "file", SCRY_CELL_TEXT, false},
	[COLUMN_LINE] = {NULL, "line", SCRY_CELL_NUMBER, false},
	[COLUMN_CLASS] = {NULL, "class", SCRY_CELL_TEXT, false},
	[COLUMN_METHOD] = {NULL, "method", SCRY_CELL_TEXT, false},
	[COLUMN_GEM] = {NULL, "gem", SCRY_CELL_TEXT, true},
	[COLUMN_INTERNAL] = {NULL, "is_internal", SCRY_CELL_BOOL, false},
	[COLUMN_ALLOCATED] = {"allocated", "allocated", SCRY_CELL_COUNT, false},
	[COLUMN_ALLOCATED_ERROR] = {NULL, "allocated_error", SCRY_CELL_COUNT, false},
	[COLUMN_BYTES] = {"bytes", "bytes", SCRY_CELL_COUNT, false},
	[COLUMN_LIVE] = {"live", "live", SCRY_CELL_COUNT, false},
	[COLUMN_LIVE_ERROR] = {NULL, "live_error", SCRY_CELL_COUNT, false},
	[COLUMN_LIVE_BYTES] = {"live bytes", "live_bytes", SCRY_CELL_COUNT, false},
	[COLUMN_OLD_LIVE] = {NULL, "old_live", SCRY_CELL_COUNT, false},
	[COLUMN_OLD_LIVE_BYTES] = {NULL, "old_live_bytes", SCRY_CELL_COUNT, false},
	[COLUMN_AGE] = {NULL, "max_age_gcs", SCRY_CELL_COUNT, false},
	[COLUMN_SLOTS] = {NULL, "is_slots_only", SCRY_CELL_BOOL, false},
	[COLUMN_SAMPLES] = {NULL, "samples", SCRY_CELL_COUNT, false},
	[COLUMN_LIVE_SAMPLES] = {NULL, "live_samples", SCRY_CELL_COUNT, false},
	[COLUMN_STACK] = {NULL, NULL, SCRY_CELL_FRAMES, false},
	[COLUMN_TEXT_METHOD] = {NULL, NULL, SCRY_CELL_TEXT, true},
	[COLUMN_TEXT_PLACE] = {"file:line", NULL, SCRY_CELL_TEXT, true},
	[COLUMN_TEXT_CLASS] = {"class", NULL, SCRY_CELL_TEXT, true},
};

/* What people see depends on what is asked and on what is known. */
static void choose_columns(const struct objects *o, struct scry_column columns[COLUMNS])
{
	int by = o->opts->by;

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
	if (o->list.has_slots && !o->has_stars) {
		columns[COLUMN_BYTES].title = "bytes*";
		columns[COLUMN_LIVE_BYTES].title = "live bytes*";
	}
	if (o->list.all.is_scaled)
		columns[COLUMN_ALLOCATED_ERROR].title = columns[COLUMN_LIVE_ERROR].title = "+-";
	if (o->has_ages)
		columns[COLUMN_AGE].title = "GC age";
	if (o->opts->live) {
		columns[COLUMN_BYTES].title = columns[COLUMN_LIVE_BYTES].title = NULL;
		columns[COLUMN_OLD_LIVE].title = "survived";
		columns[COLUMN_OLD_LIVE_BYTES].title =
			o->list.has_slots && !o->has_stars ? "survived bytes*" : "survived bytes";
	}
	if (o->opts->stacks)
		columns[COLUMN_STACK].key = "stack";
}

static struct scry_cell bytes_cell(const struct objects *o, const struct scry_object_row *row,
				   uint64_t bytes)
{
	struct scry_cell cell = scry_cell_number(bytes);

	if (o->has_stars)
		cell.mark = row->counts.is_slots ? '*' : ' ';
	return cell;
}

static struct scry_cell error_cell(const struct scry_object_counts *counts, double variance,
				   uint64_t samples)
{
	uint64_t half = 0;

	if (counts->is_scaled && !scry_object_interval(variance, samples, &half))
		return scry_cell_few_samples();
	return scry_cell_number(half);
}

static void fill_counts(const struct objects *o, const struct scry_object_row *row,
			struct scry_cell cells[COLUMNS])
{
	const struct scry_object_counts *c = &row->counts;

	cells[COLUMN_ALLOCATED] = scry_cell_number(c->allocated);
	cells[COLUMN_ALLOCATED_ERROR] = error_cell(c, c->allocated_variance, c->samples);
	cells[COLUMN_BYTES] = bytes_cell(o, row, c->bytes);
	cells[COLUMN_LIVE] = scry_cell_number(c->live);
	cells[COLUMN_LIVE_ERROR] = error_cell(c, c->live_variance, c->live_samples);
	cells[COLUMN_LIVE_BYTES] = bytes_cell(o, row, c->live_bytes);
	cells[COLUMN_OLD_LIVE] = scry_cell_known(c->old_live, o->has_full);
	cells[COLUMN_OLD_LIVE_BYTES] = bytes_cell(o, row, c->old_live_bytes);
	cells[COLUMN_OLD_LIVE_BYTES].is_unknown = !o->has_full;
	cells[COLUMN_AGE] = scry_cell_known(c->max_age, o->has_ages && c->live);
	cells[COLUMN_SLOTS] = scry_cell_number(c->is_slots);
	cells[COLUMN_SAMPLES] = scry_cell_known(c->samples, c->is_scaled);
	cells[COLUMN_LIVE_SAMPLES] = scry_cell_known(c->live_samples, c->is_scaled);
}

static void push_row(struct objects *o, const struct scry_object_row *row, struct scry_buf *place)
{
	const struct scry_intern *names = row->names;
	int by = o->opts->by;
	bool by_line = by == SCRY_VIEW_BY_LINE;
	struct scry_cell cells[COLUMNS];

	scry_buf_clear(place);
	scry_object_place(row, by != SCRY_VIEW_BY_CLASS && (by_line || !row->line), place);
	cells[COLUMN_PID] = scry_cell_known(row->pid, row->pid);
	cells[COLUMN_FILE] = row->line ? scry_object_text(names, row->file) : scry_cell_unknown();
	cells[COLUMN_LINE] = scry_cell_known(row->line, by_line);
	cells[COLUMN_CLASS] = scry_object_text(names, row->class);
	cells[COLUMN_METHOD] = scry_object_text(names, row->method);
	cells[COLUMN_GEM] = scry_object_text(names, row->gem);
	cells[COLUMN_INTERNAL] = scry_cell_number(row->is_internal);
	fill_counts(o, row, cells);
	cells[COLUMN_STACK] = scry_object_frames_cell(o->list.tables, row->stack, &o->frames);
	cells[COLUMN_TEXT_METHOD] =
		by == SCRY_VIEW_BY_GEM ? cells[COLUMN_GEM] : cells[COLUMN_METHOD];
	cells[COLUMN_TEXT_PLACE] = scry_cell_text(scry_buf_str(place), place->len);
	if (by == SCRY_VIEW_BY_GEM && cells[COLUMN_GEM].is_unknown)
		cells[COLUMN_TEXT_METHOD] = cells[COLUMN_TEXT_PLACE];
	cells[COLUMN_TEXT_CLASS] = scry_object_class(row);
	o->doc->ops->row(o->doc, cells);
}

static void push_totals(const struct objects *o)
{
	const struct scry_object_list *l = &o->list;
	const struct scry_object_counts *all = &l->all;
	const bool is_data = o->doc->is_data;
	const struct {
		bool is_shown;
		struct scry_pair pair;
	} rows[] = {
#define TOTAL(shown, key, unit, ...)                               \
	{                                                          \
		shown,                                             \
		{                                                  \
			key, unit, SCRY_CELL_COUNT, 0, __VA_ARGS__ \
		}                                                  \
	}
		TOTAL(true, "allocated", "objects allocated", scry_cell_number(all->allocated)),
		TOTAL(is_data || all->is_scaled, "allocated_error",
		      "of these more or less (95 % interval)",
		      error_cell(all, all->allocated_variance, all->samples)),
		TOTAL(true, "bytes", all->is_slots ? "bytes* allocated" : "bytes allocated",
		      scry_cell_number(all->bytes)),
		TOTAL(true, "live", "still live at the end", scry_cell_number(all->live)),
		TOTAL(is_data || all->is_scaled, "live_error",
		      "of these more or less (95 % interval)",
		      error_cell(all, all->live_variance, all->live_samples)),
		TOTAL(true, "live_bytes",
		      all->is_slots ? "bytes* of the live" : "bytes of the live",
		      scry_cell_number(all->live_bytes)),
		TOTAL(is_data || o->has_full, "old_live", "of the live survived the last full mark",
		      scry_cell_known(all->old_live, o->has_full)),
		TOTAL(is_data || o->opts->live, "old_live_bytes", "bytes of those",
		      scry_cell_known(all->old_live_bytes, o->has_full)),
		TOTAL(true, "freed", "freed", scry_cell_number(l->freed)),
		TOTAL(true, "frees_older", "freed that were made before the watch",
		      scry_cell_known(l->frees_older, l->honesty.has_totals || l->frees_older)),
		TOTAL(true, "internal",
		      o->opts->internal ? "internal to the VM" : "internal to the VM, not listed",
		      scry_cell_number(l->internal)),
		TOTAL(true, "unnamed", "unnamed: gone before they could be named",
		      scry_cell_number(l->unnamed)),
		TOTAL(is_data, "left_out", "",
		      scry_cell_number(l->grepped + l->filtered + l->died)),
#undef TOTAL
	};
	struct scry_pair pairs[sizeof(rows) / sizeof(rows[0])];
	size_t i, count = 0;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].is_shown)
			pairs[count++] = rows[i].pair;
	o->doc->ops->totals(o->doc, pairs, count);
}

static void note(const struct objects *o, const char *text)
{
	o->doc->ops->note(o->doc, text, strlen(text));
}

/* What the figures do not say of themselves. */
static void push_notes(const struct objects *o)
{
	const struct scry_object_list *l = &o->list;
	struct scry_buf buf = {0};

	if (l->all.is_slots && !l->all_slots)
		note(o, o->doc->is_data
				? "bytes of rows with is_slots_only are heap slots; buffers "
				  "outside the "
				  "slot are not counted, or not all"
				: "* marks bytes of heap slots: buffers outside the slot are not "
				  "counted there, or not all");
	else if (l->all.is_slots)
		note(o,
		     o->doc->is_data
			     ? "bytes are heap slots only; buffers outside the slot are not counted"
			     : "bytes* are heap slots only; buffers outside the slot are not "
			       "counted");
	if (l->slice_end_ns) {
		scry_buf_printf(&buf, "the end is missing: the figures are those of ");
		scry_text_duration(&buf, l->slice_end_ns - l->honesty.first_slice_ns);
		scry_buf_printf(&buf, " after the beginning, when the last slice was written");
		note(o, scry_buf_str(&buf));
	}
	scry_buf_done(&buf);
}

/* An empty table says why. */
static void explain_empty(const struct objects *o)
{
	const struct scry_object_list *l = &o->list;

	if (!l->events && !l->honesty.has_totals)
		scry_doc_remark(o->doc, "no counters: scry was ended before it could write them");
	else if (!l->all.allocated)
		scry_doc_remark(o->doc, "no object was made while watching");
	else if (o->opts->live && !o->has_full && l->died)
		scry_doc_remark(o->doc,
				"no full mark of the garbage collector was seen, so nothing "
				"is known to have survived one; fix: watch longer");
	else if (l->died)
		scry_doc_remark(o->doc,
				"nothing that could be listed has survived the last full mark");
	else if (l->grepped && !l->filtered)
		scry_doc_remark(o->doc, "no row contains '%s'", o->opts->grep);
	else if (l->grepped || l->filtered)
		scry_doc_remark(o->doc, "no row is let through by --filter%s",
				l->grepped ? " and --grep" : "");
	else
		scry_doc_remark(o->doc,
				"all objects made were internal to the VM; --internal lists "
				"them");
}

static void remark_count(const struct objects *o, uint64_t count, const char *what)
{
	struct scry_buf buf = {0};

	if (count) {
		scry_text_count(&buf, count);
		scry_doc_remark(o->doc, "%s %s", scry_buf_str(&buf), what);
	}
	scry_buf_done(&buf);
}

static void push_left_out(const struct objects *o, size_t shown, uint64_t shown_objects)
{
	const struct scry_object_list *l = &o->list;
	struct scry_buf buf = {0};
	uint64_t listed = 0;
	size_t i;

	for (i = 0; i < l->count; i++)
		listed += l->rows[i].counts.allocated;
	if (shown < l->count) {
		scry_text_count(&buf, l->count - shown);
		scry_buf_printf(&buf, " more rows with ");
		scry_text_count(&buf, listed - shown_objects);
		scry_buf_printf(&buf, " objects are not shown; --top 0 shows them");
		scry_doc_remark(o->doc, "%s", scry_buf_str(&buf));
	}
	scry_buf_done(&buf);
	remark_count(o, l->grepped, "objects are left out by --grep");
	remark_count(o, l->filtered, "objects are left out by --filter");
	remark_count(o, l->died, "objects are left out by --live: nothing in their rows survived");
}

static void push_table(struct objects *o)
{
	struct scry_column columns[COLUMNS];
	struct scry_buf place = {0};
	uint64_t top = o->opts->top, shown_objects = 0;
	size_t i;

	if (top == SCRY_VIEW_TOP_DEFAULT)
		top = o->doc->is_data ? 0 : SCRY_VIEW_TOP_ROWS;
	if (!top || top > o->list.count)
		top = o->list.count;
	scry_object_rows_sort(o->list.rows, o->list.count, o->sort);
	choose_columns(o, columns);
	scry_doc_table(o->doc, columns, COLUMNS);
	for (i = 0; i < top; i++) {
		push_row(o, &o->list.rows[i], &place);
		shown_objects += o->list.rows[i].counts.allocated;
	}
	scry_buf_done(&place);
	if (o->list.count)
		push_left_out(o, top, shown_objects);
	else
		explain_empty(o);
}

static int push_tree(struct objects *o)
{
	uint64_t top = o->opts->top == SCRY_VIEW_TOP_DEFAULT ? 0 : o->opts->top, all = 0;
	size_t i;
	int err = scry_object_tree_push(&o->list, o->sort, top, o->doc);

	if (err)
		return err;
	for (i = 0; i < o->list.count; i++)
		all += o->list.rows[i].counts.allocated;
	if (!o->list.count)
		explain_empty(o);
	else
		push_left_out(o, o->list.count, all);
	return 0;
}

static int push(struct objects *o)
{
	struct scry_object_list *l = &o->list;
	const char *weights[] = {
		[SCRY_VIEW_SORT_ALLOCATED] = "allocated",
		[SCRY_VIEW_SORT_BYTES] = "bytes",
		[SCRY_VIEW_SORT_LIVE] = "live",
		[SCRY_VIEW_SORT_LIVE_BYTES] = "live_bytes",
		[SCRY_VIEW_SORT_OLD_LIVE] = "old_live",
		[SCRY_VIEW_SORT_OLD_LIVE_BYTES] = "old_live_bytes",
		[SCRY_VIEW_SORT_AGE] = "allocated",
	};

	o->sort = scry_view_sort_of(o->opts);
	o->doc->weight = weights[o->sort];
	o->has_full = l->honesty.full_gcs > 0;
	o->has_ages = l->honesty.gcs > 0 || l->all.max_age > 0;
	o->has_stars = l->has_slots && l->has_sizes;
	l->honesty.noun = "objects";
	l->honesty.shown = l->all.allocated;
	scry_honesty_push(&l->honesty, o->doc);
	push_notes(o);
	if (o->opts->stacks && l->count && !l->has_stacks)
		note(o, "the recording holds no stacks; fix: record with --stacks");
	push_totals(o);
	if (o->opts->stacks && !o->doc->is_data)
		return push_tree(o);
	push_table(o);
	return 0;
}

int scry_view_objects(struct scry_reader *reader, const struct scry_view_opts *opts,
		      struct scry_doc *doc)
{
	struct scry_object_tables tables;
	struct objects o = {
		.list = {.tables = &tables,
			 .opts = opts,
			 .keeps_pids = doc->is_data,
			 .keeps_methods = doc->is_data || opts->stacks},
		.opts = opts,
		.doc = doc,
	};
	int err;

	scry_object_tables_init(&tables);
	err = scry_object_list_read(&o.list, reader);
	if (!err)
		err = push(&o);
	free(o.frames.frames);
	scry_object_list_done(&o.list);
	scry_object_tables_done(&tables);
	return err;
}
