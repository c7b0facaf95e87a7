/*
 * From a recording to the rows of the objects view. See object_list.h.
 */
#include "view/object_list.h"

#include "base/err.h"
#include "view/filter.h"
#include "view/gem.h"
#include "view/grep.h"
#include "view/sites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX (8u << 20) /* two recordings of 4 Mi strings */
#define NAMES_BYTES_MAX (1u << 30)

static const char no_frame[] = "(no Ruby frame)";
static const char unknown[] = "(unknown)";
static const char internal[] = "(internal)";

struct wanted { /* what may be listed */
	struct scry_grep grep;
	struct scry_row_filter filter;
	struct scry_buf line; /* scratch */
};

void scry_object_tables_init(struct scry_object_tables *tables)
{
	scry_intern_init(&tables->names, NAMES_MAX, NAMES_BYTES_MAX);
	scry_map_init(&tables->gems, NAMES_MAX);
	scry_frames_init(&tables->frames);
}

void scry_object_tables_done(struct scry_object_tables *tables)
{
	scry_intern_done(&tables->names);
	scry_map_done(&tables->gems);
	scry_frames_done(&tables->frames);
}

void scry_object_subject(const struct scry_object_row *row, int by, struct scry_buf *buf)
{
	const struct scry_cell class = scry_object_class(row);
	const struct scry_cell method = scry_name_text(row->names, row->method);
	const struct scry_cell gem = scry_name_text(row->names, row->gem);

	if (by == SCRY_VIEW_BY_GEM && !gem.is_unknown) {
		scry_buf_append(buf, gem.bytes, gem.length);
		return;
	}
	if (by == SCRY_VIEW_BY_LINE || by == SCRY_VIEW_BY_CLASS)
		scry_buf_append(buf, class.bytes, class.length);
	if (by == SCRY_VIEW_BY_CLASS)
		return;
	if (by == SCRY_VIEW_BY_LINE) /* else: "(no Ruby frame)" */
		scry_buf_printf(buf, row->line ? " at " : " ");
	if (by == SCRY_VIEW_BY_METHOD && !method.is_unknown) {
		scry_buf_append(buf, method.bytes, method.length);
		scry_buf_printf(buf, " in ");
	}
	scry_object_place(row, by == SCRY_VIEW_BY_LINE || !row->line, buf);
}

struct scry_cell scry_object_frames(const struct scry_object_tables *tables,
				    const struct scry_object_row *row,
				    struct scry_frame_row *scratch)
{
	const struct scry_frame leaf = {
		.parent = row->stack,
		.file = row->line ? row->file : 0,
		.line = row->line,
		.method = row->method,
	};

	return scry_frames_cell(&tables->frames, &tables->names, &leaf, scratch);
}

struct scry_cell scry_object_class(const struct scry_object_row *row)
{
	struct scry_cell cell = scry_name_text(row->names, row->class);

	if (!cell.is_unknown)
		return cell;
	return row->is_internal ? scry_cell_text(internal, sizeof(internal) - 1)
				: scry_cell_text(unknown, sizeof(unknown) - 1);
}

struct scry_cell scry_object_error_cell(const struct scry_object_counts *counts, double variance,
					uint64_t samples)
{
	uint64_t half = 0;

	if (counts->is_scaled && !scry_object_interval(variance, samples, &half))
		return scry_cell_few_samples();
	return scry_cell_number(half);
}

struct scry_cell scry_object_live_error_cell(const struct scry_object_counts *counts)
{
	if (counts->is_scaled && counts->is_least)
		return (struct scry_cell){.is_unknown = true, .bytes = "at least", .length = 8};
	return scry_object_error_cell(counts, counts->live_variance, counts->live_samples);
}

static void put_place(const struct scry_object_row *row, bool with_line, bool is_whole,
		      struct scry_buf *buf)
{
	struct scry_cell file = scry_name_text(row->names, row->file);

	if (!row->line && with_line && !row->is_lost)
		scry_buf_append(buf, no_frame, sizeof(no_frame) - 1);
	else if (file.is_unknown)
		scry_buf_append(buf, unknown, sizeof(unknown) - 1);
	else
		scry_buf_printf(buf, "%s", is_whole ? file.bytes : scry_gem_path(file.bytes));
	if (row->line && with_line)
		scry_buf_printf(buf, ":%d", (int)row->line);
}

