/*
 * The objects view: which line makes objects of which class, and how many of them live.
 *
 * Sites are sorted by what the rows are grouped by, neighbours with the same key are summed, and
 * the sums are sorted again by the column asked for: two sorts, no second hash. Bounded by
 * scry_sites.
 */
#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"
#include "view/grep.h"
#include "view/honesty.h"
#include "view/object_rows.h"
#include "view/sites.h"
#include "view/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char no_frame[] = "(no Ruby frame)";
static const char unknown[] = "(unknown)";

#define PROCESSES_SHOWN 6 /* tables of their own, for people */
#define PROCESS_ROWS 8

struct sums {
	uint64_t allocated, bytes, live, freed, frees_older, internal, unnamed, filtered;
};

struct objects {
	struct scry_reader *reader;
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	struct scry_honesty honesty;
	struct scry_sites sites;
	struct scry_grep grep;
	struct sums sums;
	struct scry_object_row *rows;
	size_t row_count;
	bool is_one; /* only the sites of this process */
	uint32_t only_pid;
};

static void put_place(const struct scry_object_row *row, bool with_line, struct scry_buf *buf)
{
	size_t len = 0;
	const char *file = scry_reader_string(row->reader, row->file_str, &len);

	if (!row->line && with_line && !row->is_lost)
		scry_buf_append(buf, no_frame, sizeof(no_frame) - 1);
	else if (!file)
		scry_buf_append(buf, unknown, sizeof(unknown) - 1);
	else
		scry_buf_append(buf, file, len);
	if (row->line && with_line)
		scry_buf_printf(buf, ":%u", row->line);
}

static bool is_wanted(const struct objects *o, const struct scry_object_row *row,
		      struct scry_buf *buf)
{
	size_t len;
	const char *name = scry_reader_string(row->reader, row->class_str, &len);

	if (!o->grep.text)
		return true;
	scry_buf_clear(buf);
	put_place(row, true, buf);
	scry_buf_printf(buf, " ");
	scry_buf_append(buf, name ? name : unknown, name ? len : sizeof(unknown) - 1);
	return scry_grep_matches(&o->grep, scry_buf_str(buf));
}

/* Forgets what is summed over: for people processes and methods too, and what `by` does not name.
 */
static void widen(const struct objects *o, struct scry_object_row *row)
{
	if (!o->doc->is_data)
		row->pid = row->method_str = 0;
	if (!row->line)
		row->file_str = 0;
	if (o->opts->by == SCRY_VIEW_BY_LINE)
		return;
	row->method_str = 0;
	if (o->opts->by == SCRY_VIEW_BY_CLASS) {
		row->file_str = row->line = row->is_lost = 0;
	} else {
		row->class_str = 0;
		row->line = row->line ? 1 : 0; /* 0 still means: no Ruby frame */
	}
}

/* One row per site that is to be listed; all others are summed and left out. */
static void collect(struct objects *o)
{
	struct scry_buf buf = {0};
	size_t i;

	for (i = 0; i < o->sites.count; i++) {
		const struct scry_site *site = &o->sites.rows[i];
		uint64_t live = site->allocated - site->freed;
		struct scry_object_row row = {
			.reader = o->reader,
			.pid = site->place.pid,
			.file_str = site->place.file_str,
			.line = site->place.line,
			.class_str = site->place.class_str,
			.method_str = site->place.method_str,
			.is_lost = !site->place.line && site->place.flags & SCRY_SITE_UNNAMED,
			.allocated = site->allocated,
			.bytes = site->bytes,
			.live = live,
			.live_bytes = scry_live_bytes(site->bytes, live, site->allocated),
		};

		if (!site->allocated || (o->is_one && site->place.pid != o->only_pid))
			continue;
		o->sums.allocated += site->allocated;
		o->sums.bytes += site->bytes;
		o->sums.live += live;
		o->sums.freed += site->freed;
		if (site->place.flags & SCRY_SITE_INTERNAL) {
			o->sums.internal += site->allocated;
			continue;
		}
		if (site->place.flags & SCRY_SITE_UNNAMED)
			o->sums.unnamed += site->allocated;
		if (!is_wanted(o, &row, &buf)) {
			o->sums.filtered += site->allocated;
			continue;
		}
		widen(o, &row);
		o->rows[o->row_count++] = row;
	}
	scry_buf_done(&buf);
}

