/*
 * See malloc_diff.h. Each side is summed and merged to places by itself; a place of both sides has
 * one key: its text. So modules are matched by their names, as a build of another directory has
 * another path; places of one side that look alike are summed.
 */
#include "view/malloc_diff.h"

#include "base/err.h"
#include "base/intern.h"
#include "base/text.h"
#include "view/functions.h"
#include "view/data_quality.h"
#include "view/malloc_places.h"
#include "view/table.h"
#include "view/verdict.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX (2 * SCRY_MALLOC_SUM_CALLERS)
#define KEY_BYTES_MAX (1u << 30)
#define RSS_MIN (1u << 20) /* bytes: a smaller change is any program's */
#define LOST 1000 /* one of so many calls: more missing ones, and a difference may be theirs */

struct figures {
	uint64_t peak_bytes, end_bytes, end_blocks, allocated, bytes, temporary;
};

struct diff_row {
	const struct scry_malloc_caller_sum *caller; /* of the later side that has it */
	const struct scry_malloc_places *places;     /* of that side */
	struct figures at[2];
	int64_t growth; /* of what sorts */
};

struct diff {
	const struct scry_diff_side *sides;
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	struct scry_malloc_sum sums[2];
	struct scry_malloc_places places[2];
	struct scry_data_quality quality[2];
	struct scry_intern keys;
	struct diff_row *rows;
	size_t count, same;
	struct scry_grep grep;
};

static const char *noun(const struct diff *d, uint64_t count)
{
	return scry_malloc_places_noun(&d->places[1], count);
}

static uint64_t figure(const struct diff *d, const struct figures *f)
{
	switch (d->opts->sort) {
	case SCRY_VIEW_SORT_ALLOCATED:
		return f->allocated;
	case SCRY_VIEW_SORT_BYTES:
		return f->bytes;
	case SCRY_VIEW_SORT_LIVE:
		return f->end_blocks;
	case SCRY_VIEW_SORT_LIVE_BYTES:
		return f->end_bytes;
	case SCRY_VIEW_SORT_TEMPORARY:
		return f->temporary;
	default:
		return f->peak_bytes;
	}
}

static void add(struct figures *sum, const struct scry_malloc_caller_sum *c)
{
	sum->peak_bytes += c->peak.bytes;
	sum->end_bytes += c->live.bytes;
	sum->end_blocks += c->live.blocks;
	sum->allocated += c->allocated;
	sum->bytes += c->bytes;
	sum->temporary += c->temporary;
}

static struct figures totals_of(const struct scry_malloc_process *p)
{
	return (struct figures){p->peak.bytes, p->live.bytes, p->live.blocks,
				p->allocated,  p->bytes,      p->temporary};
}

static int read_side(struct diff *d, int at)
{
	struct scry_malloc_sum *sum = &d->sums[at];
	struct scry_reader *reader = d->sides[at].reader;
	const struct scry_event *event;
	int err = 0, got = 0;

	sum->reader = reader;
	sum->began_ns = scry_reader_head(reader)->mono_ns;
	scry_data_quality_init(&d->quality[at], reader);
	while (!err && (got = scry_reader_next(reader, &event)) > 0) {
		scry_data_quality_event(&d->quality[at], event);
		err = scry_malloc_sum_event(sum, event);
	}
	if (err || got < 0)
		return err ? err : got;
	scry_data_quality_close(&d->quality[at]);
	scry_malloc_sum_close(sum);
	d->places[at] = (struct scry_malloc_places){
		.process = scry_malloc_sum_main(sum),
		.stacks = &sum->stacks,
		.reader = reader,
		.by = d->opts->stacks ? SCRY_VIEW_BY_STACK : (enum scry_view_by)d->opts->by,
		.has_whole_paths = d->doc->is_data,
		.has_base_names = true};
	if (!d->places[at].process || !d->places[at].process->calls)
		return scry_fail(-EINVAL, "'%s' has no call of malloc",
				 d->sides[at].name ? d->sides[at].name : "the recording");
	d->quality[at].label = d->sides[at].name;
	d->quality[at].noun = "calls";
	d->quality[at].shown = d->places[at].process->calls;
	return scry_malloc_places_merge(&d->places[at]);
}

