/*
 * See gvl_diff.h.
 *
 * How much of a change may be chance: by the turns of rows, scry_gvl_turns, not their samples.
 */
#include "view/gvl_diff.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "base/vector.h"
#include "view/gvl.h"
#include "view/gvl_chance.h"
#include "view/table.h"
#include "view/verdict.h"

#define ROWS_MAX (1u << 20)
#define SURE 3.0	/* standard deviations of what is counted at random */
#define LEAST_PART 0.05 /* of the greater one: less is not a change that a reader looks for */
#define LEAST_NS 100000 /* a second: less is not felt */

struct part { /* of one recording */
	uint64_t lost_ns, turns, waits;
};

struct pair {
	uint32_t text;
	struct part of[2];
};

struct table { /* by text */
	struct scry_intern texts;
	struct pair *pairs;
	size_t room, changed; /* changed: they come first */
};

struct diff {
	struct scry_gvl_view v[2];
	double seconds[2];
	struct table rows, threads;
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
};

static struct part *part_of(struct table *t, const struct scry_buf *text, int side)
{
	const uint32_t count = t->texts.count;
	uint32_t id = 0;

	if (scry_vector_reserve(&t->pairs, count, &t->room) ||
	    scry_intern_put(&t->texts, scry_buf_str(text), text->len, &id) < 0)
		return NULL;
	if (t->texts.count != count)
		t->pairs[count] = (struct pair){.text = id};
	return &t->pairs[id - 1].of[side];
}

/* Without its tid, which another run has not; those without a name are one. */
static void put_thread(const struct scry_gvl_view *v, const struct scry_ev_gvl_thread *t,
		       struct scry_buf *b)
{
	size_t size = 0;
	const char *name = scry_reader_string(v->reader, t->name_str, &size);

	scry_buf_clear(b);
	if (name && size)
		scry_buf_append(b, name, size);
	else
		scry_buf_printf(b, "[no name]");
}

static int add_threads(struct diff *d, int side, struct scry_buf *text)
{
	const struct scry_gvl_view *v = &d->v[side];
	struct part *row;

	for (uint32_t i = 0; i < v->thread_count; i++) {
		const struct scry_ev_gvl_thread *t = &v->threads[i];

		put_thread(v, t, text);
		row = part_of(&d->threads, text, side);
		if (!row)
			return -ENOMEM;
		row->waits += t->waits;
		row->turns += scry_gvl_waited_ns(t) / SCRY_GVL_SLICE_NS + t->waits;
		row->lost_ns += scry_gvl_waited_ns(t);
		if (d->opts->by != SCRY_VIEW_BY_HOLDER)
			continue;
		row = part_of(&d->rows, text, side);
		if (!row)
			return -ENOMEM;
		row->lost_ns += t->lost_ns;
		row->turns += t->lost_ns / SCRY_GVL_SLICE_NS + t->takes;
	}
	return 0;
}

static int add_lines(struct diff *d, int side, struct scry_buf *text)
{
	const struct scry_gvl_view *v = &d->v[side];
	const uint64_t takes = scry_gvl_all_turns(v, &v->held);
	struct part *row;

	for (uint32_t i = 0; i < v->held.count; i++) {
		scry_buf_clear(text);
		scry_gvl_put_row(v, &v->held.rows[i], text);
		row = part_of(&d->rows, text, side);
		if (!row)
			return -ENOMEM;
		row->lost_ns += v->held.rows[i].lost_ns;
		row->turns += scry_gvl_turns(&v->held, &v->held.rows[i], takes);
	}
	return 0;
}

static int add_side(struct diff *d, int side)
{
	struct scry_buf text = {0};
	int r = add_threads(d, side, &text);

	if (r == 0 && d->opts->by != SCRY_VIEW_BY_HOLDER && d->opts->by != SCRY_VIEW_BY_THREAD)
		r = add_lines(d, side, &text);
	scry_buf_done(&text);
	return r < 0 ? scry_no_memory("comparing what was lost") : 0;
}

/* Seconds for each second. */
static double rate(const struct diff *d, const struct pair *p, int side)
{
	return (double)p->of[side].lost_ns / 1e9 / d->seconds[side];
}

static double change(const struct diff *d, const struct pair *p)
{
	return rate(d, p, 1) - rate(d, p, 0);
}

static bool is_change(const struct diff *d, const struct pair *p)
{
	const double a = rate(d, p, 0), b = rate(d, p, 1), most = a > b ? a : b, by = fabs(b - a);
	double variance = 0;

	for (int i = 0; i < 2; i++) {
		/* a side that has none is as unsure as one turn of the other's length */
		const struct part *of = &p->of[p->of[i].lost_ns ? i : !i];
		const double turns = of->turns ? (double)of->turns : 1,
			     turn = (double)of->lost_ns / 1e9 / turns;

		variance +=
			(of == &p->of[i] ? turns : 1) * turn * turn / d->seconds[i] / d->seconds[i];
	}
	return by > SURE * sqrt(variance) && by > LEAST_PART * most && by > LEAST_NS / 1e9;
}

