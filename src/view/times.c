/*
 * The time view: how long calls of hooked functions took.
 *
 * A TIME event is the whole of one function in a process. Rows by total time; times include
 * callees, so recursive functions count their time once a level.
 */
#include "base/err.h"
#include "view/grep.h"
#include "view/honesty.h"
#include "view/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TIMES_MAX (1u << 20)

struct times {
	struct scry_reader *reader;
	struct scry_honesty honesty;
	struct scry_ev_time *rows;
	size_t count, cap;
};

static int times_add(struct times *t, const struct scry_ev_time *time)
{
	if (t->count == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 256;
		struct scry_ev_time *rows;

		if (cap > TIMES_MAX)
			return scry_fail(-E2BIG, "more than %u timed functions", TIMES_MAX);
		rows = reallocarray(t->rows, cap, sizeof(*rows));
		if (!rows)
			return scry_fail(-ENOMEM, "no memory for %zu timed functions", cap);
		t->rows = rows;
		t->cap = cap;
	}
	t->rows[t->count++] = *time;
	return 0;
}

static int compare_u64(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int compare_total(const void *left, const void *right)
{
	const struct scry_ev_time *a = left, *b = right;
	int order = compare_u64(b->total_ns, a->total_ns);

	order = order ? order : compare_u64(b->calls, a->calls);
	order = order ? order : compare_u64(a->pid, b->pid);
	return order ? order : compare_u64(a->address, b->address);
}

static struct scry_cell string_cell(const struct times *t, uint32_t id)
{
	struct scry_cell cell = {0};

	cell.bytes = scry_reader_string(t->reader, id, &cell.length);
	cell.is_unknown = !cell.bytes;
	return cell;
}

static bool is_wanted(const struct times *t, const struct scry_grep *grep, size_t i)
{
	const char *symbol = scry_reader_string(t->reader, t->rows[i].symbol_str, NULL);
	const char *module = scry_reader_string(t->reader, t->rows[i].module_str, NULL);

	return scry_grep_matches(grep, symbol ? symbol : "") ||
	       scry_grep_matches(grep, module ? module : "");
}

static void push_row(const struct times *t, const struct scry_ev_time *e, struct scry_doc *doc)
{
	bool any = e->returned != 0;
	const struct scry_cell cells[] = {
		scry_cell_number(e->pid),
		scry_cell_number(e->calls),
		scry_cell_number(e->returned),
		scry_cell_number(e->left),
		scry_cell_number(e->missed),
		scry_cell_number(e->total_ns),
		scry_cell_known(any ? e->total_ns / e->returned : 0, any),
		scry_cell_known(e->p50_ns, any),
		scry_cell_known(e->p99_ns, any),
		scry_cell_known(e->max_ns, any),
		string_cell(t, e->symbol_str),
		string_cell(t, e->module_str),
		string_cell(t, e->way_str),
		scry_cell_number(e->address),
	};

	doc->ops->row(doc, cells);
}

static void push(struct times *t, const struct scry_grep *grep, const struct scry_view_opts *opts,
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
		{"symbol", "symbol", SCRY_CELL_TEXT, false},
		{"module", "module", SCRY_CELL_TEXT, true},
		{NULL, "way", SCRY_CELL_TEXT, false},
		{NULL, "address", SCRY_CELL_HEX, false},
	};
	uint64_t top = opts->top, shown = 0, hidden = 0;

	if (top == SCRY_VIEW_TOP_DEFAULT)
		top = doc->is_data ? 0 : SCRY_VIEW_TOP_ROWS;
	t->honesty.noun = "calls";
	for (size_t i = 0; i < t->count; i++)
		t->honesty.shown += t->rows[i].calls;
	scry_honesty_push(&t->honesty, doc);
	scry_doc_table(doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < t->count; i++) {
		if (!is_wanted(t, grep, i) || (top && shown == top)) {
			hidden++;
			continue;
		}
		push_row(t, &t->rows[i], doc);
		shown++;
	}
	if (!t->count)
		scry_doc_remark(doc, "no function was hooked");
	else if (hidden)
		scry_doc_remark(doc,
				"%llu more rows are not shown; --top 0 without --grep shows "
				"them",
				(unsigned long long)hidden);
}

int scry_view_time(struct scry_reader *reader, const struct scry_view_opts *opts,
		   struct scry_doc *doc)
{
	struct times t = {.reader = reader};
	const struct scry_event *event;
	struct scry_grep grep;
	int got = 0, err = scry_grep_init(&grep, opts->grep);

	if (err)
		return err;
	scry_honesty_init(&t.honesty, reader);
	while (!err && (got = scry_reader_next(reader, &event)) > 0) {
		scry_honesty_event(&t.honesty, event);
		if (event->type == SCRY_EVENT_TIME)
			err = times_add(&t, (const void *)(event + 1));
	}
	if (!err)
		err = got;
	if (!err) {
		scry_honesty_close(&t.honesty);
		if (t.count)
			qsort(t.rows, t.count, sizeof(*t.rows), compare_total);
		push(&t, &grep, opts, doc);
	}
	free(t.rows);
	scry_grep_done(&grep);
	return err;
}