/* Ids of keys are dense from 1: a row each. */
static int add_side(struct diff *d, int at)
{
	const struct scry_malloc_places *places = &d->places[at];
	struct scry_buf key = {0};
	const char *file;
	uint32_t id;
	int err = 0;

	for (uint32_t i = 0; i < places->process->caller_count && !err; i++) {
		const struct scry_malloc_caller_sum *c = &places->process->callers[i];

		if (!c->allocated)
			continue;
		scry_buf_clear(&key);
		scry_buf_printf(&key, "%d ", c->name.file_str != 0);
		scry_malloc_places_put(places, c, &key);
		file = scry_reader_string(places->reader, c->name.file_str, NULL);
		scry_buf_printf(&key, " %s", file ? file : "");
		err = scry_intern_put(&d->keys, key.data, key.len, &id);
		if (err)
			break;
		d->rows[id - 1].caller = c;
		d->rows[id - 1].places = places;
		add(&d->rows[id - 1].at[at], c);
	}
	scry_buf_done(&key);
	return err ? scry_no_memory("the places") : 0;
}

static int compare(const void *left, const void *right)
{
	const struct diff_row *a = left, *b = right;

	if (a->growth != b->growth)
		return a->growth < b->growth ? 1 : -1;
	return scry_functions_compare(b->at[1].allocated, a->at[1].allocated);
}

static int match(struct diff *d)
{
	const size_t most =
		(size_t)d->places[0].process->caller_count + d->places[1].process->caller_count + 1;
	size_t all;
	int err;

	d->rows = calloc(most, sizeof(*d->rows));
	if (!d->rows)
		return scry_no_memory("%zu rows", most);
	err = add_side(d, 0);
	if (!err)
		err = add_side(d, 1);
	if (err)
		return err;
	all = d->keys.count;
	for (size_t i = 0; i < all; i++) {
		struct diff_row *row = &d->rows[i];

		if (!memcmp(&row->at[0], &row->at[1], sizeof(row->at[0]))) {
			d->same++;
			continue;
		}
		row->growth = (int64_t)(figure(d, &row->at[1]) - figure(d, &row->at[0]));
		d->rows[d->count++] = *row;
	}
	qsort(d->rows, d->count, sizeof(*d->rows), compare);
	return 0;
}

#define GET(name, ...) SCRY_GET(name, struct diff_row, struct diff, __VA_ARGS__)
#define GROWTH(member) GET(get_##member, scry_cell_number(row->at[1].member - row->at[0].member))
GROWTH(peak_bytes)
GROWTH(end_bytes)
GROWTH(allocated)
GROWTH(bytes)
GROWTH(temporary)
#define NAME(row, member) scry_functions_string((row)->places->reader, (row)->caller->name.member)
GET(get_module, NAME(row, module_str))
GET(get_symbol, NAME(row, symbol_str))
GET(get_file, NAME(row, file_str))
GET(get_method, NAME(row, method_str))
GET(get_line, scry_cell_known(row->caller->name.line, row->caller->name.line != 0))

static struct scry_cell get_caller(const void *row_, void *view, struct scry_buf *buf)
{
	const struct diff_row *row = row_;

	(void)view;
	scry_malloc_places_put(row->places, row->caller, buf);
	return scry_cell_buf(buf);
}

#define AT(side, member) SCRY_AT(struct diff_row, at[side].member)
static const struct scry_column all_columns[] = {
	{"bytes at peak", "peak_bytes_growth", SCRY_CELL_DELTA, get_peak_bytes, 0},
	{"then", "peak_bytes_to", SCRY_CELL_COUNT, AT(1, peak_bytes)},
	{"bytes at end", "end_bytes_growth", SCRY_CELL_DELTA, get_end_bytes, 0},
	{"allocated", "allocated_growth", SCRY_CELL_DELTA, get_allocated, 0},
	{"bytes", "bytes_growth", SCRY_CELL_DELTA, get_bytes, 0},
	{"temporary", "temporary_growth", SCRY_CELL_DELTA, get_temporary, 0},
	{NULL, "peak_bytes_from", SCRY_CELL_COUNT, AT(0, peak_bytes)},
	{NULL, "end_bytes_from", SCRY_CELL_COUNT, AT(0, end_bytes)},
	{NULL, "end_bytes_to", SCRY_CELL_COUNT, AT(1, end_bytes)},
	{NULL, "allocated_from", SCRY_CELL_COUNT, AT(0, allocated)},
	{NULL, "allocated_to", SCRY_CELL_COUNT, AT(1, allocated)},
	{NULL, "bytes_from", SCRY_CELL_COUNT, AT(0, bytes)},
	{NULL, "bytes_to", SCRY_CELL_COUNT, AT(1, bytes)},
	{NULL, "temporary_from", SCRY_CELL_COUNT, AT(0, temporary)},
	{NULL, "temporary_to", SCRY_CELL_COUNT, AT(1, temporary)},
	{NULL, "module", SCRY_CELL_TEXT, get_module, 0},
	{NULL, "symbol", SCRY_CELL_SYMBOL, get_symbol, 0},
	{NULL, "file", SCRY_CELL_TEXT, get_file, SCRY_COLUMN_GREP},
	{NULL, "line", SCRY_CELL_NUMBER, get_line, 0},
	{NULL, "method", SCRY_CELL_TEXT, get_method, 0},
	/* the last one: the title is what the places are */
	{"caller", "place", SCRY_CELL_TEXT, get_caller, SCRY_COLUMN_ELASTIC | SCRY_COLUMN_GREP},
};
#define COLUMNS (sizeof(all_columns) / sizeof(all_columns[0]))