static const struct diff *sorting;

static int by_change(const void *left, const void *right)
{
	const double a = fabs(change(sorting, left)), b = fabs(change(sorting, right));

	return a < b ? 1 : a > b ? -1 : 0;
}

static void sort(const struct diff *d, struct table *t)
{
	for (size_t i = 0; i < t->texts.count; i++) {
		const struct pair p = t->pairs[i];

		if (!is_change(d, &p))
			continue;
		t->pairs[i] = t->pairs[t->changed];
		t->pairs[t->changed++] = p;
	}
	sorting = d;
	if (t->changed)
		qsort(t->pairs, t->changed, sizeof(*t->pairs), by_change);
}

/* ---- in words ---- */

static void put_ms(struct scry_buf *b, double seconds)
{
	scry_buf_printf(b, "%.1f", seconds * 1e3);
}

static struct pair whole(const struct diff *d)
{
	struct pair all = {0};

	for (int i = 0; i < 2; i++)
		for (uint32_t k = 0; k < d->v[i].thread_count; k++) {
			const struct scry_ev_gvl_thread *t = &d->v[i].threads[k];

			all.of[i].lost_ns += scry_gvl_waited_ns(t);
			all.of[i].waits += t->waits;
			all.of[i].turns += scry_gvl_waited_ns(t) / SCRY_GVL_SLICE_NS + t->waits;
		}
	return all;
}

static void judge(const struct diff *d, const struct pair *all)
{
	struct scry_buf b = {0};

	if (!is_change(d, all)) {
		scry_buf_printf(&b,
				"threads wait as long as before, or what changed may be chance");
	} else {
		scry_buf_printf(&b, "threads wait %s: ", change(d, all) < 0 ? "less" : "longer");
		put_ms(&b, rate(d, all, 0));
		scry_buf_printf(&b, " ms of each second together, then ");
		put_ms(&b, rate(d, all, 1));
		scry_buf_printf(&b, " ms");
	}
	if (d->rows.changed) {
		const struct pair *p = &d->rows.pairs[0];

		scry_buf_printf(&b,
				"; most for %s: ", scry_intern_get(&d->rows.texts, p->text, NULL));
		put_ms(&b, rate(d, p, 0));
		scry_buf_printf(&b, " ms, then ");
		put_ms(&b, rate(d, p, 1));
		scry_buf_printf(&b, " ms");
	}
	scry_verdict_note(d->doc, &b);
	scry_buf_done(&b);
}

static void push_totals(const struct diff *d, const struct pair *all)
{
	const struct scry_gvl_view *v = d->v;
	const struct scry_pair pairs[] = {
		{"watched_before_ns", "seconds were watched", SCRY_CELL_TIME, 0,
		 scry_cell_number(scry_gvl_longest_ns(&v[0]))},
		{"watched_after_ns", "then", SCRY_CELL_TIME, 0,
		 scry_cell_number(scry_gvl_longest_ns(&v[1]))},
		{"contended_before_ns", "in which some thread wanted the GVL", SCRY_CELL_TIME, 0,
		 scry_cell_number(v[0].sum.contended_ns)},
		{"contended_after_ns", "then", SCRY_CELL_TIME, 0,
		 scry_cell_number(v[1].sum.contended_ns)},
		{"waited_before_ns", "waited by all together", SCRY_CELL_TIME, 0,
		 scry_cell_number(all->of[0].lost_ns)},
		{"waited_after_ns", "then", SCRY_CELL_TIME, 0,
		 scry_cell_number(all->of[1].lost_ns)},
		{"waits_before", "waits that ended", SCRY_CELL_COUNT, 0,
		 scry_cell_number(all->of[0].waits)},
		{"waits_after", "then", SCRY_CELL_COUNT, 0, scry_cell_number(all->of[1].waits)},
		{"changed", "rows have changed", SCRY_CELL_COUNT, 0,
		 scry_cell_number(d->rows.changed)},
		{"unchanged", "rows have not, or by no more than may be chance: not listed",
		 SCRY_CELL_COUNT, 0, scry_cell_number(d->rows.texts.count - d->rows.changed)},
	};

	/* by thread the rows are the table of threads */
	d->doc->ops->totals(d->doc, pairs,
			    sizeof(pairs) / sizeof(pairs[0]) -
				    (d->opts->by == SCRY_VIEW_BY_THREAD ? 2 : 0));
}

/* ---- tables ---- */

struct shown { /* a table, and of the row that is printed: */
	const struct diff *d;
	const struct table *t;
	struct scry_doc_value values[2];
};