static void push_totals(const struct objects *o)
{
	const struct sums *s = &o->sums;
	const struct scry_pair pairs[] = {
		{"allocated", "objects allocated", SCRY_CELL_COUNT, 0, {.number = s->allocated}},
		{"bytes", "bytes allocated", SCRY_CELL_COUNT, 0, {.number = s->bytes}},
		{"live", "still live at the end", SCRY_CELL_COUNT, 0, {.number = s->live}},
		{"freed", "freed", SCRY_CELL_COUNT, 0, {.number = s->freed}},
		{"frees_older",
		 "freed that were made before the watch",
		 SCRY_CELL_COUNT,
		 0,
		 {.number = s->frees_older,
		  .is_unknown = (!o->honesty.has_totals && !s->frees_older) || o->is_one}},
		{"internal",
		 "internal to the VM, not listed",
		 SCRY_CELL_COUNT,
		 0,
		 {.number = s->internal}},
		{"unnamed",
		 "unnamed: gone before they could be named",
		 SCRY_CELL_COUNT,
		 0,
		 {.number = s->unnamed}},
	};

	o->doc->ops->totals(o->doc, pairs, sizeof(pairs) / sizeof(pairs[0]));
}

static struct scry_cell string_cell(const struct objects *o, uint32_t id)
{
	struct scry_cell cell = {0};

	cell.bytes = scry_reader_string(o->reader, id, &cell.length);
	cell.is_unknown = !cell.bytes;
	return cell;
}

/* One table for people and programs: titles are for the one, keys for the other. */
static const struct scry_column all_columns[] = {
	{NULL, "pid", SCRY_CELL_NUMBER},       {NULL, "file", SCRY_CELL_TEXT},
	{NULL, "line", SCRY_CELL_NUMBER},      {NULL, "class", SCRY_CELL_TEXT},
	{NULL, "method", SCRY_CELL_TEXT},      {"allocated", "allocated", SCRY_CELL_COUNT},
	{"bytes", "bytes", SCRY_CELL_COUNT},   {"live", "live", SCRY_CELL_COUNT},
	{NULL, "live_bytes", SCRY_CELL_COUNT}, {"file:line", NULL, SCRY_CELL_TEXT},
	{"class", NULL, SCRY_CELL_TEXT},
};
#define COLUMNS (sizeof(all_columns) / sizeof(all_columns[0]))
#define COLUMN_PLACE 9
#define COLUMN_CLASS 10

/* Cells in the order of all_columns. */
static void push_row(const struct objects *o, const struct scry_object_row *row,
		     struct scry_buf *place)
{
	struct scry_cell cells[COLUMNS], name = string_cell(o, row->class_str);
	bool by_line = o->opts->by == SCRY_VIEW_BY_LINE;

	scry_buf_clear(place);
	put_place(row, o->opts->by != SCRY_VIEW_BY_CLASS && (by_line || !row->line), place);
	cells[0] = row->pid ? scry_cell_number(row->pid) : scry_cell_unknown();
	cells[1] = row->line ? string_cell(o, row->file_str) : scry_cell_unknown();
	cells[2] = by_line ? scry_cell_number(row->line) : scry_cell_unknown();
	cells[3] = name;
	cells[4] = string_cell(o, row->method_str);
	cells[5] = scry_cell_number(row->allocated);
	cells[6] = scry_cell_number(row->bytes);
	cells[7] = scry_cell_number(row->live);
	cells[8] = scry_cell_number(row->live_bytes);
	cells[9] = scry_cell_text(scry_buf_str(place), place->len);
	cells[10] = name.is_unknown ? scry_cell_text(unknown, sizeof(unknown) - 1) : name;
	o->doc->ops->row(o->doc, cells);
}