static void push_totals(const struct diff *d)
{
	const struct scry_malloc_process *from = d->places[0].process, *to = d->places[1].process;
	const struct figures f = totals_of(from), t = totals_of(to);
	const bool has_rss = from->rss_peak && to->rss_peak;
	const bool has_arenas = from->arenas && to->arenas;
	struct scry_cell arenas_from = scry_cell_known(from->arenas, has_arenas);
	struct scry_cell arenas_to = scry_cell_known(to->arenas, has_arenas);
	char same[64];

	arenas_from.is_blank = arenas_to.is_blank = from->arenas == to->arenas;
#define DELTA(key, unit, number)                                        \
	{                                                               \
		key, unit, SCRY_CELL_DELTA, 0, scry_cell_number(number) \
	}
#define COUNT(key, unit, number)                                        \
	{                                                               \
		key, unit, SCRY_CELL_COUNT, 0, scry_cell_number(number) \
	}
	const struct scry_pair pairs[] = {
		DELTA("peak_bytes_growth", "bytes live at the peak", t.peak_bytes - f.peak_bytes),
		COUNT("peak_bytes_from", "bytes at the peak before", f.peak_bytes),
		COUNT("peak_bytes_to", "bytes at the peak then", t.peak_bytes),
		DELTA("end_bytes_growth", "bytes live at the end", t.end_bytes - f.end_bytes),
		DELTA("allocated_growth", "blocks allocated or resized", t.allocated - f.allocated),
		DELTA("bytes_growth", "bytes asked for", t.bytes - f.bytes),
		DELTA("temporary_growth", "blocks temporary", t.temporary - f.temporary),
		{"rss_peak_bytes_growth", "resident bytes, the most seen", SCRY_CELL_DELTA, 0,
		 scry_cell_known(to->rss_peak - from->rss_peak, has_rss)},
		{"arenas_from", "arenas of malloc before", SCRY_CELL_COUNT, 0, arenas_from},
		{"arenas_to", "arenas of malloc then", SCRY_CELL_COUNT, 0, arenas_to},
		COUNT("rows_same", same, d->same),
	};

	snprintf(same, sizeof(same), "%s %s not changed, not listed", noun(d, d->same),
		 d->same == 1 ? "has" : "have");
	d->doc->ops->totals(d->doc, pairs, sizeof(pairs) / sizeof(pairs[0]));
}

static const char *thing(const struct diff *d)
{
	switch (d->opts->sort) {
	case SCRY_VIEW_SORT_ALLOCATED:
		return "blocks allocated or resized";
	case SCRY_VIEW_SORT_BYTES:
		return "bytes asked for";
	case SCRY_VIEW_SORT_LIVE:
		return "blocks live at the end";
	case SCRY_VIEW_SORT_LIVE_BYTES:
		return "bytes live at the end";
	case SCRY_VIEW_SORT_TEMPORARY:
		return "temporary blocks";
	default:
		return "bytes live at the peak";
	}
}

