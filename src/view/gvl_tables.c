/*
 * The tables of the gvl view: what made others wait, threads, pairs, and how many wanted the lock
 * at a time. See gvl.h.
 */
#include "view/gvl.h"

#include <stdlib.h>

#include "base/text.h"
#include "view/functions.h"

static void tell_hidden(struct scry_gvl_view *g, uint64_t hidden)
{
	if (hidden)
		scry_doc_remark(g->doc, "%llu more %s not shown; %s shows all",
				(unsigned long long)hidden, hidden == 1 ? "row is" : "rows are",
				scry_grep_all_rows(&g->grep));
}

static void push_thread(struct scry_gvl_view *g, const struct scry_ev_gvl_thread *t)
{
	const bool has_waits = t->waits != 0, is_clear = t->forced || t->passes || !t->yields;
	struct scry_cell cells[] = {
		scry_cell_number(t->pid),
		scry_cell_number(t->thread),
		scry_cell_known(t->tid, t->tid != 0),
		scry_cell_number(t->lost_ns),
		scry_cell_number(t->held_ns),
		scry_cell_number(scry_gvl_waited_ns(t)),
		scry_cell_number(t->wanted_ns),
		scry_cell_number(t->granted_ns),
		scry_cell_number(t->without_ns),
		scry_cell_number(t->unknown_ns),
		scry_cell_number(t->takes),
		scry_cell_number(t->waits),
		scry_cell_known(t->p50_ns, has_waits),
		scry_cell_known(t->p90_ns, has_waits),
		scry_cell_known(t->p99_ns, has_waits),
		scry_cell_known(t->max_ns, has_waits),
		scry_cell_number(t->older_ns),
		scry_cell_number(t->open_ns),
		scry_cell_number(t->yields),
		scry_cell_number(t->taken_back),
		scry_cell_known(t->forced, is_clear),
		scry_cell_known(t->passes, is_clear),
		scry_cell_number(t->overtakes),
		scry_cell_number(t->runs),
		scry_cell_number(t->runs_ns),
		scry_cell_number(t->run_max_ns),
		scry_cell_number(t->run_most),
		scry_cell_number(t->threads),
		scry_cell_number(t->has_ended),
		scry_cell_text(scry_buf_str(&g->buf), g->buf.len),
		scry_functions_string(g->reader, t->name_str),
	};

	g->doc->ops->row(g->doc, cells);
}

