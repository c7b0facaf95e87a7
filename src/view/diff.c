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

static int compare_growth(const void *left, const void *right, void *frames)
{
	const struct diff_row *a = left, *b = right;

	if (a->growth != b->growth)
		return a->growth < b->growth ? 1 : -1;
	if (a->allocated_growth != b->allocated_growth)
		return a->allocated_growth < b->allocated_growth ? 1 : -1;
	return scry_object_texts_compare(frames, &a->key, &b->key);
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
		return scry_no_memory("%zu rows", all);
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
	qsort_r(d->rows, d->count, sizeof(*d->rows), compare_growth, &d->tables.frames);
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

static bool has_ages(const struct diff *d)
{
	return d->to.quality.gcs > 0 || d->to.all.max_age > 0;
}

static bool has_slots(const struct diff *d)
{
	return d->from.all.live_unsized || d->to.all.live_unsized;
}

/* A line of the table: of a row, or for people one of its callers below it. */
struct line {
	const struct diff_row *of;
	uint32_t caller; /* frame; 0: the row itself */
};

static struct scry_cell blank(void)
{
	return (struct scry_cell){.is_blank = true};
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

static struct scry_cell place_cell(const struct diff *d, const struct line *line,
				   struct scry_buf *buf)
{
	const struct scry_object_row *key = &line->of->key;
	const int by = d->opts->by;

	if (line->caller) {
		scry_buf_printf(buf, "  from ");
		scry_object_frame_text(&d->tables, line->caller, buf);
	} else {
		scry_object_place(
			key, by != SCRY_VIEW_BY_CLASS && (by == SCRY_VIEW_BY_LINE || !key->line),
			buf);
	}
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

/* What comes before the place: the method, or the gem. */
static struct scry_cell shown_method(const struct diff *d, const struct line *line,
				     struct scry_buf *buf)
{
	const struct scry_object_row *key = &line->of->key;
	const bool is_by_gem = d->opts->by == SCRY_VIEW_BY_GEM;
	const struct scry_cell cell =
		scry_name_text(key->names, is_by_gem ? key->gem : key->method);

	return is_by_gem && cell.is_unknown ? place_cell(d, line, buf) : cell;
}

#define GET(name, ...) \
	SCRY_GET(name, struct line, struct diff, row->caller ? blank() : (__VA_ARGS__))
#define KEY row->of->key
#define NAME(name) GET(get_##name, scry_name_text(KEY.names, KEY.name))
#define FROM(member) GET(get_##member##_from, scry_cell_number(row->of->from.member))
#define TO(member) GET(get_##member##_to, scry_cell_number(KEY.counts.member))
#define GROWTH(member) /* read as int64_t */ \
	GET(get_##member##_growth, scry_cell_number(KEY.counts.member - row->of->from.member))

NAME(class)
NAME(method)
NAME(gem)
FROM(live)
FROM(live_bytes)
FROM(live_unsized)
TO(live)
TO(live_bytes)
TO(live_unsized)
GROWTH(live)
GROWTH(live_bytes)
GROWTH(allocated)
GROWTH(bytes)
GET(get_file, KEY.line ? scry_name_text(KEY.names, KEY.file) : scry_cell_unknown())
GET(get_line, scry_cell_known(KEY.line, view->opts->by == SCRY_VIEW_BY_LINE))
GET(get_is_internal, scry_cell_number(KEY.is_internal))
GET(get_error, error_cell(row->of))
GET(get_age, scry_cell_known(KEY.counts.max_age, has_ages(view) && KEY.counts.live))
GET(get_is_slots, scry_cell_number(row->of->from.is_slots || KEY.counts.is_slots))
GET(get_frames, scry_object_frames(&view->tables, &KEY, &view->frames))
GET(get_shown_method, shown_method(view, row, buf))
GET(get_shown_class, scry_object_class(&KEY))
SCRY_GET(get_place, struct line, struct diff, place_cell(view, row, buf))

/* What people see depends on what is asked and on what is known. */
static void push_table(struct diff *d, size_t top)
{
	const int by = d->opts->by;
	const bool live = d->opts->live, slots = has_slots(d),
		   is_scaled = d->from.all.is_scaled || d->to.all.is_scaled;
	const char *method = by == SCRY_VIEW_BY_METHOD ? "method"
			     : by == SCRY_VIEW_BY_GEM  ? "gem"
						       : NULL;
	const char *place = by == SCRY_VIEW_BY_LINE				   ? "file:line"
			    : by == SCRY_VIEW_BY_FILE || by == SCRY_VIEW_BY_METHOD ? "file"
										   : NULL;
	const char *class = by == SCRY_VIEW_BY_LINE || by == SCRY_VIEW_BY_CLASS ? "class" : NULL;
	const struct scry_column columns[] = {
		{NULL, "file", SCRY_CELL_TEXT, get_file, 0},
		{NULL, "line", SCRY_CELL_NUMBER, get_line, 0},
		{NULL, "class", SCRY_CELL_TEXT, get_class, 0},
		{NULL, "method", SCRY_CELL_TEXT, get_method, 0},
		{NULL, "gem", SCRY_CELL_TEXT, get_gem, 0},
		{NULL, "is_internal", SCRY_CELL_BOOL, get_is_internal, 0},
		{live ? "survived" : "live", live ? "old_live_growth" : "live_growth",
		 SCRY_CELL_DELTA, get_live_growth, 0},
		{is_scaled ? "+-" : NULL, live ? "old_live_growth_error" : "live_growth_error",
		 SCRY_CELL_COUNT, get_error, 0},
		{live	 ? slots ? "survived bytes*" : "survived bytes"
		 : slots ? "live bytes*"
			 : "live bytes",
		 live ? "old_live_bytes_growth" : "live_bytes_growth", SCRY_CELL_DELTA,
		 get_live_bytes_growth, 0},
		{"allocated", "allocated_growth", SCRY_CELL_DELTA, get_allocated_growth, 0},
		{NULL, "bytes_growth", SCRY_CELL_DELTA, get_bytes_growth, 0},
		{NULL, live ? "old_live_from" : "live_from", SCRY_CELL_COUNT, get_live_from, 0},
		{live ? "survived then" : "live then", live ? "old_live_to" : "live_to",
		 SCRY_CELL_COUNT, get_live_to, 0},
		{NULL, live ? "old_live_bytes_from" : "live_bytes_from", SCRY_CELL_COUNT,
		 get_live_bytes_from, 0},
		{NULL, live ? "old_live_bytes_to" : "live_bytes_to", SCRY_CELL_COUNT,
		 get_live_bytes_to, 0},
		{has_ages(d) ? "GC age" : NULL, "max_age_gcs", SCRY_CELL_COUNT, get_age, 0},
		{NULL, "is_slots_only", SCRY_CELL_BOOL, get_is_slots, 0},
		{NULL, "live_unsized_from", SCRY_CELL_COUNT, get_live_unsized_from, 0},
		{slots ? "unsized then" : NULL, "live_unsized_to", SCRY_CELL_COUNT,
		 get_live_unsized_to, 0},
		{NULL, d->opts->stacks ? "frames" : NULL, SCRY_CELL_FRAMES, get_frames, 0},
		{method, NULL, SCRY_CELL_TEXT, get_shown_method, SCRY_COLUMN_ELASTIC},
		{place, NULL, SCRY_CELL_TEXT, get_place, SCRY_COLUMN_ELASTIC},
		{class, NULL, SCRY_CELL_TEXT, get_shown_class, SCRY_COLUMN_ELASTIC},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns), .view = d};

	scry_doc_table(d->doc, columns, table.column_count);
	for (size_t i = 0; i < top; i++) {
		struct line line = {.of = &d->rows[i]};

		scry_table_push_row(&table, &line, d->doc);
		line.caller = d->opts->stacks && !d->doc->is_data ? line.of->key.stack : 0;
		while (line.caller) { /* innermost first */
			scry_table_push_row(&table, &line, d->doc);
			line.caller = scry_frames_get(&d->tables.frames, line.caller).parent;
		}
	}
}
#undef GET
#undef KEY
#undef NAME
#undef FROM
#undef TO
#undef GROWTH

static struct scry_cell growth_cell(uint64_t from, uint64_t to)
{
	return scry_cell_number(to - from); /* read as int64_t */
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
				"bytes%s are too low: of unsized objects only the heap slot is "
				"included, or not all memory outside it",
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
		scry_buf_printf(&buf, "no row matches --grep and --filter");
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
	uint64_t top = scry_view_top(d->opts, d->doc);

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
	push_table(d, top);
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
