/*
 * The greenlets view: how much of their stacks greenlets copy when they are switched, from what
 * `scry fibers --count` records: each call of memcpy by their module. A row is a size, as a switch
 * that comes from the same place copies the same bytes each time.
 *
 * Which of two memories is the stack is not recorded: a switch copies one part out and another one
 * back, and both count. So do frames that the module reads with memcpy at a switch.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "base/text.h"
#include "view/functions.h"
#include "view/data_quality.h"
#include "view/verdict.h"
#include "view/view.h"

#define SIZES_MAX (1u << 20)

struct size { /* of copies by one thread */
	uint32_t pid, tid;
	uint64_t bytes, copies, first;
};

struct greenlets {
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	struct scry_data_quality quality;
	struct scry_map by_size; /* a hash of thread and size -> place + 1 */
	struct size *sizes;
	uint32_t count, room;
	uint64_t copies, bytes, largest, unsorted;
	struct scry_buf buf;
};

static struct size *size_of(struct greenlets *g, const struct scry_event *event,
			    const struct scry_ev_entry *e)
{
	const uint64_t key =
		((uint64_t)e->pid << 32 | event->tid) * 0x9e3779b97f4a7c15ull ^ e->arg3;
	uint64_t *at = scry_map_ref(&g->by_size, key);
	struct size *row;

	if (!at)
		return NULL;
	if (!*at) {
		uint32_t room = g->room ? 2 * g->room : 64;
		struct size *more = g->sizes;

		if (g->count == g->room)
			more = reallocarray(g->sizes, room, sizeof(*more));
		if (!more)
			return NULL;
		g->room = g->count == g->room ? room : g->room;
		g->sizes = more;
		g->sizes[g->count++] = (struct size){e->pid, event->tid, e->arg3, 0, g->copies};
		*at = g->count;
	}
	row = &g->sizes[*at - 1];
	/* two that have one hash */
	return row->bytes == e->arg3 && row->tid == event->tid && row->pid == e->pid ? row : NULL;
}

static void on_entry(struct greenlets *g, const struct scry_event *event)
{
	const struct scry_ev_entry *e = (const void *)(event + 1);
	struct size *row;

	if (e->args < 3 || (g->opts->pid && g->opts->pid != e->pid))
		return;
	row = size_of(g, event, e);
	if (row)
		row->copies++;
	g->unsorted += !row;
	g->copies++;
	g->bytes += e->arg3;
	g->largest = e->arg3 > g->largest ? e->arg3 : g->largest;
}

static int by_bytes(const void *left, const void *right)
{
	const struct size *a = left, *b = right;

	return scry_functions_compare(b->copies * b->bytes, a->copies * a->bytes);
}

/* The size that half of the copies do not exceed: rows are sorted anew for it. */
static int by_size(const void *left, const void *right)
{
	const struct size *a = left, *b = right;

	return scry_functions_compare(a->bytes, b->bytes);
}

static uint64_t median(struct greenlets *g)
{
	uint64_t seen = 0;

	if (g->count)
		qsort(g->sizes, g->count, sizeof(*g->sizes), by_size);
	for (uint32_t i = 0; i < g->count; i++) {
		seen += g->sizes[i].copies;
		if (2 * seen >= g->copies - g->unsorted)
			return g->sizes[i].bytes;
	}
	return 0;
}

static void judge(struct greenlets *g, uint64_t middle)
{
	struct scry_buf *b = &g->buf;

	scry_buf_clear(b);
	if (!g->copies) {
		scry_buf_printf(b, "no greenlet copied a part of its stack");
	} else {
		scry_buf_printf(b, "greenlets copied ");
		scry_text_size(b, g->bytes);
		scry_buf_printf(b, " of stack in ");
		scry_text_things(b, g->copies, "copies");
		if (g->quality.watched_ns) {
			scry_buf_printf(b, " within ");
			scry_text_duration(b, g->quality.watched_ns);
		}
		scry_buf_printf(b, ": half of them ");
		scry_text_size(b, middle);
		scry_buf_printf(b, " at most, the largest ");
		scry_text_size(b, g->largest);
		scry_buf_printf(
			b, "; a switch makes up to two, one out and one back; those of frames "
			   "that greenlet shows to others, from Python 3.12 on, some 80 B each, "
			   "are among them");
	}
	scry_verdict_note(g->doc, b);
	if (!g->unsorted)
		return;
	scry_buf_clear(b);
	scry_text_things(b, g->unsorted, "copies");
	scry_buf_printf(b, " are in the sums only: there are too many sizes");
	g->doc->ops->note(g->doc, b->data, b->len);
}

