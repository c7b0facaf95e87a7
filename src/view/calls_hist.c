/*
 * The calls-hist view: of each traced function how many calls took how long, in powers of two.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/demangle.h"
#include "base/err.h"
#include "base/text.h"
#include "view/calls_line.h"
#include "view/functions.h"
#include "view/data_quality.h"
#include "view/grep.h"
#include "view/table.h"
#include "view/verdict.h"

#define FUNCTIONS_MAX (1u << 20)
#define STEPS 65 /* 0, then from 2^n on */
#define BAR 40u

enum hidden { SHOWN, BY_GREP, BY_FILTER };

struct row { /* of each function that was called, also of those that are not shown */
	uint32_t symbol, module;
	enum hidden hidden;
	uint64_t returned, total_ns;
	uint64_t steps[STEPS];
};

struct hist {
	const struct scry_view_opts *opts;
	struct scry_reader *reader;
	struct scry_grep grep;
	struct scry_row_filter filter;
	struct scry_call_functions functions;
	struct scry_map by_name; /* symbol and module -> row + 1 */
	struct row *rows;
	size_t count, room;
	struct scry_left_out left_out;	       /* functions */
	uint64_t seen;			       /* calls of all functions */
	uint64_t calls, returned, left, alone; /* of those that are shown */
};

static uint32_t step_of(uint64_t ns)
{
	return ns ? 64u - (uint32_t)__builtin_clzll(ns) : 0;
}

static uint64_t step_begin(uint32_t step)
{
	return step ? 1ull << (step - 1) : 0;
}

static bool fits_symbol(const char *name, const void *term)
{
	return scry_row_term_fits(term, name);
}

struct trial { /* of a function by --filter */
	const struct hist *hist;
	const struct scry_ev_function *function;
};

static int fits(void *arg, const struct scry_row_term *term)
{
	const struct trial *t = arg;
	const bool is_symbol = scry_row_term_is(term, "function");
	const char *text = scry_reader_string(
		t->hist->reader, is_symbol ? t->function->symbol_str : t->function->module_str,
		NULL);

	text = text ? text : "";
	return is_symbol ? scry_demangle_any(text, fits_symbol, term)
			 : scry_row_term_fits(term, text);
}

static enum hidden hidden_by(const struct hist *h, const struct scry_ev_function *f)
{
	if (!scry_grep_matches_symbol(&h->grep, scry_reader_string(h->reader, f->symbol_str, NULL)))
		return BY_GREP;
	if (!scry_row_filter_matches(&h->filter, fits, &(struct trial){h, f}))
		return BY_FILTER;
	return SHOWN;
}

static struct row *row_of(struct hist *h, const struct scry_ev_function *f)
{
	uint64_t *at = scry_map_ref(&h->by_name, (uint64_t)f->symbol_str << 32 | f->module_str);

	if (at && !*at && h->count == h->room) {
		size_t room = h->room ? 2 * h->room : 64;
		struct row *more = reallocarray(h->rows, room, sizeof(*more));

		if (!more)
			return NULL;
		h->rows = more;
		h->room = room;
	}
	if (at && !*at) {
		struct row *row = &h->rows[h->count++];

		*row = (struct row){f->symbol_str, f->module_str, .hidden = hidden_by(h, f)};
		h->left_out.by_grep += row->hidden == BY_GREP;
		h->left_out.by_filter += row->hidden == BY_FILTER;
		*at = h->count;
	}
	return at ? &h->rows[*at - 1] : NULL;
}

/* 0, or -errno with a sentence. *ret_row is NULL: of another process, or of no known function. */
static int row_of_call(struct hist *h, uint32_t pid, uint32_t number, struct row **ret_row)
{
	const struct scry_call_function *f = scry_call_functions_find(&h->functions, pid, number);

	*ret_row = NULL;
	if (!f || (h->opts->pid && h->opts->pid != pid))
		return 0;
	*ret_row = row_of(h, &f->ev);
	return *ret_row ? 0 : scry_no_memory("%zu functions", h->count);
}

