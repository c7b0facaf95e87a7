/* See syscall_diff.h. */
#include "view/syscall_diff.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "base/vector.h"
#include "view/syscalls.h"
#include "view/table.h"
#include "view/verdict.h"

#define ROWS_MAX (1u << 20)
#define SURE 4.0	/* standard deviations of what is counted at random */
#define LEAST_PART 0.05 /* of the greater one: less is not a change that a reader looks for */

struct pair {
	uint32_t text;
	uint64_t n[2], ticks[2]; /* n: calls, or ticks where they were sampled */
};

struct diff {
	struct scry_syscall_view v[2];
	struct scry_intern texts;
	struct pair *pairs; /* by text */
	size_t room;
	double per[2]; /* n / per: calls a second, or percent of the time */
	bool is_exact;
	bool is_by_run; /* both watched a program from its start to its end: counts are compared */
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	struct scry_doc_value values[2]; /* of the row that is printed */
};

static int no_memory(void)
{
	return scry_no_memory("comparing system calls");
}

static struct pair *pair_of(struct diff *d, const struct scry_buf *text)
{
	const uint32_t count = d->texts.count;
	uint32_t id = 0;

	if (scry_vector_reserve(&d->pairs, count, &d->room) ||
	    scry_intern_put(&d->texts, scry_buf_str(text), text->len, &id) < 0)
		return NULL;
	if (d->texts.count != count)
		d->pairs[count] = (struct pair){.text = id};
	return &d->pairs[id - 1];
}

static int add_side(struct diff *d, int side)
{
	const struct scry_syscall_view *v = &d->v[side];
	const struct scry_syscall_table *t =
		d->opts->by == SCRY_VIEW_BY_SITE ? &v->places : &v->shown;
	struct scry_buf text = {0};
	int r = 0;

	for (uint32_t i = 0; i < t->keys.count && !r; i++) {
		const struct scry_syscall_row *row = &t->rows[i];
		const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, row);
		struct pair *pair;

		scry_buf_clear(&text);
		scry_buf_printf(&text, "%s", scry_syscall_text(v, site->name_str));
		if (d->opts->by == SCRY_VIEW_BY_SITE) {
			scry_buf_printf(&text, " from ");
			scry_syscall_put_place(v, site, &text);
		}
		pair = pair_of(d, &text);
		if (!pair)
			r = no_memory();
		else {
			pair->n[side] += d->is_exact ? row->calls : row->ticks;
			pair->ticks[side] += row->ticks;
		}
	}
	scry_buf_done(&text);
	return r;
}

static double rate(const struct diff *d, const struct pair *p, int side)
{
	return d->per[side] > 0 ? (double)p->n[side] / d->per[side] : 0;
}

static double change(const struct diff *d, const struct pair *p)
{
	return rate(d, p, 1) - rate(d, p, 0);
}

/* Of whole runs nothing was sampled: each difference is one. Else, is it more than what counting at
 * random gives? */
static bool is_change(const struct diff *d, const struct pair *p)
{
	const double a = rate(d, p, 0), b = rate(d, p, 1), most = a > b ? a : b;
	double spread = 0;

	if (d->is_by_run)
		return p->n[0] != p->n[1];
	for (int i = 0; i < 2; i++)
		if (d->per[i] > 0) /* one more, so that nothing is not sure */
			spread += (double)(p->n[i] + 1) / d->per[i] / d->per[i];
	return fabs(b - a) > SURE * sqrt(spread) && fabs(b - a) > LEAST_PART * most;
}

static const struct diff *sorting;

static int by_change(const void *left, const void *right)
{
	const double a = fabs(change(sorting, left)), b = fabs(change(sorting, right));

	return a < b ? 1 : a > b ? -1 : 0;
}

static void put_rate(const struct diff *d, double r, struct scry_buf *b)
{
	if (d->is_exact)
		scry_text_count(b, (uint64_t)(r + 0.5));
	else
		scry_buf_printf(b, "%.1f", r);
}

static void judge(const struct diff *d, size_t changed)
{
	const char *unit = d->is_by_run	 ? " calls"
			   : d->is_exact ? " calls/s"
					 : " % of the processor time";
	struct scry_buf b = {0};

	if (!changed) {
		scry_buf_printf(&b, d->is_by_run ? "nothing changed: each count is the same"
						 : "nothing changed by more than may be chance");
	} else {
		const struct pair *p = &d->pairs[0];

		scry_buf_printf(&b, "%s: ", scry_intern_get(&d->texts, p->text, NULL));
		put_rate(d, rate(d, p, 0), &b);
		scry_buf_printf(&b, "%s, then ", unit);
		put_rate(d, rate(d, p, 1), &b);
	}
	scry_verdict_note(d->doc, &b);
	scry_buf_done(&b);
}

static struct scry_cell rate_cell(const struct diff *d, const struct pair *p, int side,
				  struct scry_buf *buf)
{
	put_rate(d, rate(d, p, side), buf);
	return scry_cell_buf(buf);
}

static struct scry_cell change_cell(const struct diff *d, const struct pair *p,
				    struct scry_buf *buf)
{
	const double by = change(d, p);

	scry_buf_printf(buf, by < 0 ? "-" : "+");
	put_rate(d, fabs(by), buf);
	return scry_cell_buf(buf);
}

