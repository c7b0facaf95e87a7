/*
 * The count view: calls of hooked functions.
 *
 * COUNT events are counters since the watch began: the last one of a function in a process counts.
 */
#include <stdlib.h>

#include "view/functions.h"
#include "view/verdict.h"

static int compare_place(const struct scry_ev_count *a, const struct scry_ev_count *b)
{
	int order = scry_functions_compare(a->pid, b->pid);

	order = order ? order : scry_functions_compare(a->address, b->address);
	order = order ? order : scry_functions_compare(a->symbol_str, b->symbol_str);
	order = order ? order : scry_functions_compare(a->module_str, b->module_str);
	return order ? order : scry_functions_compare(a->way_str, b->way_str);
}

static int compare_arrival(const void *left, const void *right)
{
	const struct scry_function_row *a = left, *b = right;
	int order = compare_place(&a->count, &b->count);

	return order ? order : scry_functions_compare(b->order, a->order);
}

static int compare_calls(const void *left, const void *right)
{
	const struct scry_function_row *a = left, *b = right;

	return scry_functions_compare(b->count.calls, a->count.calls);
}

/* Keeps the newest of each place: the first of its run. */
static size_t settle(struct scry_function_row *rows, size_t count)
{
	size_t kept = 0;

	qsort(rows, count, sizeof(*rows), compare_arrival);
	for (size_t i = 0; i < count; i++)
		if (!kept || compare_place(&rows[kept - 1].count, &rows[i].count))
			rows[kept++] = rows[i];
	qsort(rows, kept, sizeof(*rows), compare_calls);
	return kept;
}

#define NUMBER(member) SCRY_AT(struct scry_function_row, count.member)
#define GET(name, ...) SCRY_GET(name, struct scry_function_row, struct scry_reader, __VA_ARGS__)

GET(get_symbol, scry_functions_string(view, row->count.symbol_str))
GET(get_module, scry_functions_string(view, row->count.module_str))
GET(get_way, scry_functions_string(view, row->count.way_str))

static const struct scry_column columns[] = {
	{NULL, "pid", SCRY_CELL_NUMBER, NUMBER(pid)},
	{"calls", "calls", SCRY_CELL_COUNT, NUMBER(calls)},
	{"symbol", "symbol", SCRY_CELL_SYMBOL, get_symbol, SCRY_COLUMN_GREP},
	{"module", "module", SCRY_CELL_TEXT, get_module, SCRY_COLUMN_GREP | SCRY_COLUMN_ELASTIC},
	{"way", "way", SCRY_CELL_TEXT, get_way, 0},
	{"address", "address", SCRY_CELL_HEX, NUMBER(address)},
};

static void judge(const struct scry_function_row *row, const char *name, uint64_t calls,
		  struct scry_buf *buf)
{
	scry_buf_printf(buf, "%s has ", name);
	scry_verdict_share(buf, row->count.calls, calls, "calls");
}

int scry_view_count(struct scry_reader *reader, const struct scry_view_opts *opts,
		    struct scry_doc *doc)
{
	static const struct scry_functions_view view = {
		SCRY_EVENT_COUNT, columns, sizeof(columns) / sizeof(columns[0]),
		settle,		  judge,   compare_calls};

	return scry_functions_show(&view, reader, opts, doc);
}
