/* See functions.h. */
#include "view/functions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/demangle.h"
#include "base/err.h"
#include "base/vector.h"
#include "view/grep.h"
#include "view/data_quality.h"
#include "view/verdict.h"

#define ROWS_MAX (1u << 20)

struct list {
	const struct scry_functions_view *view;
	struct scry_reader *reader;
	struct scry_data_quality quality;
	struct scry_function_row *rows;
	size_t count, cap;
	const struct scry_view_opts *opts;
};

static uint64_t calls_of(const struct list *l, const struct scry_function_row *row)
{
	return l->view->type == SCRY_EVENT_TIME ? row->time.calls : row->count.calls;
}

static int add(struct list *l, const void *payload)
{
	struct scry_function_row *row;
	uint32_t pid = l->view->type == SCRY_EVENT_TIME
			       ? ((const struct scry_ev_time *)payload)->pid
			       : ((const struct scry_ev_count *)payload)->pid;

	if (l->opts->pid && l->opts->pid != pid)
		return 0;
	if (l->count == ROWS_MAX)
		return scry_fail(-E2BIG, "more than %u functions", ROWS_MAX);
	if (scry_vector_reserve(&l->rows, l->count, &l->cap))
		return scry_no_memory("%zu functions", l->count);
	row = &l->rows[l->count];
	row->order = l->count++;
	if (l->view->type == SCRY_EVENT_TIME)
		memcpy(&row->time, payload, sizeof(row->time));
	else
		memcpy(&row->count, payload, sizeof(row->count));
	return 0;
}

int scry_functions_compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

int scry_functions_compare_strings(const struct scry_reader *reader, uint32_t a, uint32_t b)
{
	const char *left = scry_reader_string(reader, a, NULL);
	const char *right = scry_reader_string(reader, b, NULL);

	if (!left || !right)
		return !left - !right;
	return strcmp(left, right);
}

struct scry_cell scry_functions_string(const struct scry_reader *reader, uint32_t id)
{
	struct scry_cell cell = {0};

	cell.bytes = scry_reader_string(reader, id, &cell.length);
	cell.is_unknown = !cell.bytes;
	return cell;
}

static void judge(const struct list *l, const struct scry_function_row *row, struct scry_doc *doc)
{
	struct scry_buf buf = {0}, name = {0};

	if (!l->quality.shown) {
		scry_buf_printf(&buf, "nothing was seen: no hooked function was called");
	} else if (!row && l->opts->filter.count) {
		scry_verdict_filtered(&buf, l->opts->grep != NULL);
	} else if (!row) {
		scry_buf_printf(&buf, "no row matches --grep");
	} else {
		const char *symbol =
			scry_reader_string(l->reader,
					   l->view->type == SCRY_EVENT_TIME ? row->time.symbol_str
									    : row->count.symbol_str,
					   NULL);

		scry_demangle_put(symbol ? symbol : "?", symbol ? strlen(symbol) : 1, &name);
		l->view->judge(row, scry_buf_str(&name), l->quality.shown, &buf);
	}
	scry_verdict(doc, &buf);
	scry_buf_done(&buf);
	scry_buf_done(&name);
}

static void push(struct list *l, const struct scry_grep *grep, struct scry_doc *doc)
{
	const struct scry_table table = {
		.columns = l->view->columns,
		.column_count = l->view->column_count,
		SCRY_ROWS(l->rows, l->count),
		.view = l->reader,
		.grep = grep,
		.filter = &l->opts->filter,
		.top = scry_view_top(l->opts, doc),
		.sort = l->opts->sort_key,
		.order = l->view->order,
	};

	l->quality.noun = "calls";
	for (size_t i = 0; i < l->count; i++)
		l->quality.shown += calls_of(l, &l->rows[i]);
	scry_data_quality_push(&l->quality, doc);
	judge(l, scry_table_first(&table), doc);
	scry_table_push(&table, doc);
	if (!l->count)
		scry_doc_remark(doc, "no call was counted");
}

int scry_functions_show(const struct scry_functions_view *view, struct scry_reader *reader,
			const struct scry_view_opts *opts, struct scry_doc *doc)
{
	struct list l = {.view = view, .reader = reader, .opts = opts};
	const struct scry_event *event;
	struct scry_grep grep;
	int got = 0, err = scry_grep_init(&grep, opts->grep);

	if (err)
		return err;
	scry_data_quality_init(&l.quality, reader);
	while (!err && (got = scry_reader_next(reader, &event)) > 0) {
		scry_data_quality_event(&l.quality, event);
		if (event->type == view->type)
			err = add(&l, event + 1);
	}
	if (!err)
		err = got;
	if (!err) {
		scry_data_quality_close(&l.quality);
		l.count = l.count ? view->settle(l.rows, l.count) : 0;
		push(&l, &grep, doc);
	}
	free(l.rows);
	scry_grep_done(&grep);
	return err;
}