/* What no caller shows: memory that malloc holds beside their blocks, and its arenas. */
static void put_process(const struct diff *d, struct scry_buf *buf)
{
	const struct scry_malloc_process *from = d->places[0].process, *to = d->places[1].process;
	const bool is_less = to->rss_peak < from->rss_peak;
	const uint64_t most = from->arenas > to->arenas ? from->arenas : to->arenas;
	const uint64_t change =
		is_less ? from->rss_peak - to->rss_peak : to->rss_peak - from->rss_peak;

	if (from->rss_peak && to->rss_peak && change >= RSS_MIN && change > from->rss_peak / 10) {
		scry_buf_printf(buf, "; resident memory at its peak %s", is_less ? "-" : "+");
		scry_text_size(buf, change);
	}
	if (from->arenas && to->arenas && most > 2 &&
	    most >= 2 * (from->arenas + to->arenas - most))
		scry_buf_printf(buf, "; malloc had %llu arena%s, then %llu",
				(unsigned long long)from->arenas, from->arenas == 1 ? "" : "s",
				(unsigned long long)to->arenas);
}

static void judge(struct diff *d, const struct scry_table *table)
{
	const struct figures from = totals_of(d->places[0].process),
			     to = totals_of(d->places[1].process);
	const struct diff_row *most = scry_table_first(table);
	int64_t growth = (int64_t)(figure(d, &to) - figure(d, &from));
	struct scry_buf buf = {0}, process = {0};

	put_process(d, &process);
	if (!d->count && process.len) {
		scry_buf_printf(&buf, "no %s has changed", noun(d, 1));
	} else if (!d->count) {
		scry_buf_printf(&buf, "nothing has changed");
	} else {
		scry_buf_printf(&buf, "%s", growth < 0 ? "-" : growth ? "+" : "");
		scry_text_count(&buf, growth < 0 ? -(uint64_t)growth : (uint64_t)growth);
		scry_buf_printf(&buf, " %s; ", thing(d));
		if (most && most->growth > 0) {
			scry_malloc_places_put(most->places, most->caller, &buf);
			scry_buf_printf(&buf, " grew most, by ");
			scry_text_count(&buf, (uint64_t)most->growth);
		} else {
			scry_buf_printf(&buf, "no %s%s has grown", noun(d, 1),
					d->opts->grep || d->opts->filter.count ? " that is shown"
									       : "");
		}
	}
	scry_buf_append(&buf, process.data, process.len);
	scry_verdict(d->doc, &buf);
	scry_buf_done(&process);
	scry_buf_done(&buf);
}

static void note_losses(struct diff *d)
{
	static const char holes[] = "a recording is cut, or has holes: a difference may come "
				    "from missing calls";
	bool has_holes = false;

	for (int i = 0; i < 2; i++)
		has_holes |= d->quality[i].has_lost_more ||
			     d->quality[i].lost > d->places[i].process->calls / LOST;
	if (has_holes)
		d->doc->ops->note(d->doc, holes, sizeof(holes) - 1);
}

static int push(struct diff *d)
{
	struct scry_column columns[COLUMNS];
	const struct scry_table table = {
		SCRY_COLUMNS(columns),
		SCRY_ROWS(d->rows, d->count),
		.view = d,
		.grep = &d->grep,
		.top = scry_view_top(d->opts, d->doc),
		.noun = noun(d, 2),
		.order = compare,
		.filter = &d->opts->filter,
	};

	int err;

	memcpy(columns, all_columns, sizeof(columns));
	columns[COLUMNS - 1].title = noun(d, 1);
	err = scry_table_check_filter(&table, "malloc_diff");
	if (err)
		return err;
	for (int i = 0; i < 2; i++) /* for programs the later one is "data_quality" */
		d->doc->ops->quality(d->doc, &d->quality[d->doc->is_data ? 1 - i : i]);
	judge(d, &table);
	note_losses(d);
	for (int i = 0; i < 2; i++)
		scry_data_quality_notes(&d->quality[i], d->doc);
	push_totals(d);
	scry_table_push(&table, d->doc);
	return 0;
}

int scry_view_malloc_diff(const struct scry_diff_side sides[2], const struct scry_view_opts *opts,
			  struct scry_doc *doc)
{
	struct diff d = {.sides = sides, .opts = opts, .doc = doc};
	int err = scry_malloc_places_check(opts);

	if (err)
		return err;
	scry_intern_init(&d.keys, KEYS_MAX, KEY_BYTES_MAX);
	err = scry_grep_init(&d.grep, opts->grep);
	for (int i = 0; i < 2 && !err; i++)
		err = read_side(&d, i);
	if (!err)
		err = match(&d);
	if (!err)
		err = push(&d);
	for (int i = 0; i < 2; i++)
		scry_malloc_sum_done(&d.sums[i]);
	scry_grep_done(&d.grep);
	scry_intern_done(&d.keys);
	free(d.rows);
	return err;
}
