/*
 * See stacks_diff.h.
 *
 * How much of a change may be chance: of n samples the square root of n. Samples of one long call
 * are not independent, so a change must be three times that, and a twentieth of the row.
 */
#include "view/stacks_diff.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/intern.h"
#include "base/text.h"
#include "base/vector.h"
#include "view/stacks_rows.h"
#include "view/table.h"
#include "view/verdict.h"

#define ROWS_MAX (1u << 20)
#define SURE 3.0	/* standard deviations of what is counted at random */
#define LEAST_PART 0.05 /* of the greater one */
#define LEAST_S 1e-3	/* of each second */

struct pair {
	uint32_t text;
	struct scry_stacks_row of[2];
};

struct diff {
	struct scry_intern texts;
	struct pair *pairs;
	size_t room, changed; /* changed: they come first */
	struct pair all;      /* sums of own time */
	struct scry_stacks_rows sides[2];
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	struct scry_doc_value values[4]; /* of the row that is printed */
};

struct taker {
	struct diff *diff;
	int side;
};

static int take(void *arg, const struct scry_buf *text, const struct scry_stacks_row *row)
{
	const struct taker *taker = arg;
	const int side = taker->side;
	struct diff *d = taker->diff;
	const uint32_t count = d->texts.count;
	struct scry_stacks_row *of;
	uint32_t id = 0;

	if (scry_vector_reserve(&d->pairs, count, &d->room) ||
	    scry_intern_put(&d->texts, scry_buf_str(text), text->len, &id))
		return -ENOMEM;
	if (d->texts.count != count)
		d->pairs[count] = (struct pair){.text = id};
	of = &d->pairs[id - 1].of[side];
	of->self_ns += row->self_ns;
	of->total_ns += row->total_ns;
	of->samples += row->samples;
	d->all.of[side].self_ns += row->self_ns;
	d->all.of[side].samples += row->samples;
	return 0;
}

/* Seconds of each second that was watched. */
static double rate(const struct diff *d, uint64_t ns, int side)
{
	return (double)ns / (double)d->sides[side].watched_ns;
}

static double change(const struct diff *d, const uint64_t ns[2])
{
	return rate(d, ns[1], 1) - rate(d, ns[0], 0);
}

/* Of a time that `samples` stand for. */
static bool is_change(const struct diff *d, const uint64_t ns[2], const double samples[2])
{
	const double a = rate(d, ns[0], 0), b = rate(d, ns[1], 1);
	const double most = a > b ? a : b, by = fabs(b - a);
	double variance = 0;

	for (int i = 0; i < 2; i++) {
		const double n = samples[i] > 1 ? samples[i] : 1, each = rate(d, ns[i], i) / n;

		variance += n * each * each;
	}
	return by > SURE * sqrt(variance) && by > LEAST_PART * most && by > LEAST_S;
}

/* How much its own time has changed, and that with callees: 0 by no more than chance. */
static void changes(const struct diff *d, const struct pair *p, double ret[2])
{
	const uint64_t self[2] = {p->of[0].self_ns, p->of[1].self_ns};
	const uint64_t total[2] = {p->of[0].total_ns, p->of[1].total_ns};
	const double samples[2] = {(double)p->of[0].samples, (double)p->of[1].samples};
	double with[2]; /* samples that have it anywhere: as many as its part of the time */

	for (int i = 0; i < 2; i++) {
		const struct scry_stacks_row *all = &d->all.of[i];

		with[i] = all->self_ns
				  ? (double)all->samples * (double)total[i] / (double)all->self_ns
				  : 0;
	}
	ret[0] = is_change(d, self, samples) ? fabs(change(d, self)) : 0;
	ret[1] = is_change(d, total, with) ? fabs(change(d, total)) : 0;
}

static const struct diff *sorting;

/* Those whose own time has changed come first. */
static int by_change(const void *left, const void *right)
{
	double a[2], b[2];

	changes(sorting, left, a);
	changes(sorting, right, b);
	if (a[0] != b[0])
		return a[0] < b[0] ? 1 : -1;
	return a[1] < b[1] ? 1 : a[1] > b[1] ? -1 : 0;
}