static struct scry_cell waits_cell(const struct shown *s, const struct pair *p, int side)
{
	return scry_cell_known(p->of[side].waits, s->t == &s->d->threads);
}

static struct scry_cell what_cell(const struct table *t, const struct pair *p)
{
	size_t length = 0;
	const char *what = scry_intern_get(&t->texts, p->text, &length);

	return scry_cell_text(what, length);
}

#define GET(name, ...) SCRY_GET(name, struct pair, struct shown, __VA_ARGS__)

GET(get_before, scry_cell_ms(rate(view->d, row, 0), buf))
GET(get_after, scry_cell_ms(rate(view->d, row, 1), buf))
GET(get_change, scry_cell_ms_change(change(view->d, row), buf))
GET(get_number, scry_cell_double(rate(view->d, row, 0) * 1e9, &view->values[0]))
GET(get_then, scry_cell_double(rate(view->d, row, 1) * 1e9, &view->values[1]))
GET(get_waits, waits_cell(view, row, 0))
GET(get_waits_then, waits_cell(view, row, 1))
GET(get_what, what_cell(view->t, row))

static void push_table(struct diff *d, const struct table *t, const char *title)
{
	const bool has_waits = t == &d->threads;
	const struct scry_column columns[] = {
		{has_waits ? "waited ms/s" : "others lost ms/s", NULL, SCRY_CELL_TEXT, get_before,
		 0},
		{"then", NULL, SCRY_CELL_TEXT, get_after, 0},
		{"change", NULL, SCRY_CELL_TEXT, get_change, 0},
		{NULL, "before_ns_per_s", SCRY_CELL_VALUE, get_number, 0},
		{NULL, "after_ns_per_s", SCRY_CELL_VALUE, get_then, 0},
		{has_waits ? "waits" : NULL, "waits_before", SCRY_CELL_COUNT, get_waits, 0},
		{has_waits ? "then" : NULL, "waits_after", SCRY_CELL_COUNT, get_waits_then, 0},
		{has_waits ? "thread" : "while the GVL was held", "what", SCRY_CELL_TEXT, get_what,
		 0},
	};
	struct shown shown = {d, t, {{0}}};

	if (!t->changed && !d->doc->is_data)
		return;
	d->doc->title = title;
	scry_table_push(&(struct scry_table){SCRY_COLUMNS(columns), SCRY_ROWS(t->pairs, t->changed),
					     .view = &shown, .order = by_change,
					     .top = scry_view_top(d->opts, d->doc)},
			d->doc);
	d->doc->title = NULL;
}

static void push(struct diff *d)
{
	const struct pair all = whole(d);

	sort(d, &d->rows);
	sort(d, &d->threads);
	for (int i = 0; i < 2; i++)
		d->doc->ops->quality(d->doc, &d->v[i].quality);
	judge(d, &all);
	for (int i = 0; i < 2; i++)
		scry_data_quality_notes(&d->v[i].quality, d->doc);
	push_totals(d, &all);
	if (d->opts->by != SCRY_VIEW_BY_THREAD)
		push_table(d, &d->rows, NULL);
	d->doc->section = "threads";
	push_table(d, &d->threads, "threads that waited");
	d->doc->section = NULL;
}

static int read_side(struct diff *d, const struct scry_diff_side *side, int at)
{
	struct scry_gvl_view *v = &d->v[at];
	int r = scry_gvl_view_read(v, side->reader, d->opts, d->doc);

	v->quality.label = side->name;
	v->quality.noun = "critical sections";
	v->quality.shown = v->sum.ends;
	d->seconds[at] = (double)scry_gvl_longest_ns(v) / 1e9;
	if (r == 0 && d->seconds[at] <= 0)
		return scry_fail(-EINVAL, "'%s' knows nothing of the GVL%s",
				 side->name ? side->name : "the recording",
				 v->quality.has_totals ? "" : ": it ends before its watch did");
	return r;
}

int scry_view_gvl_diff(const struct scry_diff_side sides[2], const struct scry_view_opts *opts,
		       struct scry_doc *doc)
{
	struct diff d = {.opts = opts, .doc = doc};
	int r = 0;

	scry_intern_init(&d.rows.texts, ROWS_MAX, 256u << 20);
	scry_intern_init(&d.threads.texts, ROWS_MAX, 256u << 20);
	for (int i = 0; i < 2 && r == 0; i++)
		r = read_side(&d, &sides[i], i);
	for (int i = 0; i < 2 && r == 0; i++)
		r = add_side(&d, i);
	if (r == 0)
		push(&d);
	for (int i = 0; i < 2; i++)
		scry_gvl_view_done(&d.v[i]);
	scry_intern_done(&d.rows.texts);
	scry_intern_done(&d.threads.texts);
	free(d.rows.pairs);
	free(d.threads.pairs);
	return r;
}
