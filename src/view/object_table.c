/*
 * The table of the objects view. See object_table.h.
 */
#include "view/object_table.h"

#include "view/table.h"

#include <stdlib.h>

static bool is_by_line(const struct scry_object_table *t)
{
	return t->list->opts->by == SCRY_VIEW_BY_LINE;
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

static struct scry_cell survived_cell(const struct scry_object_table *t,
				      const struct scry_object_counts *c)
{
	struct scry_cell cell = bytes_cell(t, c->old_live_bytes, c->live_unsized);

	cell.is_unknown = !t->has_full;
	return cell;
}

static struct scry_cell place_cell(const struct scry_object_table *t,
				   const struct scry_object_row *row, struct scry_buf *buf)
{
	const bool has_line =
		t->list->opts->by != SCRY_VIEW_BY_CLASS && (is_by_line(t) || !row->line);

	scry_object_place(row, has_line, buf);
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

/* By method, or by gem: what has none is where it is. */
static struct scry_cell method_cell(const struct scry_object_table *t,
				    const struct scry_object_row *row, struct scry_buf *buf)
{
	struct scry_cell gem = scry_name_text(row->names, row->gem);

	if (t->list->opts->by != SCRY_VIEW_BY_GEM)
		return scry_name_text(row->names, row->method);
	return gem.is_unknown ? place_cell(t, row, buf) : gem;
}

#define COUNTS(member) SCRY_AT(struct scry_object_row, counts.member)
#define GET(name, ...) SCRY_GET(name, struct scry_object_row, struct scry_object_table, __VA_ARGS__)

GET(get_pid, scry_cell_known(row->pid, row->pid))
GET(get_file, scry_name_text(row->names, row->line ? row->file : 0))
GET(get_line, scry_cell_known(row->line, is_by_line(view)))
GET(get_class, scry_name_text(row->names, row->class))
GET(get_method, scry_name_text(row->names, row->method))
GET(get_gem, scry_name_text(row->names, row->gem))
GET(get_error,
    scry_object_error_cell(&row->counts, row->counts.allocated_variance, row->counts.samples))
GET(get_bytes, bytes_cell(view, row->counts.bytes, row->counts.unsized))
GET(get_live_error, scry_object_live_error_cell(&row->counts))
GET(get_live_bytes, bytes_cell(view, row->counts.live_bytes, row->counts.live_unsized))
GET(get_old_live, scry_cell_known(row->counts.old_live, view->has_full))
GET(get_old_live_bytes, survived_cell(view, &row->counts))
GET(get_age, scry_cell_known(row->counts.max_age, view->has_ages && row->counts.live))
GET(get_samples, scry_cell_known(row->counts.samples, row->counts.is_scaled))
GET(get_live_samples, scry_cell_known(row->counts.live_samples, row->counts.is_scaled))
GET(get_frames, scry_object_frames(view->list->tables, row, &view->frames))
GET(get_shown_method, method_cell(view, row, buf))
GET(get_place, place_cell(view, row, buf))
GET(get_shown_class, scry_object_class(row))

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

/* What people see depends on what is asked and on what is known. */
uint64_t scry_object_table_push(struct scry_object_table *t, size_t count)
{
	const struct scry_object_list *l = t->list;
	const int by = l->opts->by;
	const bool live = l->opts->live, stars = l->has_slots && !t->has_stars;
	const char *error = l->all.is_scaled ? "+-" : NULL;
	const char *method = by == SCRY_VIEW_BY_METHOD ? "method"
			     : by == SCRY_VIEW_BY_GEM  ? "gem"
						       : NULL;
	const char *place = by == SCRY_VIEW_BY_LINE				   ? "file:line"
			    : by == SCRY_VIEW_BY_FILE || by == SCRY_VIEW_BY_METHOD ? "file"
										   : NULL;
	const struct scry_column columns[] = {
		{NULL, "pid", SCRY_CELL_NUMBER, get_pid, 0},
		{NULL, "file", SCRY_CELL_TEXT, get_file, 0},
		{NULL, "line", SCRY_CELL_NUMBER, get_line, 0},
		{NULL, "class", SCRY_CELL_TEXT, get_class, 0},
		{NULL, "method", SCRY_CELL_TEXT, get_method, 0},
		{NULL, "gem", SCRY_CELL_TEXT, get_gem, 0},
		{NULL, "is_internal", SCRY_CELL_BOOL, SCRY_AT(struct scry_object_row, is_internal)},
		{"allocated", "allocated", SCRY_CELL_COUNT, COUNTS(allocated)},
		{error, "allocated_error", SCRY_CELL_COUNT, get_error, 0},
		{live	 ? NULL
		 : stars ? "bytes*"
			 : "bytes",
		 "bytes", SCRY_CELL_COUNT, get_bytes, 0},
		{"live", "live", SCRY_CELL_COUNT, COUNTS(live)},
		{error, "live_error", SCRY_CELL_COUNT, get_live_error, 0},
		{live	 ? NULL
		 : stars ? "live bytes*"
			 : "live bytes",
		 "live_bytes", SCRY_CELL_COUNT, get_live_bytes, 0},
		{live ? "survived" : NULL, "old_live", SCRY_CELL_COUNT, get_old_live, 0},
		{!live	 ? NULL
		 : stars ? "survived bytes*"
			 : "survived bytes",
		 "old_live_bytes", SCRY_CELL_COUNT, get_old_live_bytes, 0},
		{t->has_ages ? "GC age" : NULL, "max_age_gcs", SCRY_CELL_COUNT, get_age, 0},
		{NULL, "is_slots_only", SCRY_CELL_BOOL, COUNTS(is_slots)},
		{l->has_slots ? "unsized" : NULL, "unsized", SCRY_CELL_COUNT, COUNTS(unsized)},
		{NULL, "live_unsized", SCRY_CELL_COUNT, COUNTS(live_unsized)},
		{NULL, "samples", SCRY_CELL_COUNT, get_samples, 0},
		{NULL, "live_samples", SCRY_CELL_COUNT, get_live_samples, 0},
		{NULL, l->opts->stacks ? "frames" : NULL, SCRY_CELL_FRAMES, get_frames, 0},
		{method, NULL, SCRY_CELL_TEXT, get_shown_method, SCRY_COLUMN_ELASTIC},
		{place, NULL, SCRY_CELL_TEXT, get_place, SCRY_COLUMN_ELASTIC},
		{by == SCRY_VIEW_BY_LINE || by == SCRY_VIEW_BY_CLASS ? "class" : NULL, NULL,
		 SCRY_CELL_TEXT, get_shown_class, SCRY_COLUMN_ELASTIC},
	};
	uint64_t objects = 0;

	scry_table_push(
		&(struct scry_table){SCRY_COLUMNS(columns), SCRY_ROWS(l->rows, count), .view = t},
		t->doc);
	for (size_t i = 0; i < count; i++)
		objects += l->rows[i].counts.allocated;
	return objects;
}