static int on_call(struct hist *h, const struct scry_ev_call *call)
{
	struct row *row;
	int r = row_of_call(h, call->pid, call->function, &row);

	h->seen += row != NULL;
	h->calls += row && row->hidden == SHOWN;
	return r;
}

static int on_return(struct hist *h, const struct scry_ev_return *ret)
{
	struct row *row;
	int r = row_of_call(h, ret->pid, ret->function, &row);

	if (!row || row->hidden != SHOWN)
		return r;
	if (ret->how == SCRY_RETURN_LEFT) {
		h->left++;
		return 0;
	}
	if (ret->how != SCRY_RETURN_DONE) {
		h->alone++;
		return 0;
	}
	h->returned++;
	row->returned++;
	row->total_ns += ret->duration_ns;
	row->steps[step_of(ret->duration_ns)]++;
	return 0;
}

static int by_total(const void *left, const void *right, void *reader)
{
	const struct row *a = left, *b = right;
	int order = scry_functions_compare(b->total_ns, a->total_ns);

	order = order ? order : scry_functions_compare(b->returned, a->returned);
	order = order ? order : scry_functions_compare_strings(reader, a->symbol, b->symbol);
	return order ? order : scry_functions_compare_strings(reader, a->module, b->module);
}

struct line { /* of the table: a step of a function */
	const struct row *of;
	uint32_t step;
	uint64_t most; /* of the function's steps */
};

static struct scry_cell bar(const struct line *line)
{
	static const char full[] = "########################################";
	const uint64_t calls = line->of->steps[line->step],
		       length = scry_share(calls, line->most, BAR);

	return scry_cell_text(full, length || !calls ? length : 1);
}

#define GET(name, ...) SCRY_GET(name, struct line, const struct hist, __VA_ARGS__)
GET(get_function, scry_functions_string(view->reader, row->of->symbol))
GET(get_library, scry_functions_string(view->reader, row->of->module))
GET(get_from, scry_cell_number(step_begin(row->step)))
GET(get_below, scry_cell_known(row->step < 64 ? 1ull << row->step : 0, row->step < 64))
GET(get_calls, scry_cell_number(row->of->steps[row->step]))
GET(get_bar, bar(row))
#undef GET

/* Every step between the first and the last that has a call: a gap is to be seen. */
static void push_row(const struct scry_table *table, const struct row *row, struct scry_doc *doc)
{
	struct line line = {.of = row, .step = STEPS, .most = 1};
	uint32_t last = 0;

	for (uint32_t i = 0; i < STEPS; i++) {
		if (!row->steps[i])
			continue;
		line.step = line.step < i ? line.step : i;
		last = i;
		line.most = row->steps[i] > line.most ? row->steps[i] : line.most;
	}
	for (; line.step <= last; line.step++)
		scry_table_push_row(table, &line, doc);
}

static bool is_some_hidden(const struct hist *h)
{
	return h->left_out.by_grep || h->left_out.by_filter;
}

static void push(const struct hist *h, struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{"function", "function", SCRY_CELL_SYMBOL, get_function, 0},
		{NULL, "library", SCRY_CELL_TEXT, get_library, 0},
		{"from ns", "from_ns", SCRY_CELL_COUNT, get_from, 0},
		{"below ns", "below_ns", SCRY_CELL_COUNT, get_below, 0},
		{"calls", "calls", SCRY_CELL_COUNT, get_calls, 0},
		{"", NULL, SCRY_CELL_TEXT, get_bar, 0},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns), .view = (void *)h};
	const uint64_t ended = h->returned + h->left + h->alone,
		       open = h->calls > ended ? h->calls - ended : 0;

	scry_doc_table(doc, columns, table.column_count);
	for (size_t i = 0; i < h->count; i++)
		push_row(&table, &h->rows[i], doc);
	if (!h->returned && !h->alone && !is_some_hidden(h))
		scry_doc_remark(doc, "no call has returned");
	if (h->left)
		scry_doc_remark(doc, "%llu more %s left by an exception or longjmp",
				(unsigned long long)h->left,
				h->left == 1 ? "call was" : "calls were");
	scry_call_remark_alone(doc, h->alone, h->returned ? "more " : "", "");
	if (open)
		scry_doc_remark(doc, "%llu more %s not seen to end", (unsigned long long)open,
				open == 1 ? "call was" : "calls were");
	scry_left_out_push(&h->left_out, doc);
}