static void push_totals(struct greenlets *g, uint64_t middle)
{
	const struct scry_pair pairs[] = {
		{"copies", "copies", SCRY_CELL_COUNT, 0, scry_cell_number(g->copies)},
		{"bytes", "bytes", SCRY_CELL_COUNT, 0, scry_cell_number(g->bytes)},
		{"median_bytes", "bytes, half of the copies at most", SCRY_CELL_COUNT, 0,
		 scry_cell_known(middle, g->copies > g->unsorted)},
		{"max_bytes", "bytes at most", SCRY_CELL_COUNT, 0,
		 scry_cell_known(g->largest, g->copies != 0)},
	};

	g->doc->ops->totals(g->doc, pairs, sizeof(pairs) / sizeof(pairs[0]));
}

#define NUMBER(member) SCRY_AT(struct size, member)
#define GET(name, ...) SCRY_GET(name, struct size, struct greenlets, __VA_ARGS__)

GET(get_bytes, scry_cell_number(row->copies * row->bytes))
GET(get_share, scry_cell_number(scry_share(row->copies * row->bytes, view->bytes, 1000)))

static void push_rows(struct greenlets *g)
{
	static const struct scry_column columns[] = {
		{NULL, "pid", SCRY_CELL_NUMBER, NUMBER(pid)},
		{"thread", "tid", SCRY_CELL_NUMBER, NUMBER(tid)},
		{"bytes a copy", "size_bytes", SCRY_CELL_COUNT, NUMBER(bytes)},
		{"copies", "copies", SCRY_CELL_COUNT, NUMBER(copies)},
		{"bytes", "bytes", SCRY_CELL_COUNT, get_bytes, 0},
		{"% of all", NULL, SCRY_CELL_TENTHS, get_share, 0},
	};

	scry_table_push(&(struct scry_table){SCRY_COLUMNS(columns), SCRY_ROWS(g->sizes, g->count),
					     .view = g, .sort = g->opts->sort_key,
					     .order = by_bytes, .filter = &g->opts->filter,
					     .top = scry_view_top(g->opts, g->doc),
					     .noun = "sizes"},
			g->doc);
}

static void push(struct greenlets *g)
{
	const uint64_t middle = median(g);

	if (g->count)
		qsort(g->sizes, g->count, sizeof(*g->sizes), by_bytes);
	g->quality.noun = "copies";
	g->quality.shown = g->copies;
	g->doc->ops->quality(g->doc, &g->quality);
	judge(g, middle);
	scry_data_quality_notes(&g->quality, g->doc);
	push_totals(g, middle);
	if (g->count || g->doc->is_data)
		push_rows(g);
}

int scry_view_greenlets(struct scry_reader *reader, const struct scry_view_opts *opts,
			struct scry_doc *doc)
{
	struct greenlets g = {.opts = opts, .doc = doc};
	const struct scry_event *event;
	int got;

	scry_map_init(&g.by_size, SIZES_MAX);
	scry_data_quality_init(&g.quality, reader);
	while ((got = scry_reader_next(reader, &event)) > 0) {
		scry_data_quality_event(&g.quality, event);
		if (event->type == SCRY_EVENT_ENTRY)
			on_entry(&g, event);
	}
	if (got >= 0) {
		scry_data_quality_close(&g.quality);
		push(&g);
	}
	scry_map_done(&g.by_size);
	scry_buf_done(&g.buf);
	free(g.sizes);
	return got < 0 ? got : 0;
}
