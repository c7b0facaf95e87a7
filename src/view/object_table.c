/*
 * The table of the objects view. See object_table.h.
 */
#include "view/object_table.h"

#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

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
	COLUMN_UNSIZED,
	COLUMN_LIVE_UNSIZED,
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
	[COLUMN_PID] = {NULL, "pid", SCRY_CELL_NUMBER, NULL, 0},
	[COLUMN_FILE] = {NULL, "file", SCRY_CELL_TEXT, NULL, 0},
	[COLUMN_LINE] = {NULL, "line", SCRY_CELL_NUMBER, NULL, 0},
	[COLUMN_CLASS] = {NULL, "class", SCRY_CELL_TEXT, NULL, 0},
	[COLUMN_METHOD] = {NULL, "method", SCRY_CELL_TEXT, NULL, 0},
	[COLUMN_GEM] = {NULL, "gem", SCRY_CELL_TEXT, NULL, SCRY_COLUMN_ELASTIC},
	[COLUMN_INTERNAL] = {NULL, "is_internal", SCRY_CELL_BOOL, NULL, 0},
	[COLUMN_ALLOCATED] = {"allocated", "allocated", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_ALLOCATED_ERROR] = {NULL, "allocated_error", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_BYTES] = {"bytes", "bytes", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_LIVE] = {"live", "live", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_LIVE_ERROR] = {NULL, "live_error", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_LIVE_BYTES] = {"live bytes", "live_bytes", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_OLD_LIVE] = {NULL, "old_live", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_OLD_LIVE_BYTES] = {NULL, "old_live_bytes", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_AGE] = {NULL, "max_age_gcs", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_SLOTS] = {NULL, "is_slots_only", SCRY_CELL_BOOL, NULL, 0},
	[COLUMN_UNSIZED] = {NULL, "unsized", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_LIVE_UNSIZED] = {NULL, "live_unsized", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_SAMPLES] = {NULL, "samples", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_LIVE_SAMPLES] = {NULL, "live_samples", SCRY_CELL_COUNT, NULL, 0},
	[COLUMN_STACK] = {NULL, NULL, SCRY_CELL_FRAMES, NULL, 0},
	[COLUMN_TEXT_METHOD] = {NULL, NULL, SCRY_CELL_TEXT, NULL, SCRY_COLUMN_ELASTIC},
	[COLUMN_TEXT_PLACE] = {"file:line", NULL, SCRY_CELL_TEXT, NULL, SCRY_COLUMN_ELASTIC},
	[COLUMN_TEXT_CLASS] = {"class", NULL, SCRY_CELL_TEXT, NULL, SCRY_COLUMN_ELASTIC},
};

/* What people see depends on what is asked and on what is known. */
static void choose_columns(const struct scry_object_table *t, struct scry_column columns[COLUMNS])
{
	int by = t->list->opts->by;

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
	if (t->list->has_slots && !t->has_stars) {
		columns[COLUMN_BYTES].title = "bytes*";
		columns[COLUMN_LIVE_BYTES].title = "live bytes*";
	}
	if (t->list->has_slots)
		columns[COLUMN_UNSIZED].title = "unsized";
	if (t->list->all.is_scaled)
		columns[COLUMN_ALLOCATED_ERROR].title = columns[COLUMN_LIVE_ERROR].title = "+-";
	if (t->has_ages)
		columns[COLUMN_AGE].title = "GC age";
	if (t->list->opts->live) {
		columns[COLUMN_BYTES].title = columns[COLUMN_LIVE_BYTES].title = NULL;
		columns[COLUMN_OLD_LIVE].title = "survived";
		columns[COLUMN_OLD_LIVE_BYTES].title =
			t->list->has_slots && !t->has_stars ? "survived bytes*" : "survived bytes";
	}
	if (t->list->opts->stacks)
		columns[COLUMN_STACK].key = "frames";
}

/* Starred when they are too few: of `unsized` objects not all bytes are known. */
static struct scry_cell bytes_cell(const struct scry_object_table *t, uint64_t bytes,
				   uint64_t unsized)
{
	struct scry_cell cell = scry_cell_number(bytes);

	if (t->has_stars)
		cell.mark = unsized ? '*' : ' ';
	return cell;
}

static void fill_counts(const struct scry_object_table *t, const struct scry_object_row *row,
			struct scry_cell cells[COLUMNS])
{
	const struct scry_object_counts *c = &row->counts;

