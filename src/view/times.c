/*
 * The time view: how long calls of hooked functions took.
 *
 * A TIME event is the whole of one function in a process. Rows by total time; times include
 * callees, so recursive functions count their time once a level.
 */
#include <stdlib.h>

#include "base/text.h"
#include "view/functions.h"

static int compare_total(const void *left, const void *right)
{
	const struct scry_ev_time *a = &((const struct scry_function_row *)left)->time;
	const struct scry_ev_time *b = &((const struct scry_function_row *)right)->time;
	int order = scry_functions_compare(b->total_ns, a->total_ns);

	order = order ? order : scry_functions_compare(b->calls, a->calls);
	order = order ? order : scry_functions_compare(a->pid, b->pid);
	return order ? order : scry_functions_compare(a->address, b->address);
}

static size_t settle(struct scry_function_row *rows, size_t count)
{
	qsort(rows, count, sizeof(*rows), compare_total);
	return count;
}

static void push(struct scry_reader *reader, const struct scry_function_row *row,
		 struct scry_doc *doc)
{
	const struct scry_ev_time *e = &row->time;
	bool any = e->returned != 0;
	const struct scry_cell cells[] = {
		scry_cell_number(e->pid),
		scry_cell_number(e->calls),
		scry_cell_number(e->returned),
		scry_cell_number(e->left),
		scry_cell_number(e->missed),
		scry_cell_number(e->total_ns),
		scry_cell_known(any ? e->total_ns / e->returned : 0, any),
		scry_cell_known(scry_two_digits(e->p50_ns, e->max_ns), any),
		scry_cell_known(scry_two_digits(e->p99_ns, e->max_ns), any),
		scry_cell_known(e->max_ns, any),
		scry_functions_string(reader, e->symbol_str),
		scry_functions_string(reader, e->module_str),
		scry_functions_string(reader, e->way_str),
		scry_cell_number(e->address),
	};

	doc->ops->row(doc, cells);
}

/* No share: the times of callers hold those of their callees. */
static void judge(const struct scry_function_row *row, const char *name, uint64_t calls,
		  struct scry_buf *buf)
{
	const struct scry_ev_time *e = &row->time;

	if (!e->returned) {
		scry_text_things(buf, calls, "calls");
		scry_buf_printf(buf, " were seen, and none has returned");
		return;
	}
	scry_buf_printf(buf, "%s took most: ", name);
	scry_text_duration(buf, e->total_ns);
	scry_buf_printf(buf, " in ");
	scry_text_things(buf, e->returned, "calls");
	scry_buf_printf(buf, ", the longest ");
	scry_text_duration(buf, e->max_ns);
}

int scry_view_time(struct scry_reader *reader, const struct scry_view_opts *opts,
		   struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{NULL, "pid", SCRY_CELL_NUMBER, false},
		{"calls", "calls", SCRY_CELL_COUNT, false},
		{"returned", "returned", SCRY_CELL_COUNT, false},
		{NULL, "left", SCRY_CELL_COUNT, false},
		{NULL, "missed", SCRY_CELL_COUNT, false},
		{"total ns", "total_ns", SCRY_CELL_COUNT, false},
		{"mean ns", "mean_ns", SCRY_CELL_COUNT, false},
		{"p50 ns", "p50_ns", SCRY_CELL_COUNT, false},
		{"p99 ns", "p99_ns", SCRY_CELL_COUNT, false},
		{"max ns", "max_ns", SCRY_CELL_COUNT, false},
		{"symbol", "symbol", SCRY_CELL_SYMBOL, false},
		{"module", "module", SCRY_CELL_TEXT, true},
		{NULL, "way", SCRY_CELL_TEXT, false},
		{NULL, "address", SCRY_CELL_HEX, false},
	};
	static const struct scry_functions_view view = {
		SCRY_EVENT_TIME, columns, sizeof(columns) / sizeof(columns[0]),
		settle,		 push,	  judge};

	return scry_functions_show(&view, reader, opts, doc);
}