/* No call has a time. */
static void judge_nothing(const struct hist *h, struct scry_buf *buf)
{
	if (h->alone) {
		scry_text_things(buf, h->alone, "calls");
		scry_buf_printf(buf, " %s seen; %s not followed, so no time is known",
				scry_text_were(h->alone),
				h->alone == 1 ? "its return is" : "their returns are");
	} else if (!is_some_hidden(h)) {
		scry_buf_printf(buf, "nothing was seen: no call has returned");
	} else if (h->left_out.by_grep + h->left_out.by_filter < h->count) {
		scry_buf_printf(buf, "no call of the functions that match has returned");
	} else if (h->opts->filter.count) {
		scry_verdict_filtered(buf, h->opts->grep != NULL);
	} else {
		scry_buf_printf(buf, "no function contains '%s'", h->opts->grep);
	}
}

/* Where the most calls of the first function lie. */
static void judge(const struct hist *h, struct scry_doc *doc)
{
	const struct row *row = h->rows;
	struct scry_buf buf = {0};
	uint32_t at = 0;

	if (!h->returned) {
		judge_nothing(h, &buf);
	} else {
		const char *name = scry_reader_string(h->reader, row->symbol, NULL);

		for (uint32_t i = 0; i < STEPS; i++)
			at = row->steps[i] > row->steps[at] ? i : at;
		scry_verdict_percent(&buf, row->steps[at], row->returned);
		scry_buf_printf(&buf, " of ");
		scry_text_things(&buf, row->returned, "calls");
		scry_buf_printf(&buf, " of ");
		scry_demangle_put(name ? name : "?", name ? strlen(name) : 1, &buf);
		scry_buf_printf(&buf, " took ");
		scry_text_duration(&buf, step_begin(at));
		scry_buf_printf(&buf, " to ");
		scry_text_duration(&buf, at < 64 ? 1ull << at : UINT64_MAX);
	}
	scry_verdict(doc, &buf);
	scry_buf_done(&buf);
}

static int read_all(struct hist *h, struct scry_data_quality *quality)
{
	const struct scry_event *event;
	int got, r = 0;

	while ((got = scry_reader_next(h->reader, &event)) > 0 && r == 0) {
		scry_data_quality_event(quality, event);
		if (event->type == SCRY_EVENT_FUNCTION)
			r = scry_call_functions_add(&h->functions, h->reader,
						    (const void *)(event + 1));
		if (event->type == SCRY_EVENT_CALL)
			r = on_call(h, (const void *)(event + 1));
		if (event->type == SCRY_EVENT_RETURN)
			r = on_return(h, (const void *)(event + 1));
	}
	return got < 0 ? got : r;
}

int scry_view_calls_hist(struct scry_reader *reader, const struct scry_view_opts *opts,
			 struct scry_doc *doc)
{
	struct hist h = {.opts = opts, .reader = reader, .left_out.noun = "functions"};
	struct scry_data_quality quality;
	int r = scry_row_filter_init(&h.filter, &opts->filter);

	if (r == 0)
		r = scry_grep_init(&h.grep, opts->grep);
	if (r < 0)
		return r;
	scry_map_init(&h.by_name, FUNCTIONS_MAX);
	scry_call_functions_init(&h.functions);
	scry_data_quality_init(&quality, reader);
	r = read_all(&h, &quality);
	if (r == 0) {
		scry_data_quality_close(&quality);
		quality.noun = "calls";
		quality.shown = h.seen;
		if (h.count)
			qsort_r(h.rows, h.count, sizeof(*h.rows), by_total, reader);
		scry_data_quality_push(&quality, doc);
		judge(&h, doc);
		push(&h, doc);
	}
	free(h.rows);
	scry_map_done(&h.by_name);
	scry_call_functions_done(&h.functions);
	scry_grep_done(&h.grep);
	return r;
}