static struct scry_cell what_cell(const struct diff *d, const struct pair *p)
{
	size_t length = 0;
	const char *what = scry_intern_get(&d->texts, p->text, &length);

	return scry_cell_text(what, length);
}

#define GET(name, ...) SCRY_GET(name, struct pair, struct diff, __VA_ARGS__)

GET(get_rate, rate_cell(view, row, 0, buf))
GET(get_then, rate_cell(view, row, 1, buf))
GET(get_change, change_cell(view, row, buf))
GET(get_before, scry_cell_double(rate(view, row, 0), &view->values[0]))
GET(get_after, scry_cell_double(rate(view, row, 1), &view->values[1]))
GET(get_what, what_cell(view, row))

static void push_rows(struct diff *d, size_t changed)
{
	const char *unit = d->is_by_run ? "calls" : d->is_exact ? "calls/s" : "time %";
	const struct scry_column columns[] = {
		{unit, NULL, SCRY_CELL_TEXT, get_rate, 0},
		{"then", NULL, SCRY_CELL_TEXT, get_then, 0},
		{"change", NULL, SCRY_CELL_TEXT, get_change, 0},
		{NULL, "before", SCRY_CELL_VALUE, get_before, 0},
		{NULL, "after", SCRY_CELL_VALUE, get_after, 0},
		{NULL, "count_before", SCRY_CELL_COUNT, SCRY_AT(struct pair, n[0])},
		{NULL, "count_after", SCRY_CELL_COUNT, SCRY_AT(struct pair, n[1])},
		{"what", "what", SCRY_CELL_TEXT, get_what, 0},
	};

	scry_table_push(&(struct scry_table){SCRY_COLUMNS(columns), SCRY_ROWS(d->pairs, changed),
					     .view = d, .order = by_change,
					     .top = scry_view_top(d->opts, d->doc)},
			d->doc);
}

static int push(struct diff *d)
{
	size_t changed = 0;

	for (size_t i = 0; i < d->texts.count; i++)
		if (is_change(d, &d->pairs[i])) {
			struct pair p = d->pairs[i];

			d->pairs[i] = d->pairs[changed];
			d->pairs[changed++] = p;
		}
	sorting = d;
	if (changed)
		qsort(d->pairs, changed, sizeof(*d->pairs), by_change);
	for (int i = 0; i < 2; i++)
		d->doc->ops->quality(d->doc, &d->v[i].quality);
	judge(d, changed);
	for (int i = 0; i < 2; i++)
		scry_data_quality_notes(&d->v[i].quality, d->doc);
	const struct scry_pair pairs[] = {
		{"changed", "rows have changed", SCRY_CELL_COUNT, 0, scry_cell_number(changed)},
		{"unchanged",
		 d->is_by_run ? "rows have not: not listed"
			      : "rows have not, or by no more than may be chance: not listed",
		 SCRY_CELL_COUNT, 0, scry_cell_number(d->texts.count - changed)},
	};

	d->doc->ops->totals(d->doc, pairs, sizeof(pairs) / sizeof(pairs[0]));
	push_rows(d, changed);
	return 0;
}

static int read_side(struct diff *d, const struct scry_syscall_side *side, int at)
{
	struct scry_syscall_view *v = &d->v[at];
	int r = scry_syscall_read(v, side->reader, d->opts, d->doc);

	v->quality.label = side->name;
	if (r == 0 && !v->has_sums)
		return scry_fail(-EINVAL, "'%s' ends before its watch did", side->name);
	if (r == 0 && scry_syscall_is_at_sites(v)) /* what a sample has not found is not 0 */
		return scry_fail(-EINVAL,
				 "'%s' has counts of some places only (--exact=site), which cannot "
				 "be compared; fix: two recordings of --exact, or of samples",
				 side->name);
	d->per[at] = scry_syscall_is_exact(v) ? (double)v->sums.watched_ns / 1e9
					      : (double)v->sums.ticks / 100;
	return r;
}

int scry_view_syscall_diff(const struct scry_syscall_side sides[2],
			   const struct scry_view_opts *opts, struct scry_doc *doc)
{
	struct diff d = {.opts = opts, .doc = doc};
	int r = 0;

	scry_intern_init(&d.texts, ROWS_MAX, 256u << 20);
	for (int i = 0; i < 2 && !r; i++)
		r = read_side(&d, &sides[i], i);
	d.is_exact = scry_syscall_is_exact(&d.v[0]);
	if (!r && d.is_exact != scry_syscall_is_exact(&d.v[1]))
		r = scry_fail(-EINVAL, "one recording has counts (--exact), the other one only "
				       "samples; fix: two of one kind");
	d.is_by_run = d.is_exact && d.v[0].sums.flags & d.v[1].sums.flags & SCRY_SYSCALLS_WHOLE;
	for (int i = 0; i < 2 && d.is_by_run; i++)
		d.per[i] = 1;
	for (int i = 0; i < 2 && !r; i++)
		r = add_side(&d, i);
	if (!r)
		r = push(&d);
	for (int i = 0; i < 2; i++)
		scry_syscall_done(&d.v[i]);
	scry_intern_done(&d.texts);
	free(d.pairs);
	return r;
}