static void sort(struct diff *d)
{
	for (size_t i = 0; i < d->texts.count; i++) {
		const struct pair p = d->pairs[i];
		double by[2];

		changes(d, &p, by);
		if (by[0] == 0 && by[1] == 0)
			continue;
		d->pairs[i] = d->pairs[d->changed];
		d->pairs[d->changed++] = p;
	}
	sorting = d;
	if (d->changed)
		qsort(d->pairs, d->changed, sizeof(*d->pairs), by_change);
}

/* --- in words --------------------------------------------------------------------------------- */

static void put_ms(struct scry_buf *b, double seconds)
{
	scry_buf_printf(b, "%.1f", seconds * 1e3);
}

static void judge(const struct diff *d)
{
	struct scry_buf b = {0};

	if (!d->changed) {
		scry_buf_printf(&b, "no row has changed by more than the samples may by chance");
	} else {
		const struct pair *p = &d->pairs[0];
		double by[2];

		changes(d, p, by);
		const uint64_t ns[2] = {by[0] > 0 ? p->of[0].self_ns : p->of[0].total_ns,
					by[0] > 0 ? p->of[1].self_ns : p->of[1].total_ns};

		scry_buf_printf(&b, "%s takes %s%s: ", scry_intern_get(&d->texts, p->text, NULL),
				change(d, ns) < 0 ? "less" : "more",
				by[0] > 0 ? "" : " with what it calls");
		put_ms(&b, rate(d, ns[0], 0));
		scry_buf_printf(&b, " ms of each second, then ");
		put_ms(&b, rate(d, ns[1], 1));
		scry_buf_printf(&b, " ms; all rows together: ");
		put_ms(&b, rate(d, d->all.of[0].self_ns, 0));
		scry_buf_printf(&b, " ms, then ");
		put_ms(&b, rate(d, d->all.of[1].self_ns, 1));
		scry_buf_printf(&b, " ms");
	}
	scry_verdict_note(d->doc, &b);
	scry_buf_done(&b);
}

static void note_idle(const struct diff *d)
{
	const uint64_t before = d->sides[0].idle_threads, then = d->sides[1].idle_threads;
	struct scry_buf b = {0};

	if (!before)
		return;
	scry_text_things(&b, before, "idle threads");
	if (then != before)
		scry_buf_printf(&b, ", then %llu,", (unsigned long long)then);
	scry_buf_printf(&b,
			"%s left out, which waited in one place for 99 %% of the time or more in "
			"both recordings; --idle takes them in",
			before == 1 && then == 1 ? " is" : " are");
	d->doc->ops->note(d->doc, scry_buf_str(&b), b.len);
	scry_buf_done(&b);
}

static void push_totals(const struct diff *d)
{
	const size_t unchanged = d->texts.count - d->changed;
	const struct scry_pair pairs[] = {
		{"watched_before_ns", "seconds were watched", SCRY_CELL_TIME, 0,
		 scry_cell_number(d->sides[0].watched_ns)},
		{"watched_after_ns", "then", SCRY_CELL_TIME, 0,
		 scry_cell_number(d->sides[1].watched_ns)},
		{"self_before_ns", "s of all threads", SCRY_CELL_TIME, 0,
		 scry_cell_number(d->all.of[0].self_ns)},
		{"self_after_ns", "then", SCRY_CELL_TIME, 0,
		 scry_cell_number(d->all.of[1].self_ns)},
		{"idle_before", d->sides[0].idle_threads == 1 ? "thread idle" : "threads idle",
		 SCRY_CELL_COUNT, 0, scry_cell_number(d->sides[0].idle_threads)},
		{"idle_after", "then", SCRY_CELL_COUNT, 0,
		 scry_cell_number(d->sides[1].idle_threads)},
		{"changed", d->changed == 1 ? "row has changed" : "rows have changed",
		 SCRY_CELL_COUNT, 0, scry_cell_number(d->changed)},
		{"unchanged",
		 unchanged == 1 ? "row has not, or by no more than may be chance: not listed"
				: "rows have not, or by no more than may be chance: not listed",
		 SCRY_CELL_COUNT, 0, scry_cell_number(unchanged)},
	};

	d->doc->ops->totals(d->doc, pairs, sizeof(pairs) / sizeof(pairs[0]));
}

/* --- the table -------------------------------------------------------------------------------- */

static struct scry_cell what_cell(const struct diff *d, const struct pair *p)
{
	size_t length = 0;
	const char *what = scry_intern_get(&d->texts, p->text, &length);