static void push_table(const struct objects *o, struct scry_column columns[COLUMNS])
{
	memcpy(columns, all_columns, sizeof(all_columns));
	if (o->opts->by == SCRY_VIEW_BY_CLASS)
		columns[COLUMN_PLACE].title = NULL;
	if (o->opts->by == SCRY_VIEW_BY_FILE) {
		columns[COLUMN_PLACE].title = "file";
		columns[COLUMN_CLASS].title = NULL;
	}
	scry_doc_table(o->doc, columns, COLUMNS);
}

/* An empty table says why. */
static void explain_empty(const struct objects *o)
{
	if (!o->sites.events && !o->honesty.has_totals)
		scry_doc_remark(o->doc, "no counters: scry was ended before it could write them");
	else if (!o->sums.allocated)
		scry_doc_remark(o->doc, "no object was made while watching");
	else if (o->sums.filtered)
		scry_doc_remark(o->doc, "no row contains '%s'", o->opts->grep);
	else
		scry_doc_remark(o->doc, "all objects made were internal to the VM");
}

static void push_left_out(const struct objects *o, size_t shown, uint64_t shown_objects)
{
	struct scry_buf buf = {0};
	uint64_t listed = 0;
	size_t i;

	for (i = 0; i < o->row_count; i++)
		listed += o->rows[i].allocated;
	if (shown < o->row_count) {
		scry_text_count(&buf, o->row_count - shown);
		scry_buf_printf(&buf, " more rows with ");
		scry_text_count(&buf, listed - shown_objects);
		scry_buf_printf(&buf, " objects are not shown; --top 0 shows them");
		scry_doc_remark(o->doc, "%s", scry_buf_str(&buf));
	}
	scry_buf_clear(&buf);
	if (o->sums.filtered && o->row_count) {
		scry_text_count(&buf, o->sums.filtered);
		scry_buf_printf(&buf, " objects are left out by --grep");
		scry_doc_remark(o->doc, "%s", scry_buf_str(&buf));
	}
	scry_buf_done(&buf);
}

struct process {
	uint32_t pid; /* 0: many, summed */
	uint64_t allocated;
};

static int compare_processes(const void *left, const void *right)
{
	const struct process *a = left, *b = right;

	if (a->allocated != b->allocated)
		return a->allocated < b->allocated ? 1 : -1;
	return a->pid < b->pid ? -1 : a->pid > b->pid;
}

static int compare_pids(const void *left, const void *right)
{
	uint32_t a = ((const struct process *)left)->pid, b = ((const struct process *)right)->pid;

	return (a > b) - (a < b);
}

/* One entry a process into *ret (caller frees), biggest first. How many; 0 also without memory. */
static size_t list_processes(const struct objects *o, struct process **ret)
{
	struct process *list = calloc(o->sites.count, sizeof(*list));
	size_t i, kept = 0;

	*ret = list;
	if (!list)
		return 0;
	for (i = 0; i < o->sites.count; i++)
		list[i] = (struct process){o->sites.rows[i].place.pid,
					   o->sites.rows[i].allocated};
	qsort(list, o->sites.count, sizeof(*list), compare_pids);
	for (i = 0; i < o->sites.count; i++) {
		if (!list[i].allocated)
			continue;
		if (kept && list[kept - 1].pid == list[i].pid)
			list[kept - 1].allocated += list[i].allocated;
		else
			list[kept++] = list[i];
	}
	qsort(list, kept, sizeof(*list), compare_processes);
	return kept;
}

static void push_rows(const struct objects *o, size_t count, uint64_t *ret_objects)
{
	struct scry_buf place = {0};

	for (size_t i = 0; i < count; i++) {
		push_row(o, &o->rows[i], &place);
		*ret_objects += o->rows[i].allocated;
	}
	scry_buf_done(&place);
}

static void make_rows(struct objects *o)
{
	o->row_count = 0;
	collect(o);
	o->row_count = scry_object_rows_merge(o->rows, o->row_count);
	scry_object_rows_sort(o->rows, o->row_count, o->opts->sort);
}

