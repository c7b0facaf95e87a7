/*
 * The time view: how long calls of hooked functions took.
 *
 * A TIME event is the whole of one function in a process. Rows by total time; times include
 * callees, so recursive functions count their time once a level.
 */
#include <stdlib.h>

#include "base/text.h"
#include "view/functions.h"
#include "view/verdict.h"

static int compare_total(const void *left, const void *right)
{
	const struct scry_ev_time *a = &((const struct scry_function_row *)left)->time;
	const struct scry_ev_time *b = &((const struct scry_function_row *)right)->time;
	int order = scry_functions_compare(b->total_ns, a->total_ns);

	return order ? order : scry_functions_compare(b->calls, a->calls);
}

static size_t settle(struct scry_function_row *rows, size_t count)
{
	qsort(rows, count, sizeof(*rows), compare_total);
	return count;
}

#define NUMBER(member) SCRY_AT(struct scry_function_row, time.member)
#define GET(name, ...) SCRY_GET(name, struct scry_function_row, struct scry_reader, __VA_ARGS__)

static struct scry_cell known(const struct scry_ev_time *e, uint64_t ns)
{
	return scry_cell_known(ns, e->returned != 0);
}

static struct scry_cell rounded(const struct scry_ev_time *e, uint64_t ns)
{
	return known(e, e->returned ? scry_two_digits(ns, e->max_ns) : 0);
}

GET(get_mean, known(&row->time, row->time.returned ? row->time.total_ns / row->time.returned : 0))
GET(get_p50, rounded(&row->time, row->time.p50_ns))
GET(get_p99, rounded(&row->time, row->time.p99_ns))
GET(get_max, known(&row->time, row->time.max_ns))
GET(get_symbol, scry_functions_string(view, row->time.symbol_str))
GET(get_module, scry_functions_string(view, row->time.module_str))
GET(get_way, scry_functions_string(view, row->time.way_str))

static const struct scry_column columns[] = {
	{NULL, "pid", SCRY_CELL_NUMBER, NUMBER(pid)},
	{"calls", "calls", SCRY_CELL_COUNT, NUMBER(calls)},
	{"returned", "returned", SCRY_CELL_COUNT, NUMBER(returned)},
	{NULL, "left", SCRY_CELL_COUNT, NUMBER(left)},
	{NULL, "missed", SCRY_CELL_COUNT, NUMBER(missed)},
	{"total ns", "total_ns", SCRY_CELL_COUNT, NUMBER(total_ns)},
	{"mean ns", "mean_ns", SCRY_CELL_COUNT, get_mean, 0},
	{"p50 ns", "p50_ns", SCRY_CELL_COUNT, get_p50, 0},
	{"p99 ns", "p99_ns", SCRY_CELL_COUNT, get_p99, 0},
	{"max ns", "max_ns", SCRY_CELL_COUNT, get_max, 0},
	{"symbol", "symbol", SCRY_CELL_SYMBOL, get_symbol, SCRY_COLUMN_GREP},
	{"module", "module", SCRY_CELL_TEXT, get_module, SCRY_COLUMN_GREP | SCRY_COLUMN_ELASTIC},
	{NULL, "way", SCRY_CELL_TEXT, get_way, 0},
	{NULL, "address", SCRY_CELL_HEX, NUMBER(address)},
};

static void judge(const struct scry_function_row *row, const char *name, uint64_t calls,
		  struct scry_buf *buf)
{
	const struct scry_ev_time *e = &row->time;

	if (!e->returned) {
		scry_text_things(buf, calls, "calls");
		scry_buf_printf(buf, " were seen, and none has returned");
		return;
	}
	scry_buf_printf(buf, "%s", name);
	scry_verdict_took(buf, e->total_ns, e->returned, e->max_ns);
}

int scry_view_time(struct scry_reader *reader, const struct scry_view_opts *opts,
		   struct scry_doc *doc)
{
	static const struct scry_functions_view view = {
		SCRY_EVENT_TIME, columns, sizeof(columns) / sizeof(columns[0]),
		settle,		 judge,	  compare_total};

	return scry_functions_show(&view, reader, opts, doc);
}