	cells[COLUMN_ALLOCATED] = scry_cell_number(c->allocated);
	cells[COLUMN_ALLOCATED_ERROR] =
		scry_object_error_cell(c, c->allocated_variance, c->samples);
	cells[COLUMN_BYTES] = bytes_cell(t, c->bytes, c->unsized);
	cells[COLUMN_LIVE] = scry_cell_number(c->live);
	cells[COLUMN_LIVE_ERROR] = scry_object_live_error_cell(c);
	cells[COLUMN_LIVE_BYTES] = bytes_cell(t, c->live_bytes, c->live_unsized);
	cells[COLUMN_OLD_LIVE] = scry_cell_known(c->old_live, t->has_full);
	cells[COLUMN_OLD_LIVE_BYTES] = bytes_cell(t, c->old_live_bytes, c->live_unsized);
	cells[COLUMN_OLD_LIVE_BYTES].is_unknown = !t->has_full;
	cells[COLUMN_AGE] = scry_cell_known(c->max_age, t->has_ages && c->live);
	cells[COLUMN_SLOTS] = scry_cell_number(c->is_slots);
	cells[COLUMN_UNSIZED] = scry_cell_number(c->unsized);
	cells[COLUMN_LIVE_UNSIZED] = scry_cell_number(c->live_unsized);
	cells[COLUMN_SAMPLES] = scry_cell_known(c->samples, c->is_scaled);
	cells[COLUMN_LIVE_SAMPLES] = scry_cell_known(c->live_samples, c->is_scaled);
}

static void push_row(struct scry_object_table *t, const struct scry_object_row *row,
		     struct scry_buf *place)
{
	const struct scry_intern *names = row->names;
	int by = t->list->opts->by;
	bool by_line = by == SCRY_VIEW_BY_LINE;
	struct scry_cell cells[COLUMNS];

	scry_buf_clear(place);
	scry_object_place(row, by != SCRY_VIEW_BY_CLASS && (by_line || !row->line), place);
	cells[COLUMN_PID] = scry_cell_known(row->pid, row->pid);
	cells[COLUMN_FILE] = row->line ? scry_name_text(names, row->file) : scry_cell_unknown();
	cells[COLUMN_LINE] = scry_cell_known(row->line, by_line);
	cells[COLUMN_CLASS] = scry_name_text(names, row->class);
	cells[COLUMN_METHOD] = scry_name_text(names, row->method);
	cells[COLUMN_GEM] = scry_name_text(names, row->gem);
	cells[COLUMN_INTERNAL] = scry_cell_number(row->is_internal);
	fill_counts(t, row, cells);
	cells[COLUMN_STACK] = scry_object_frames(t->list->tables, row, &t->frames);
	cells[COLUMN_TEXT_METHOD] =
		by == SCRY_VIEW_BY_GEM ? cells[COLUMN_GEM] : cells[COLUMN_METHOD];
	cells[COLUMN_TEXT_PLACE] = scry_cell_text(scry_buf_str(place), place->len);
	if (by == SCRY_VIEW_BY_GEM && cells[COLUMN_GEM].is_unknown)
		cells[COLUMN_TEXT_METHOD] = cells[COLUMN_TEXT_PLACE];
	cells[COLUMN_TEXT_CLASS] = scry_object_class(row);
	t->doc->ops->row(t->doc, cells);
}

struct scry_object_table scry_object_table_of(const struct scry_object_list *list,
					      struct scry_doc *doc)
{
	return (struct scry_object_table){
		.list = list,
		.doc = doc,
		.has_full = list->quality.full_gcs > 0,
		.has_ages = list->quality.gcs > 0 || list->all.max_age > 0,
		.has_stars = list->has_slots && list->has_sizes,
	};
}

void scry_object_table_done(struct scry_object_table *t)
{
	free(t->frames.frames);
	t->frames = (struct scry_frame_row){0};
}

uint64_t scry_object_table_push(struct scry_object_table *t, size_t count)
{
	struct scry_column columns[COLUMNS];
	struct scry_buf place = {0};
	uint64_t objects = 0;
	size_t i;

	choose_columns(t, columns);
	scry_doc_table(t->doc, columns, COLUMNS);
	for (i = 0; i < count; i++) {
		push_row(t, &t->list->rows[i], &place);
		objects += t->list->rows[i].counts.allocated;
	}
	scry_buf_done(&place);
	return objects;
}
