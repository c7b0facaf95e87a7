/*
 * The calls-sums view: ltrace's table of -c, with quantiles. Times include callees, so those of
 * functions that call each other are told twice.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "view/calls_line.h"
#include "view/functions.h"
#include "view/grep.h"
#include "view/honesty.h"

#define FUNCTIONS_MAX (1u << 20)
#define STEP_BITS 4 /* sixteen linear steps to each power of two */
#define STEPS ((64 - STEP_BITS + 1) << STEP_BITS)

struct sum {
	uint32_t symbol, module;
	uint64_t calls, returned, left;
	uint64_t total_ns, max_ns;
	uint32_t histogram[STEPS]; /* of ns */
};

struct sums {
	const struct scry_view_opts *opts;
	struct scry_reader *reader;
	struct scry_grep grep;
	struct scry_call_functions functions;
	struct scry_map by_name;
	struct sum **rows;
	size_t count, room;
	uint64_t total_ns, calls;
};

static uint32_t step_of(uint64_t ns)
{
	uint32_t shift;

	if (ns < 1u << STEP_BITS)
		return (uint32_t)ns;
	shift = 63u - (uint32_t)__builtin_clzll(ns) - STEP_BITS;
	return ((shift + 1) << STEP_BITS) + (uint32_t)(ns >> shift & ((1u << STEP_BITS) - 1));
}

static uint64_t step_begin(uint32_t step)
{
	uint32_t shift = step >> STEP_BITS, low = step & ((1u << STEP_BITS) - 1);

	if (!shift)
		return step;
	return shift > 64 - STEP_BITS ? UINT64_MAX : ((1ull << STEP_BITS) + low) << (shift - 1);
}

/* The row of a function, by its name; NULL with a sentence: no memory. */
static struct sum *row_of(struct sums *s, const struct scry_ev_function *f)
{
	uint64_t *at = scry_map_ref(&s->by_name, (uint64_t)f->symbol_str << 32 | f->module_str);
	struct sum *row;

	if (at && *at)
		return s->rows[*at - 1];
	if (at && s->count == s->room) {
		size_t room = s->room ? 2 * s->room : 64;
		struct sum **more = reallocarray(s->rows, room, sizeof(struct sum *));

		if (more) {
			s->rows = more;
			s->room = room;
		}
	}
	row = at && s->count < s->room ? calloc(1, sizeof(*row)) : NULL;
	if (!row) {
		scry_fail(-ENOMEM, "no memory for %zu functions", s->count);
		return NULL;
	}
	row->symbol = f->symbol_str;
	row->module = f->module_str;
	s->rows[s->count++] = row;
	*at = s->count;
	return row;
}

static int add(struct sums *s, const struct scry_event *event)
{
	const struct scry_ev_return *ret = (const void *)(event + 1); /* begins as CALL does */
	const struct scry_call_function *f =
		scry_call_functions_find(&s->functions, ret->pid, ret->function);
	struct sum *row;

	if (!f || (s->opts->pid && s->opts->pid != ret->pid))
		return 0;
	row = row_of(s, &f->ev);
	if (!row)
		return -ENOMEM;
	if (event->type == SCRY_EVENT_CALL) {
		row->calls++;
		s->calls++;
		return 0;
	}
	if (ret->how == SCRY_RETURN_LEFT) {
		row->left++;
		return 0;
	}
	row->returned++;
	row->total_ns += ret->duration_ns;
	s->total_ns += ret->duration_ns;
	row->max_ns = ret->duration_ns > row->max_ns ? ret->duration_ns : row->max_ns;
	row->histogram[step_of(ret->duration_ns)]++;
	return 0;
}

/* What `part` of a thousand calls do not exceed, within a thirtieth. */
static uint64_t quantile(const struct sum *row, uint64_t part)
{
	uint64_t want = (row->returned * part + 999) / 1000, seen = 0;

	for (uint32_t i = 0; i < STEPS; i++) {
		uint64_t begin = step_begin(i), at = begin + (step_begin(i + 1) - begin) / 2;

		seen += row->histogram[i];
		if (row->histogram[i] && seen >= want)
			return at < row->max_ns ? at : row->max_ns;
	}
	return row->max_ns;
}

static int by_total(const void *left, const void *right)
{
	const struct sum *a = *(struct sum *const *)left, *b = *(struct sum *const *)right;
	int order = scry_functions_compare(b->total_ns, a->total_ns);

	order = order ? order : scry_functions_compare(b->calls, a->calls);
	order = order ? order : scry_functions_compare(a->symbol, b->symbol);
	return order ? order : scry_functions_compare(a->module, b->module);
}