	return scry_cell_text(what, length);
}

#define GET(name, ...) SCRY_GET(name, struct pair, struct diff, __VA_ARGS__)
#define SELF(side) rate(view, row->of[side].self_ns, side)
#define TOTAL(side) rate(view, row->of[side].total_ns, side)

GET(get_before, scry_cell_ms(SELF(0), buf))
GET(get_after, scry_cell_ms(SELF(1), buf))
GET(get_change, scry_cell_ms_change(SELF(1) - SELF(0), buf))
GET(get_total, scry_cell_ms(TOTAL(0), buf))
GET(get_total_then, scry_cell_ms(TOTAL(1), buf))
GET(get_self_before, scry_cell_double(SELF(0) * 1e9, &view->values[0]))
GET(get_self_after, scry_cell_double(SELF(1) * 1e9, &view->values[1]))
GET(get_total_before, scry_cell_double(TOTAL(0) * 1e9, &view->values[2]))
GET(get_total_after, scry_cell_double(TOTAL(1) * 1e9, &view->values[3]))
GET(get_what, what_cell(view, row))

static void push_table(struct diff *d)
{
	const char *what = d->opts->by == SCRY_VIEW_BY_LINE	? "file:line  method"
			   : d->opts->by == SCRY_VIEW_BY_GEM	? "gem"
			   : d->opts->by == SCRY_VIEW_BY_THREAD ? "thread"
								: "method";
	const struct scry_column columns[] = {
		{"own ms/s", NULL, SCRY_CELL_TEXT, get_before, 0},
		{"then", NULL, SCRY_CELL_TEXT, get_after, 0},
		{"change", NULL, SCRY_CELL_TEXT, get_change, 0},
		{"with callees", NULL, SCRY_CELL_TEXT, get_total, 0},
		{"then", NULL, SCRY_CELL_TEXT, get_total_then, 0},
		{NULL, "self_before_ns_per_s", SCRY_CELL_VALUE, get_self_before, 0},
		{NULL, "self_after_ns_per_s", SCRY_CELL_VALUE, get_self_after, 0},
		{NULL, "total_before_ns_per_s", SCRY_CELL_VALUE, get_total_before, 0},
		{NULL, "total_after_ns_per_s", SCRY_CELL_VALUE, get_total_after, 0},
		{what, "what", SCRY_CELL_TEXT, get_what, SCRY_COLUMN_ELASTIC},
	};

	if (d->changed || d->doc->is_data)
		scry_table_push(&(struct scry_table){SCRY_COLUMNS(columns),
						     SCRY_ROWS(d->pairs, d->changed), .view = d,
						     .order = by_change,
						     .top = scry_view_top(d->opts, d->doc)},
				d->doc);
}

static int read_sides(struct diff *d, const struct scry_diff_side sides[2])
{
	struct taker takers[2] = {{d, 0}, {d, 1}};
	int err;

	for (int i = 0; i < 2; i++)
		d->sides[i] = (struct scry_stacks_rows){
			.take = take, .arg = &takers[i], .reader = sides[i].reader};
	err = scry_stacks_rows(d->opts, d->sides);
	for (int i = 0; i < 2; i++) {
		d->sides[i].quality.label = sides[i].name;
		if (!err && !d->sides[i].watched_ns)
			err = scry_fail(-EINVAL, "'%s' ends before its watch did",
					sides[i].name ? sides[i].name : "the recording");
	}
	return err;
}

int scry_view_stacks_diff(const struct scry_diff_side sides[2], const struct scry_view_opts *opts,
			  struct scry_doc *doc)
{
	struct diff d = {.opts = opts, .doc = doc};
	int err;

	scry_intern_init(&d.texts, ROWS_MAX, 256u << 20);
	err = read_sides(&d, sides);
	if (!err) {
		sort(&d);
		for (int i = 0; i < 2; i++)
			doc->ops->quality(doc, &d.sides[i].quality);
		judge(&d);
		note_idle(&d);
		for (int i = 0; i < 2; i++)
			scry_data_quality_notes(&d.sides[i].quality, doc);
		push_totals(&d);
		push_table(&d);
	}
	scry_intern_done(&d.texts);
	free(d.pairs);
	return err;
}