void scry_object_place(const struct scry_object_row *row, bool with_line, struct scry_buf *buf)
{
	put_place(row, with_line, false, buf);
}

static uint32_t gem_of(struct scry_object_tables *tables, uint32_t file)
{
	const char *path = file ? scry_intern_get(&tables->names, file, NULL) : NULL, *name;
	uint64_t *gem = path ? scry_map_ref(&tables->gems, file) : NULL;
	uint32_t id;
	size_t len;

	if (!gem)
		return 0;
	if (!*gem) {
		name = scry_gem_name(path, &len);
		if (!scry_intern_put(&tables->names, name, len, &id))
			*gem = id;
	}
	return (uint32_t)*gem;
}

static const char *text_of(const struct scry_object_row *row, uint32_t id)
{
	const char *text = id ? scry_intern_get(row->names, id, NULL) : NULL;

	return text ? text : "";
}

/* By its path as it is shown, or the whole. */
static bool is_grepped(const struct scry_object_row *row, struct wanted *wanted)
{
	struct scry_cell class = scry_object_class(row);
	bool is = false;

	for (int is_whole = 0; is_whole < 2 && !is; is_whole++) {
		scry_buf_clear(&wanted->line);
		put_place(row, true, is_whole, &wanted->line);
		scry_buf_append(&wanted->line, "\n", 1);
		scry_buf_append(&wanted->line, class.bytes, class.length);
		is = scry_grep_matches_row(&wanted->grep, &wanted->line);
	}
	return is;
}