/* The biggest rows of one process. Uses the memory of the rows that are printed already. */
static void push_process(const struct objects *all, uint32_t pid, struct scry_buf *title)
{
	struct scry_column columns[COLUMNS];
	struct objects one = *all;
	uint64_t objects = 0;

	one.sums = (struct sums){0};
	one.is_one = true;
	one.only_pid = pid;
	make_rows(&one);
	scry_buf_clear(title);
	if (pid)
		scry_buf_printf(title, "process %u: ", pid);
	else
		scry_buf_printf(title, "other processes, summed: ");
	scry_text_count(title, one.sums.allocated);
	scry_buf_printf(title, " objects, ");
	scry_text_count(title, one.sums.live);
	scry_buf_printf(title, " still live");
	one.doc->title = scry_buf_str(title);
	push_table(&one, columns);
	one.doc->title = NULL;
	push_rows(&one, one.row_count < PROCESS_ROWS ? one.row_count : PROCESS_ROWS, &objects);
}

/* Several were watched: after the sum, a table for each of the biggest. */
static void push_processes(const struct objects *o)
{
	struct scry_buf title = {0};
	struct process *list = NULL;
	size_t count = 0;

	if (!o->doc->is_data && !o->is_one)
		count = list_processes(o, &list);
	for (size_t i = 0; count > 1 && i < count && i < PROCESSES_SHOWN; i++)
		push_process(o, list[i].pid, &title);
	if (count > PROCESSES_SHOWN)
		scry_doc_remark(o->doc,
				"%zu more processes are not shown; scry report FILE --pid N shows "
				"one, --json has all",
				count - PROCESSES_SHOWN);
	scry_buf_done(&title);
	free(list);
}

static void push(struct objects *o)
{
	struct scry_column columns[COLUMNS];
	uint64_t top = o->opts->top, shown_objects = 0;

	if (top == SCRY_VIEW_TOP_DEFAULT)
		top = o->doc->is_data ? 0 : SCRY_VIEW_TOP_ROWS;
	if (!top || top > o->row_count)
		top = o->row_count;
	o->honesty.noun = "objects";
	o->honesty.shown = o->sums.allocated;
	scry_honesty_push(&o->honesty, o->doc);
	push_totals(o);
	push_table(o, columns);
	push_rows(o, top, &shown_objects);
	if (!o->row_count) {
		explain_empty(o);
		return;
	}
	push_left_out(o, top, shown_objects);
	scry_doc_remark(o->doc, "bytes: heap slots only; buffers outside the slot are not counted");
	push_processes(o);
}

static int read_all(struct objects *o)
{
	const struct scry_event *event;
	int got;

	while ((got = scry_reader_next(o->reader, &event)) > 0) {
		int err = scry_sites_event(&o->sites, o->reader, event);

		if (err)
			return err;
		scry_honesty_event(&o->honesty, event);
	}
	if (got < 0)
		return got;
	scry_sites_close(&o->sites);
	scry_honesty_close(&o->honesty);
	o->honesty.errors += o->sites.dropped;
	o->sums.frees_older = o->honesty.frees_older;
	if (!o->honesty.has_totals)
		o->sums.frees_older = o->sites.frees_older;
	return 0;
}

int scry_view_objects(struct scry_reader *reader, const struct scry_view_opts *opts,
		      struct scry_doc *doc)
{
	struct objects o = {
		.reader = reader,
		.opts = opts,
		.doc = doc,
		.is_one = opts->pid != 0,
		.only_pid = (uint32_t)opts->pid,
	};
	int err = scry_grep_init(&o.grep, opts->grep);

	if (err)
		return err;
	scry_honesty_init(&o.honesty, reader);
	err = scry_sites_init(&o.sites);
	if (!err)
		err = read_all(&o);
	if (err)
		goto out;
	o.rows = calloc(o.sites.count, sizeof(*o.rows));
	if (!o.rows) {
		err = scry_fail(-ENOMEM, "no memory for %zu rows", o.sites.count);
		goto out;
	}
	make_rows(&o);
	push(&o);
out:
	free(o.rows);
	scry_sites_done(&o.sites);
	scry_grep_done(&o.grep);
	return err;
}