static void push_row(const struct sums *s, const struct sum *row, struct scry_doc *doc)
{
	bool any = row->returned != 0;
	const struct scry_cell cells[] = {
		scry_cell_known(scry_share(row->total_ns, s->total_ns, 1000), s->total_ns != 0),
		scry_cell_number(row->total_ns),
		scry_cell_number(row->total_ns),
		scry_cell_known(any ? row->total_ns / row->returned / 1000 : 0, any),
		scry_cell_known(any ? row->total_ns / row->returned : 0, any),
		scry_cell_number(row->calls),
		scry_cell_known(any ? quantile(row, 500) / 1000 : 0, any),
		scry_cell_known(any ? quantile(row, 500) : 0, any),
		scry_cell_known(any ? quantile(row, 990) / 1000 : 0, any),
		scry_cell_known(any ? quantile(row, 990) : 0, any),
		scry_cell_known(row->max_ns / 1000, any),
		scry_cell_known(row->max_ns, any),
		scry_functions_string(s->reader, row->symbol),
		scry_functions_string(s->reader, row->module),
		scry_cell_number(row->returned),
		scry_cell_number(row->left),
		scry_cell_number(row->calls - row->returned - row->left),
	};

	doc->ops->row(doc, cells);
}

static void push(struct sums *s, struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"% time", NULL, SCRY_CELL_TENTHS, false},
		{"seconds", NULL, SCRY_CELL_TIME, false},
		{NULL, "total_ns", SCRY_CELL_NUMBER, false},
		{"usecs/call", NULL, SCRY_CELL_NUMBER, false},
		{NULL, "mean_ns", SCRY_CELL_NUMBER, false},
		{"calls", "calls", SCRY_CELL_NUMBER, false},
		{"p50 us", NULL, SCRY_CELL_NUMBER, false},
		{NULL, "p50_ns", SCRY_CELL_NUMBER, false},
		{"p99 us", NULL, SCRY_CELL_NUMBER, false},
		{NULL, "p99_ns", SCRY_CELL_NUMBER, false},
		{"max us", NULL, SCRY_CELL_NUMBER, false},
		{NULL, "max_ns", SCRY_CELL_NUMBER, false},
		{"function", "function", SCRY_CELL_TEXT, false},
		{NULL, "library", SCRY_CELL_TEXT, false},
		{NULL, "returned", SCRY_CELL_NUMBER, false},
		{NULL, "left", SCRY_CELL_NUMBER, false},
		{NULL, "unfinished", SCRY_CELL_NUMBER, false},
	};

	scry_doc_table(doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < s->count; i++) {
		const char *symbol = scry_reader_string(s->reader, s->rows[i]->symbol, NULL);

		if (scry_grep_matches(&s->grep, symbol ? symbol : ""))
			push_row(s, s->rows[i], doc);
	}
	if (!s->count)
		scry_doc_remark(doc, "no call was seen");
}

static int read_all(struct sums *s, struct scry_honesty *honesty)
{
	const struct scry_event *event;
	int got, r = 0;

	while ((got = scry_reader_next(s->reader, &event)) > 0 && r == 0) {
		scry_honesty_event(honesty, event);
		if (event->type == SCRY_EVENT_FUNCTION)
			r = scry_call_functions_add(&s->functions, s->reader,
						    (const void *)(event + 1));
		if (event->type == SCRY_EVENT_CALL || event->type == SCRY_EVENT_RETURN)
			r = add(s, event);
	}
	return got < 0 ? got : r;
}

int scry_view_calls_sums(struct scry_reader *reader, const struct scry_view_opts *opts,
			 struct scry_doc *doc)
{
	struct sums s = {.opts = opts, .reader = reader};
	struct scry_honesty honesty;
	int r = scry_grep_init(&s.grep, opts->grep);

	if (r < 0)
		return r;
	scry_map_init(&s.by_name, FUNCTIONS_MAX);
	scry_call_functions_init(&s.functions);
	scry_honesty_init(&honesty, reader);
	r = read_all(&s, &honesty);
	if (r == 0) {
		scry_honesty_close(&honesty);
		honesty.noun = "calls";
		honesty.shown = s.calls;
		scry_honesty_push(&honesty, doc);
		if (s.count)
			qsort(s.rows, s.count, sizeof(struct sum *), by_total);
		push(&s, doc);
	}
	for (size_t i = 0; i < s.count; i++)
		free(s.rows[i]);
	free(s.rows);
	scry_map_done(&s.by_name);
	scry_call_functions_done(&s.functions);
	scry_grep_done(&s.grep);
	return r;
}
