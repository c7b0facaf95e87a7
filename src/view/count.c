/*
 * The count view: calls of hooked functions.
 *
 * COUNT events are counters since the watch began: the last one of a function in a process counts.
 */
#include "base/err.h"
#include "base/text.h"
#include "view/grep.h"
#include "view/honesty.h"
#include "view/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COUNTS_MAX (1u << 20)

struct count_row {
	struct scry_ev_count count;
	size_t order; /* of arrival: sorts equal keys, the last one wins */
};

struct counts {
	struct scry_reader *reader;
	struct scry_honesty honesty;
	struct count_row *rows;
	size_t count, cap;
};

static int counts_add(struct counts *c, const struct scry_ev_count *count)
{
	if (c->count == c->cap) {
		size_t cap = c->cap ? c->cap * 2 : 256;
		struct count_row *rows;

		if (cap > COUNTS_MAX)
			return scry_fail(-E2BIG, "more than %u counters", COUNTS_MAX);
		rows = reallocarray(c->rows, cap, sizeof(*rows));
		if (!rows)
			return scry_fail(-ENOMEM, "no memory for %zu counters", cap);
		c->rows = rows;
		c->cap = cap;
	}
	c->rows[c->count] = (struct count_row){.count = *count, .order = c->count};
	c->count++;
	return 0;
}

static int compare_u64(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int compare_place(const struct scry_ev_count *a, const struct scry_ev_count *b)
{
	int order = compare_u64(a->pid, b->pid);

	order = order ? order : compare_u64(a->address, b->address);
	order = order ? order : compare_u64(a->symbol_str, b->symbol_str);
	order = order ? order : compare_u64(a->module_str, b->module_str);
	return order ? order : compare_u64(a->way_str, b->way_str);
}

static int compare_arrival(const void *left, const void *right)
{
	const struct count_row *a = left, *b = right;
	int order = compare_place(&a->count, &b->count);

	return order ? order : compare_u64(b->order, a->order);
}

static int compare_calls(const void *left, const void *right)
{
	const struct count_row *a = left, *b = right;
	int order = compare_u64(b->count.calls, a->count.calls);

	return order ? order : compare_place(&a->count, &b->count);
}

/* Keeps the newest of each place: the first of its run. */
static void counts_merge(struct counts *c)
{
	size_t i, kept = 0;

	if (!c->count)
		return;
	qsort(c->rows, c->count, sizeof(*c->rows), compare_arrival);
	for (i = 0; i < c->count; i++)
		if (!kept || compare_place(&c->rows[kept - 1].count, &c->rows[i].count))
			c->rows[kept++] = c->rows[i];
	c->count = kept;
	qsort(c->rows, c->count, sizeof(*c->rows), compare_calls);
}

static struct scry_cell string_cell(const struct counts *c, uint32_t id)
{
	struct scry_cell cell = {0};

	cell.bytes = scry_reader_string(c->reader, id, &cell.length);
	cell.is_unknown = !cell.bytes;
	return cell;
}

static bool is_wanted(const struct counts *c, const struct scry_grep *grep, size_t i)
{
	const char *symbol = scry_reader_string(c->reader, c->rows[i].count.symbol_str, NULL);
	const char *module = scry_reader_string(c->reader, c->rows[i].count.module_str, NULL);

	return scry_grep_matches(grep, symbol ? symbol : "") ||
	       scry_grep_matches(grep, module ? module : "");
}

static void push(struct counts *c, const struct scry_grep *grep, const struct scry_view_opts *opts,
		 struct scry_doc *doc)
{
	static const struct scry_column columns[] = {
		{NULL, "pid", SCRY_CELL_NUMBER, false},
		{"calls", "calls", SCRY_CELL_COUNT, false},
		{"symbol", "symbol", SCRY_CELL_TEXT, false},
		{"module", "module", SCRY_CELL_TEXT, true},
		{"way", "way", SCRY_CELL_TEXT, false},
		{"address", "address", SCRY_CELL_HEX, false},
	};
	uint64_t top = opts->top, shown = 0, hidden = 0;
	size_t i;

	if (top == SCRY_VIEW_TOP_DEFAULT)
		top = doc->is_data ? 0 : SCRY_VIEW_TOP_ROWS;
	c->honesty.noun = "calls";
	for (i = 0; i < c->count; i++)
		c->honesty.shown += c->rows[i].count.calls;
	scry_honesty_push(&c->honesty, doc);
	scry_doc_table(doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (i = 0; i < c->count; i++) {
		const struct scry_ev_count *count = &c->rows[i].count;
		struct scry_cell cells[] = {
			scry_cell_number(count->pid),	   scry_cell_number(count->calls),
			string_cell(c, count->symbol_str), string_cell(c, count->module_str),
			string_cell(c, count->way_str),	   scry_cell_number(count->address),
		};

		if (!is_wanted(c, grep, i) || (top && shown == top)) {
			hidden++;
			continue;
		}
		doc->ops->row(doc, cells);
		shown++;
	}
	if (!c->count)
		scry_doc_remark(doc, "no function was hooked");
	else if (hidden)
		scry_doc_remark(doc,
				"%llu more rows are not shown; --top 0 without --grep shows "
				"them",
				(unsigned long long)hidden);
}

int scry_view_count(struct scry_reader *reader, const struct scry_view_opts *opts,
		    struct scry_doc *doc)
{
	struct counts c = {.reader = reader};
	const struct scry_event *event;
	struct scry_grep grep;
	int got = 0, err = scry_grep_init(&grep, opts->grep);

	if (err)
		return err;
	scry_honesty_init(&c.honesty, reader);
	while (!err && (got = scry_reader_next(reader, &event)) > 0) {
		scry_honesty_event(&c.honesty, event);
		if (event->type == SCRY_EVENT_COUNT)
			err = counts_add(&c, (const void *)(event + 1));
	}
	if (!err)
		err = got;
	if (!err) {
		scry_honesty_close(&c.honesty);
		counts_merge(&c);
		push(&c, &grep, opts, doc);
	}
	free(c.rows);
	scry_grep_done(&grep);
	return err;
}