/* What --filter looks at: SCRY_FILTER_OBJECTS. */
static int fits(void *arg, const struct scry_row_term *term)
{
	const struct scry_object_row *row = arg;
	const struct {
		const char *key;
		uint32_t text;
	} keys[] = {
		{"file", row->line ? row->file : 0},
		{"class", row->class},
		{"method", row->method},
		{"gem", row->line ? row->gem : 0},
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (scry_row_term_is(term, keys[i].key))
			return scry_row_term_fits(term, text_of(row, keys[i].text));
	return -1;
}

/* False, and counted, when --grep or --filter leave the row out. */
static bool is_wanted(struct scry_object_list *list, const struct scry_object_row *row,
		      struct wanted *wanted)
{
	if (!is_grepped(row, wanted)) {
		list->grepped += row->counts.allocated;
		list->left_out_live += row->counts.live;
		return false;
	}
	if (!scry_row_filter_matches(&wanted->filter, fits, (void *)row)) {
		list->filtered += row->counts.allocated;
		list->left_out_live += row->counts.live;
		return false;
	}
	return true;
}

/* Forgets what is summed over. A line of 1 then means: some line; 0 still means: no Ruby frame. */
static void widen(const struct scry_object_list *list, struct scry_object_row *row)
{
	int by = list->opts->by;

	if (!list->keeps_pids)
		row->pid = 0;
	if (!list->opts->stacks)
		row->stack = 0;
	if (!row->line)
		row->file = row->gem = 0;
	if (by == SCRY_VIEW_BY_LINE) {
		if (!list->keeps_methods)
			row->method = 0;
		return;
	}
	if (by != SCRY_VIEW_BY_CLASS) {
		row->class = row->is_internal = 0;
		row->line = row->line ? 1 : 0;
	}
	if (by != SCRY_VIEW_BY_METHOD)
		row->method = 0;
	if (by == SCRY_VIEW_BY_CLASS)
		row->line = row->is_lost = row->gem = 0;
	if (by == SCRY_VIEW_BY_CLASS || by == SCRY_VIEW_BY_GEM)
		row->file = 0;
}

static struct scry_object_row row_of(struct scry_object_list *list, struct scry_reader *reader,
				     const struct scry_site *site)
{
	struct scry_object_tables *tables = list->tables;
	const struct scry_ev_site *place = &site->place;
	struct scry_object_row row = {
		.names = &tables->names,
		.pid = place->pid,
		.file = scry_name_id(&tables->names, reader, place->file_str),
		.line = place->line,
		.class = scry_name_id(&tables->names, reader, place->class_str),
		.method = scry_name_id(&tables->names, reader, place->method_str),
		.stack = scry_frames_find(&tables->frames, place->stack),
		.is_lost = !place->line && place->flags & SCRY_SITE_UNNAMED,
		.is_internal = place->flags & SCRY_SITE_INTERNAL,
		.counts = scry_object_counts_of(&site->counts),
	};

	row.gem = gem_of(tables, row.file);
	return row;
}

/* One row per site that is to be listed; all others are summed and left out. */
static void collect(struct scry_object_list *list, struct scry_reader *reader,
		    const struct scry_sites *sites, struct wanted *wanted)
{
	size_t i;

	for (i = 0; i < sites->count; i++) {
		const struct scry_site *site = &sites->rows[i];
		struct scry_object_row row;

		if (!site->counts.allocated || (list->is_one && site->place.pid != list->only_pid))
			continue;
		row = row_of(list, reader, site);
		scry_object_counts_add(&list->all, &row.counts);
		list->freed += site->counts.freed;
		list->unfollowed += site->counts.unfollowed;
		if (row.is_internal)
			list->internal += row.counts.allocated;
		if (row.is_internal && !list->opts->internal)
			continue;
		if (site->place.flags & SCRY_SITE_UNNAMED)
			list->unnamed += row.counts.allocated;
		if (!is_wanted(list, &row, wanted))
			continue;
		list->has_stacks |= row.stack != 0;
		widen(list, &row);
		list->rows[list->count++] = row;
	}
}

void scry_object_list_settle(struct scry_object_list *list, bool sums_pids)
{
	size_t i, kept = 0;

	for (i = 0; sums_pids && i < list->count; i++)
		list->rows[i].pid = 0;
	list->count = scry_object_rows_merge(list->rows, list->count);
	list->has_slots = list->has_sizes = false;
	for (i = 0; i < list->count; i++) {
		const struct scry_object_row *row = &list->rows[i];

		if (list->opts->live && !row->counts.old_live) {
			list->died += row->counts.allocated;
			list->left_out_live += row->counts.live;
			continue;
		}
		list->has_slots |= row->counts.is_slots;
		list->has_sizes |= !row->counts.is_slots;
		list->rows[kept++] = *row;
	}
	list->count = kept;
}

static int read_events(struct scry_object_list *list, struct scry_reader *reader,
		       struct scry_sites *sites)
{
	const struct scry_event *event;
	int got;

	while ((got = scry_reader_next(reader, &event)) > 0) {
		int err = list->is_nothing ? 0 : scry_sites_event(sites, reader, event);

		if (err)
			return err;
		scry_data_quality_event(&list->quality, event);
		if (event->type == SCRY_EVENT_STACK)
			scry_frames_event(&list->tables->frames, &list->tables->names, reader,
					  (const void *)(event + 1));
	}
	if (got < 0)
		return got;
	scry_sites_close(sites);
	scry_data_quality_close(&list->quality);
	list->quality.errors += sites->dropped;
	list->events = sites->events;
	list->frees_older =
		list->quality.has_totals ? list->quality.frees_older : sites->frees_older;
	if (sites->slice && !sites->has_final && !sites->until_ns)
		list->slice_end_ns = sites->slice_end_ns;
	return 0;
}

static int read_rows(struct scry_object_list *list, struct scry_reader *reader,
		     struct wanted *wanted)
{
	struct scry_sites sites;
	int err = scry_sites_init(&sites);

	if (err)
		return err;
	sites.until_ns = list->until_ns;
	err = read_events(list, reader, &sites);
	if (!err) {
		list->rows = calloc(sites.count, sizeof(*list->rows));
		if (!list->rows)
			err = scry_no_memory("%zu rows", sites.count);
	}
	if (!err) {
		collect(list, reader, &sites, wanted);
		list->count = scry_object_rows_merge(list->rows, list->count);
	}
	scry_sites_done(&sites);
	return err;
}

int scry_object_list_read(struct scry_object_list *list, struct scry_reader *reader)
{
	struct wanted wanted = {0};
	int err = scry_grep_init(&wanted.grep, list->opts->grep);

	scry_data_quality_init(&list->quality, reader);
	scry_frames_begin(&list->tables->frames);
	if (!err)
		err = scry_row_filter_init(&wanted.filter, &list->opts->filter);
	if (!err)
		err = read_rows(list, reader, &wanted);
	scry_grep_done(&wanted.grep);
	scry_buf_done(&wanted.line);
	return err;
}

void scry_object_list_done(struct scry_object_list *list)
{
	free(list->rows);
	list->rows = NULL;
	list->count = 0;
}