static void push_threads(struct scry_gvl_view *g)
{
	const struct scry_column columns[] = {
		{g->processes > 1 ? "pid" : NULL, "pid", SCRY_CELL_NUMBER, NULL, 0},
		{NULL, "thread", SCRY_CELL_NUMBER, NULL, 0},
		{"tid", "tid", SCRY_CELL_NUMBER, NULL, 0},
		{"others lost s", "lost_ns", SCRY_CELL_TIME, NULL, 0},
		{"held s", "held_ns", SCRY_CELL_TIME, NULL, 0},
		{"waited s", NULL, SCRY_CELL_TIME, NULL, 0},
		{NULL, "wanted_ns", SCRY_CELL_TIME, NULL, 0},
		{NULL, "granted_ns", SCRY_CELL_TIME, NULL, 0},
		{"without s", "without_ns", SCRY_CELL_TIME, NULL, 0},
		{NULL, "unknown_ns", SCRY_CELL_TIME, NULL, 0},
		{NULL, "takes", SCRY_CELL_COUNT, NULL, 0},
		{"waits", "waits", SCRY_CELL_COUNT, NULL, 0},
		{"p50 s", "wait_p50_ns", SCRY_CELL_TIME, NULL, 0},
		{NULL, "wait_p90_ns", SCRY_CELL_TIME, NULL, 0},
		{"p99 s", "wait_p99_ns", SCRY_CELL_TIME, NULL, 0},
		{"max s", "wait_max_ns", SCRY_CELL_TIME, NULL, 0},
		{NULL, "older_wait_ns", SCRY_CELL_TIME, NULL, 0},
		{NULL, "open_wait_ns", SCRY_CELL_TIME, NULL, 0},
		{"yields", "yields", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "taken_back", SCRY_CELL_COUNT, NULL, 0},
		{"forced", "forced", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "passes", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "overtakes", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "convoys", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "convoys_ns", SCRY_CELL_TIME, NULL, 0},
		{NULL, "convoy_max_ns", SCRY_CELL_TIME, NULL, 0},
		{NULL, "convoy_max_takes", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "threads", SCRY_CELL_COUNT, NULL, 0},
		{NULL, "has_ended", SCRY_CELL_BOOL, NULL, 0},
		{"name", NULL, SCRY_CELL_TEXT, NULL, 0},
		{NULL, "name", SCRY_CELL_TEXT, NULL, 0},
	};
	uint64_t top = scry_view_top(g->opts, g->doc), shown = 0, hidden = 0;

	g->doc->section = "threads";
	g->doc->title = NULL;
	scry_doc_table(g->doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (uint32_t i = 0; i < g->thread_count; i++) {
		scry_buf_clear(&g->buf);
		scry_gvl_put_thread(g, &g->threads[i], &g->buf);
		if ((top && shown == top) || !scry_grep_matches(&g->grep, scry_buf_str(&g->buf))) {
			hidden++;
			continue;
		}
		scry_buf_clear(&g->buf);
		scry_gvl_put_name(g, &g->threads[i], &g->buf);
		push_thread(g, &g->threads[i]);
		shown++;
	}
	tell_hidden(g, hidden);
}

static void push_pairs(struct scry_gvl_view *g)
{
	static const struct scry_column columns[] = {
		{NULL, "pid", SCRY_CELL_NUMBER, NULL, 0},
		{"lost s", "lost_ns", SCRY_CELL_TIME, NULL, 0},
		{NULL, "waiter", SCRY_CELL_NUMBER, NULL, 0},
		{NULL, "holder", SCRY_CELL_NUMBER, NULL, 0},
		{"waited", NULL, SCRY_CELL_TEXT, NULL, 0},
		{"while it was held by", NULL, SCRY_CELL_TEXT, NULL, 0},
	};
	uint64_t top = scry_view_top(g->opts, g->doc), shown = 0, hidden = 0;
	struct scry_buf holder = {0};

	g->doc->section = "pairs";
	g->doc->title = "who waited for whom";
	scry_doc_table(g->doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (uint32_t i = 0; i < g->pair_count; i++) {
		const struct scry_ev_gvl_pair *p = &g->pairs[i];

		scry_buf_clear(&g->buf);
		scry_buf_clear(&holder);
		scry_gvl_put_thread(g, scry_gvl_thread_at(g, p->pid, p->waiter), &g->buf);
		scry_gvl_put_thread(g, scry_gvl_thread_at(g, p->pid, p->holder), &holder);
		if ((top && shown == top) ||
		    (!scry_grep_matches(&g->grep, scry_buf_str(&g->buf)) &&
		     !scry_grep_matches(&g->grep, scry_buf_str(&holder)))) {
			hidden++;
			continue;
		}
		{
			const struct scry_cell cells[] = {
				scry_cell_number(p->pid),
				scry_cell_number(p->lost_ns),
				scry_cell_number(p->waiter),
				scry_cell_known(p->holder, p->holder != 0),
				scry_cell_text(scry_buf_str(&g->buf), g->buf.len),
				scry_cell_text(scry_buf_str(&holder), holder.len),
			};

			g->doc->ops->row(g->doc, cells);
		}
		shown++;
	}
	tell_hidden(g, hidden);
	scry_buf_done(&holder);
	g->doc->section = g->doc->title = NULL;
}

/* ---- rows: what --by says ---- */

#define LOST "others lost s"

struct kind {
	const char *title, *lost, *head;
};

static const struct kind kinds[] = {
	[SCRY_VIEW_BY_LINE] = {"lines that made others wait", LOST, "while one held the GVL in"},
	[SCRY_VIEW_BY_METHOD] = {"methods that made others wait", LOST,
				 "while one held the GVL in"},
	[SCRY_VIEW_BY_GEM] = {"gems that made others wait", LOST, "while one held the GVL in"},
	[SCRY_VIEW_BY_THREAD] = {"threads that waited", "lost s", "thread"},
	[SCRY_VIEW_BY_HOLDER] = {"threads that made others wait", LOST, "while it was held by"},
};

static const struct kind waits[] = {
	[SCRY_VIEW_BY_LINE] = {"lines that waited", "lost s", "where one waited"},
	[SCRY_VIEW_BY_METHOD] = {"methods that waited", "lost s", "where one waited"},
	[SCRY_VIEW_BY_GEM] = {"gems that waited", "lost s", "where one waited"},
};

static bool is_by_thread(const struct scry_gvl_view *g)
{
	return g->opts->by == SCRY_VIEW_BY_THREAD || g->opts->by == SCRY_VIEW_BY_HOLDER;
}

static const struct scry_ev_gvl_thread *thread_of(const struct scry_gvl_view *g,
						  const struct scry_gvl_row *row)
{
	return is_by_thread(g) && row->what ? &g->threads[row->what - 1] : NULL;
}

/* With the stack of each waiter: rows are of waits, and not of samples. */
static bool are_waits(const struct scry_gvl_view *g, const struct scry_gvl_lines *l)
{
	return l == &g->waited && g->sum.stacks;
}

enum {
	C_LOST,
	C_TENTHS,
	C_SHARE,
	C_SAMPLES,
	C_WAITS,
	C_MAX,
	C_TEXT,
	C_STACK,
	C_FILE,
	C_LINE,
	C_METHOD,
	C_IS_C,
	C_LIBRARY,
	C_FUNCTION,
	C_GEM,
	C_PID,
	C_THREAD,
	COLUMNS
};

static void set_frame(struct scry_gvl_view *g, uint32_t what, struct scry_frame_row *scratch,
		      struct scry_cell cells[COLUMNS])
{
	const struct scry_frame leaf = scry_frames_get(&g->frames, what);
	uint32_t library;
	struct scry_frame frame = scry_gvl_ruby_frame(g, what, &library),
			  above = scry_frames_get(&g->frames, library);

	if (g->opts->by == SCRY_VIEW_BY_LINE)
		cells[C_STACK] = scry_frames_cell(&g->frames, &g->names, &leaf, scratch);
	cells[C_FILE] = scry_name_text(&g->names, frame.file);
	cells[C_LINE] = scry_cell_known(frame.line, frame.line != 0);
	cells[C_METHOD] = scry_name_text(&g->names, frame.method);
	cells[C_IS_C] = scry_cell_number((frame.flags & SCRY_STACK_C) != 0);
	cells[C_LIBRARY] = scry_name_text(&g->names, above.file);
	cells[C_FUNCTION] = scry_name_text(&g->names, above.method);
}

/* Waits that are short beside the millisecond between two samples are chance: the square root of
 * their number says how much. */
static void push_row(struct scry_gvl_view *g, const struct scry_gvl_row *row,
		     const struct scry_gvl_lines *l, struct scry_frame_row *scratch)
{
	const struct scry_ev_gvl_thread *t = thread_of(g, row);
	const bool has_waits = are_waits(g, l);
	struct scry_cell cells[COLUMNS];

	for (size_t i = 0; i < COLUMNS; i++)
		cells[i] = scry_cell_unknown();
	if (g->opts->by == SCRY_VIEW_BY_GEM)
		cells[C_GEM] =
			scry_name_text(&g->names, scry_frames_get(&g->frames, row->what).method);
	else if (!is_by_thread(g))
		set_frame(g, row->what, scratch, cells);
	cells[C_LOST] = scry_cell_number(row->lost_ns);
	cells[C_TENTHS] = scry_cell_number(scry_share(row->lost_ns, l->lost_ns, 1000));
	cells[C_SHARE] = scry_cell_number(scry_share(row->lost_ns, l->lost_ns, 100));
	cells[C_SAMPLES] = scry_cell_known(row->samples, !is_by_thread(g) && !has_waits);
	cells[C_WAITS] = scry_cell_known(row->waits, has_waits);
	cells[C_MAX] = scry_cell_known(row->max_ns, has_waits && row->waits);
	cells[C_TEXT] = scry_cell_text(scry_buf_str(&g->buf), g->buf.len);
	cells[C_PID] = scry_cell_known(t ? t->pid : 0, t);
	cells[C_THREAD] = scry_cell_known(t ? t->thread : 0, t);
	g->doc->ops->row(g->doc, cells);
}

static void push_rows(struct scry_gvl_view *g, const struct scry_gvl_lines *l,
		      const struct kind *kind)
{
	const bool has_waits = are_waits(g, l), is_waiting = l == &g->waited;
	const struct scry_column columns[COLUMNS] = {
		[C_LOST] = {kind->lost, "lost_ns", SCRY_CELL_TIME, NULL, 0},
		[C_TENTHS] = {"%", NULL, SCRY_CELL_TENTHS, NULL, 0},
		[C_SHARE] = {NULL, "share_pct", SCRY_CELL_NUMBER, NULL, 0},
		[C_SAMPLES] = {is_by_thread(g) || has_waits ? NULL : "samples", "samples",
			       SCRY_CELL_COUNT, NULL, 0},
		[C_WAITS] = {has_waits ? "waits" : NULL, is_waiting ? "waits" : NULL,
			     SCRY_CELL_COUNT, NULL, 0},
		[C_MAX] = {has_waits ? "max s" : NULL, is_waiting ? "wait_max_ns" : NULL,
			   SCRY_CELL_TIME, NULL, 0},
		[C_TEXT] = {kind->head, NULL, SCRY_CELL_TEXT, NULL, 0},
		[C_STACK] = {NULL, "frames", SCRY_CELL_FRAMES, NULL, 0},
		[C_FILE] = {NULL, "file", SCRY_CELL_TEXT, NULL, 0},
		[C_LINE] = {NULL, "line", SCRY_CELL_NUMBER, NULL, 0},
		[C_METHOD] = {NULL, "method", SCRY_CELL_TEXT, NULL, 0},
		[C_IS_C] = {NULL, "is_c", SCRY_CELL_BOOL, NULL, 0},
		[C_LIBRARY] = {NULL, "library", SCRY_CELL_TEXT, NULL, 0},
		[C_FUNCTION] = {NULL, "function", SCRY_CELL_SYMBOL, NULL, 0},
		[C_GEM] = {NULL, "gem", SCRY_CELL_TEXT, NULL, 0},
		[C_PID] = {NULL, "pid", SCRY_CELL_NUMBER, NULL, 0},
		[C_THREAD] = {NULL, "thread", SCRY_CELL_NUMBER, NULL, 0},
	};
	uint64_t top = scry_view_top(g->opts, g->doc), shown = 0, hidden = 0;
	struct scry_frame_row scratch = {0};

	g->doc->weight = "lost_ns";
	g->doc->title = kind->title;
	scry_doc_table(g->doc, columns, COLUMNS);
	for (uint32_t i = 0; i < l->count; i++) {
		scry_buf_clear(&g->buf);
		if (is_by_thread(g))
			scry_gvl_put_thread(g, thread_of(g, &l->rows[i]), &g->buf);
		else
			scry_gvl_put_row(g, l->rows[i].what, &g->buf);
		if ((top && shown == top) || !scry_grep_matches(&g->grep, scry_buf_str(&g->buf))) {
			hidden++;
			continue;
		}
		push_row(g, &l->rows[i], l, &scratch);
		shown++;
	}
	tell_hidden(g, hidden);
	free(scratch.frames);
	g->doc->title = NULL;
}

/* What each thread lost, or made others lose; what is left was lost while it changed hands. */
static void push_by_thread(struct scry_gvl_view *g)
{
	const bool is_holder = g->opts->by == SCRY_VIEW_BY_HOLDER;
	struct scry_gvl_lines l = {.rows = calloc(g->thread_count + 1ull, sizeof(*l.rows)),
				   .lost_ns = scry_gvl_waited_all_ns(g)};

	for (uint32_t i = 0; l.rows && i < g->thread_count; i++) {
		const struct scry_ev_gvl_thread *t = &g->threads[i];
		const uint64_t lost = is_holder ? t->lost_ns : scry_gvl_waited_ns(t);

		if (lost)
			l.rows[l.count++] = (struct scry_gvl_row){.what = i + 1, .lost_ns = lost};
	}
	if (l.rows && is_holder && g->sum.handing_ns)
		l.rows[l.count++] = (struct scry_gvl_row){.lost_ns = g->sum.handing_ns};
	if (l.count)
		qsort(l.rows, l.count, sizeof(*l.rows), scry_gvl_row_compare);
	if (l.count || g->doc->is_data)
		push_rows(g, &l, &kinds[g->opts->by]);
	free(l.rows);
}

void scry_gvl_push_stacks(struct scry_gvl_view *g)
{
	push_rows(g, &g->held, &kinds[g->opts->by]);
}

static void push_runnable(struct scry_gvl_view *g)
{
	static const struct scry_column columns[] = {
		{"threads", "threads", SCRY_CELL_NUMBER, NULL, 0},
		{"seconds", "time_ns", SCRY_CELL_TIME, NULL, 0},
		{"%", NULL, SCRY_CELL_TENTHS, NULL, 0},
	};
	const struct scry_ev_gvl *s = &g->sum;
	const uint64_t known = scry_gvl_known_ns(g);
	const uint64_t times[] = {s->runnable0_ns, s->runnable1_ns, s->runnable2_ns,
				  s->runnable3_ns, s->runnable4_ns, s->runnable5_ns,
				  s->runnable6_ns, s->runnable7_ns};

	g->doc->section = "runnable";
	g->doc->title = "time with so many threads that held or wanted the GVL (7: or more)";
	scry_doc_table(g->doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (uint64_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		const uint64_t ns = times[i];
		const struct scry_cell cells[] = {scry_cell_number(i), scry_cell_number(ns),
						  scry_cell_number(scry_share(ns, known, 1000))};

		if (ns || g->doc->is_data)
			g->doc->ops->row(g->doc, cells);
	}
	g->doc->section = g->doc->title = NULL;
}

void scry_gvl_push_tables(struct scry_gvl_view *g)
{
	if (is_by_thread(g))
		push_by_thread(g);
	else if (g->held.count || g->doc->is_data)
		push_rows(g, &g->held, &kinds[g->opts->by]);
	g->doc->section = "waiting";
	if (!is_by_thread(g) && (g->waited.count || g->doc->is_data))
		push_rows(g, &g->waited, &waits[g->opts->by]);
	g->doc->section = NULL;
	if (g->thread_count || g->doc->is_data)
		push_threads(g);
	if (g->pair_count || g->doc->is_data)
		push_pairs(g);
	if (g->locks || g->doc->is_data)
		push_runnable(g);
}
