/*
 * The tables of the gvl view: what made others wait, threads, pairs, and how many wanted the lock
 * at a time. See gvl.h.
 */
#include "view/gvl.h"
#include "view/gvl_chance.h"

#include <stdlib.h>

#include "base/text.h"
#include "view/functions.h"
#include "view/gvl_check.h"
#include "view/table.h"

#define NUMBER(member) SCRY_AT(struct scry_ev_gvl_thread, member)
#define GET(name, ...) SCRY_GET(name, struct scry_ev_gvl_thread, struct scry_gvl_view, __VA_ARGS__)

/* Switches that the VM forced are distinguished from others where it says so. */
static bool is_clear(const struct scry_ev_gvl_thread *t)
{
	return t->forced || t->passes || !t->yields;
}

static bool has_quantiles(const struct scry_ev_gvl_thread *t)
{
	return t->waits && t->thread < SCRY_GVL_SUMS_FROM;
}

static struct scry_cell native_cell(const struct scry_ev_gvl_thread *t, bool is_rest)
{
	const struct scry_gvl_native native = scry_gvl_native_of(t);

	return scry_cell_known(is_rest ? t->without_ns - native.ns : native.ns, native.is_known);
}

static struct scry_cell least_cell(const struct scry_ev_gvl_thread *t)
{
	const struct scry_gvl_native native = scry_gvl_native_of(t);

	return scry_cell_known(native.is_least, native.is_known);
}

static bool is_sampled(const struct scry_ev_gvl_thread *t)
{
	return t->ran_held_ns || t->ran_else_ns;
}

GET(get_cpu, scry_cell_known(row->cpu_ns - 1, row->cpu_ns != 0))
GET(get_native, native_cell(row, false))
GET(get_off, native_cell(row, true))
GET(get_is_least, least_cell(row))
GET(get_ran_held, scry_cell_known(row->ran_held_ns, is_sampled(row)))
GET(get_ran_else, scry_cell_known(row->ran_else_ns, is_sampled(row)))
GET(get_ran_waiting, scry_cell_known(scry_gvl_ran_waiting_ns(row), row->cpu_ns != 0))
GET(get_ran_waiting_ppm,
    scry_cell_known(scry_gvl_ppm(scry_gvl_ran_waiting_ns(row), row->cpu_ns), row->cpu_ns > 1))
GET(get_contradicted, scry_cell_known(row->contradicted, row->looks != 0))
GET(get_contradicted_ppm,
    scry_cell_known(scry_gvl_ppm(row->contradicted, row->looks), row->looks != 0))
GET(get_ractor, scry_cell_known(scry_gvl_ractor_of(row), scry_gvl_ractor_of(row) != 0))
GET(get_tid, scry_cell_known(row->tid, row->tid != 0))
GET(get_waited, scry_cell_number(scry_gvl_waited_ns(row)))
GET(get_p50, scry_cell_known(row->p50_ns, has_quantiles(row)))
GET(get_p90, scry_cell_known(row->p90_ns, has_quantiles(row)))
GET(get_p99, scry_cell_known(row->p99_ns, has_quantiles(row)))
GET(get_max, scry_cell_known(row->max_ns, row->waits != 0))
GET(get_forced, scry_cell_known(row->forced, is_clear(row)))
GET(get_passes, scry_cell_known(row->passes, is_clear(row)))
GET(get_thread, (scry_gvl_put_thread(view, row, buf), scry_cell_buf(buf)))
GET(get_shown_name,
    (scry_gvl_put_name(view, row, buf), scry_cell_text(scry_buf_str(buf), buf->len)))
GET(get_name, scry_functions_string(view->reader, row->name_str))

static void push_threads(struct scry_gvl_view *g)
{
	const struct scry_column columns[] = {
		{g->process_count > 1 ? "pid" : NULL, "pid", SCRY_CELL_NUMBER, NUMBER(pid)},
		{NULL, "thread", SCRY_CELL_NUMBER, NUMBER(thread)},
		{scry_gvl_has_ractors(g) ? "ractor" : NULL, "ractor", SCRY_CELL_NUMBER, get_ractor,
		 0},
		{"tid", "tid", SCRY_CELL_NUMBER, get_tid, 0},
		{"others lost s", "lost_ns", SCRY_CELL_TIME, NUMBER(lost_ns)},
		{"held s", "held_ns", SCRY_CELL_TIME, NUMBER(held_ns)},
		{"waited s", NULL, SCRY_CELL_TIME, get_waited, 0},
		{NULL, "wanted_ns", SCRY_CELL_TIME, NUMBER(wanted_ns)},
		{"granted s", "granted_ns", SCRY_CELL_TIME, NUMBER(granted_ns)},
		{"without s", "without_ns", SCRY_CELL_TIME, NUMBER(without_ns)},
		{scry_gvl_is_native_least(g) ? ">=native s" : "~native s", "without_native_ns",
		 SCRY_CELL_TIME, get_native, 0},
		{NULL, "without_native_is_least", SCRY_CELL_BOOL, get_is_least, 0},
		{NULL, "without_off_ns", SCRY_CELL_TIME, get_off, 0},
		{NULL, "cpu_ns", SCRY_CELL_TIME, get_cpu, 0},
		{NULL, "cpu_held_ns", SCRY_CELL_TIME, get_ran_held, 0},
		{NULL, "cpu_else_ns", SCRY_CELL_TIME, get_ran_else, 0},
		{NULL, "ran_waiting_ns", SCRY_CELL_TIME, get_ran_waiting, 0},
		{NULL, "ran_waiting_ppm", SCRY_CELL_NUMBER, get_ran_waiting_ppm, 0},
		{NULL, "looks", SCRY_CELL_COUNT, NUMBER(looks)},
		{NULL, "contradicted", SCRY_CELL_COUNT, get_contradicted, 0},
		{NULL, "contradicted_ppm", SCRY_CELL_NUMBER, get_contradicted_ppm, 0},
		{NULL, "unknown_ns", SCRY_CELL_TIME, NUMBER(unknown_ns)},
		{NULL, "takes", SCRY_CELL_COUNT, NUMBER(takes)},
		{"waits", "waits", SCRY_CELL_COUNT, NUMBER(waits)},
		{"p50 s", "wait_p50_ns", SCRY_CELL_TIME, get_p50, 0},
		{"p90 s", "wait_p90_ns", SCRY_CELL_TIME, get_p90, 0},
		{"p99 s", "wait_p99_ns", SCRY_CELL_TIME, get_p99, 0},
		{"max s", "wait_max_ns", SCRY_CELL_TIME, get_max, 0},
		{NULL, "older_wait_ns", SCRY_CELL_TIME, NUMBER(older_ns)},
		{NULL, "open_wait_ns", SCRY_CELL_TIME, NUMBER(open_ns)},
		{"yields", "yields", SCRY_CELL_COUNT, NUMBER(yields)},
		{NULL, "taken_back", SCRY_CELL_COUNT, NUMBER(taken_back)},
		{"forced", "forced", SCRY_CELL_COUNT, get_forced, 0},
		{NULL, "passes", SCRY_CELL_COUNT, get_passes, 0},
		{NULL, "overtakes", SCRY_CELL_COUNT, NUMBER(overtakes)},
		{NULL, "convoys", SCRY_CELL_COUNT, NUMBER(runs)},
		{NULL, "convoys_ns", SCRY_CELL_TIME, NUMBER(runs_ns)},
		{NULL, "convoy_max_ns", SCRY_CELL_TIME, NUMBER(run_max_ns)},
		{NULL, "convoy_max_takes", SCRY_CELL_COUNT, NUMBER(run_most)},
		{NULL, "threads", SCRY_CELL_COUNT, NUMBER(threads)},
		{NULL, "has_ended", SCRY_CELL_BOOL, NUMBER(has_ended)},
		{"name", NULL, SCRY_CELL_TEXT, get_shown_name, 0},
		{NULL, "name", SCRY_CELL_TEXT, get_name, 0},
		{NULL, NULL, SCRY_CELL_TEXT, get_thread, SCRY_COLUMN_GREP},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns),
					 SCRY_ROWS(g->threads, g->thread_count),
					 .view = g,
					 .grep = &g->grep,
					 .filter = &g->opts->filter,
					 .sort = g->opts->sort_key,
					 .top = scry_view_top(g->opts, g->doc)};

	g->doc->section = "threads";
	g->doc->title = NULL;
	scry_table_push(&table, g->doc);
}
#undef NUMBER
#undef GET

#define NUMBER(member) SCRY_AT(struct scry_ev_gvl_pair, member)
#define GET(name, ...) SCRY_GET(name, struct scry_ev_gvl_pair, struct scry_gvl_view, __VA_ARGS__)

static struct scry_cell thread_cell(struct scry_gvl_view *g, uint32_t pid, uint32_t thread,
				    struct scry_buf *buf)
{
	scry_gvl_put_thread(g, scry_gvl_thread_at(g, pid, thread), buf);
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

GET(get_pair_waits, scry_cell_known(row->waits, row->waits != 0))
static struct scry_cell name_of_thread(struct scry_gvl_view *g, uint32_t pid, uint32_t thread)
{
	const struct scry_ev_gvl_thread *t = scry_gvl_thread_at(g, pid, thread);

	return t ? scry_functions_string(g->reader, t->name_str) : scry_cell_unknown();
}

GET(get_pair_ractor, scry_cell_number(row->waiter / SCRY_GVL_RACTOR + 1))
GET(get_holder_number, scry_cell_known(row->holder, row->holder != 0))
GET(get_waiter, thread_cell(view, row->pid, row->waiter, buf))
GET(get_holder, thread_cell(view, row->pid, row->holder, buf))
GET(get_waiter_name, name_of_thread(view, row->pid, row->waiter))
GET(get_holder_name, name_of_thread(view, row->pid, row->holder))

static void push_pairs(struct scry_gvl_view *g)
{
	static const struct scry_column columns[] = {
		{NULL, "pid", SCRY_CELL_NUMBER, NUMBER(pid)},
		{NULL, "ractor", SCRY_CELL_NUMBER, get_pair_ractor, 0},
		{"lost s", "lost_ns", SCRY_CELL_TIME, NUMBER(lost_ns)},
		{"waits", "waits", SCRY_CELL_COUNT, get_pair_waits, 0},
		{NULL, "waiter", SCRY_CELL_NUMBER, NUMBER(waiter)},
		{NULL, NULL, SCRY_CELL_TEXT, get_waiter_name, SCRY_COLUMN_FILTER},
		{"waited", NULL, SCRY_CELL_TEXT, get_waiter, SCRY_COLUMN_GREP | SCRY_COLUMN_FILTER},
		{NULL, "holder", SCRY_CELL_NUMBER, get_holder_number, 0},
		{NULL, NULL, SCRY_CELL_TEXT, get_holder_name, SCRY_COLUMN_FILTER},
		{"while it was held by", NULL, SCRY_CELL_TEXT, get_holder,
		 SCRY_COLUMN_GREP | SCRY_COLUMN_FILTER},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns),
					 SCRY_ROWS(g->pairs, g->pair_count),
					 .view = g,
					 .order = scry_gvl_pair_compare,
					 .grep = &g->grep,
					 .filter = &g->opts->filter,
					 .sort = g->opts->sort_key,
					 .top = scry_view_top(g->opts, g->doc)};

	g->doc->section = "pairs";
	g->doc->title = "which thread waited for which";
	scry_table_push(&table, g->doc);
	g->doc->section = g->doc->title = NULL;
}
#undef NUMBER
#undef GET

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
						  const struct scry_gvl_line *row)
{
	return is_by_thread(g) && row->what ? &g->threads[row->what - 1] : NULL;
}

/* With the stack of each waiter: rows are of waits, and not of samples. */
static bool are_waits(const struct scry_gvl_view *g, const struct scry_gvl_lines *l)
{
	return l == &g->waited && g->sum.stacks;
}

/* ---- their columns ---- */

struct rows {
	struct scry_gvl_view *g;
	const struct scry_gvl_lines *lines;
	bool has_waits;
	uint64_t turns;
	struct scry_frame_row scratch;
};

#define NUMBER(member) SCRY_AT(struct scry_gvl_line, member)
#define GET(name, ...) SCRY_GET(name, struct scry_gvl_line, struct rows, __VA_ARGS__)

static bool has_frames(const struct rows *r)
{
	return !is_by_thread(r->g) && r->g->opts->by != SCRY_VIEW_BY_GEM;
}

/* The frame of Ruby, or (is_above) the library's function that it called; unknown: there is none.
 */
static struct scry_frame frame_of(const struct rows *r, const struct scry_gvl_line *row,
				  bool is_above)
{
	uint32_t library;
	const struct scry_frame ruby = scry_gvl_ruby_frame(r->g, row->what, &library);

	if (!has_frames(r))
		return (struct scry_frame){0};
	return is_above ? scry_frames_get(&r->g->frames, library) : ruby;
}

static struct scry_cell name_cell(const struct rows *r, uint32_t name)
{
	return scry_name_text(&r->g->names, name);
}

static struct scry_cell stack_cell(struct rows *r, const struct scry_gvl_line *row)
{
	const struct scry_frame leaf = scry_frames_get(&r->g->frames, row->what);

	if (r->g->opts->by != SCRY_VIEW_BY_LINE)
		return scry_cell_unknown();
	return scry_frames_cell(&r->g->frames, &r->g->names, &leaf, &r->scratch);
}

static struct scry_cell row_text(struct rows *r, const struct scry_gvl_line *row,
				 struct scry_buf *buf)
{
	if (is_by_thread(r->g))
		scry_gvl_put_thread(r->g, thread_of(r->g, row), buf);
	else
		scry_gvl_put_row(r->g, row, buf);
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

static struct scry_cell gem_cell(const struct rows *r, const struct scry_gvl_line *row)
{
	const bool is_by_gem = r->g->opts->by == SCRY_VIEW_BY_GEM;

	return name_cell(r, is_by_gem ? scry_frames_get(&r->g->frames, row->what).method : 0);
}

static struct scry_cell c_cell(const struct rows *r, const struct scry_gvl_line *row)
{
	const bool is_c = frame_of(r, row, false).flags & SCRY_STACK_C;

	return scry_cell_known(is_c, has_frames(r));
}

static struct scry_cell line_cell(const struct rows *r, const struct scry_gvl_line *row)
{
	const uint32_t line = frame_of(r, row, false).line;

	return scry_cell_known(line, line != 0);
}

static struct scry_cell of_thread(const struct rows *r, const struct scry_gvl_line *row,
				  bool is_pid)
{
	const struct scry_ev_gvl_thread *t = thread_of(r->g, row);

	return scry_cell_known(!t ? 0 : is_pid ? t->pid : t->thread, t);
}

/* What samples say; of what is of no line there is nothing to be sure of. */
static struct scry_cell error_cell(const struct rows *r, const struct scry_gvl_line *row)
{
	return scry_cell_known(scry_gvl_error_ns(r->lines, row, r->turns),
			       row->what && row->samples && !is_by_thread(r->g) && !r->has_waits);
}

GET(get_error, error_cell(view, row))
GET(get_tenths, scry_cell_number(scry_share(row->lost_ns, view->lines->lost_ns, 1000)))
GET(get_share, scry_cell_number(scry_share(row->lost_ns, view->lines->lost_ns, 100)))
GET(get_samples, scry_cell_known(row->samples, !is_by_thread(view->g) && !view->has_waits))
GET(get_waits, scry_cell_known(row->waits, view->has_waits))
GET(get_wait_max, scry_cell_known(row->max_ns, view->has_waits && row->waits && row->max_ns))
GET(get_text, row_text(view, row, buf))
GET(get_frames, stack_cell(view, row))
GET(get_file, name_cell(view, frame_of(view, row, false).file))
GET(get_line, line_cell(view, row))
GET(get_method, name_cell(view, frame_of(view, row, false).method))
GET(get_is_c, c_cell(view, row))
GET(get_library, name_cell(view, frame_of(view, row, true).file))
GET(get_function, name_cell(view, frame_of(view, row, true).method))
GET(get_gem, gem_cell(view, row))
GET(get_pid, of_thread(view, row, true))
GET(get_number, of_thread(view, row, false))

static void push_rows(struct scry_gvl_view *g, const struct scry_gvl_lines *l,
		      const struct kind *kind)
{
	const bool is_waiting = l == &g->waited;
	struct rows rows = {g, l, .has_waits = are_waits(g, l), .turns = scry_gvl_all_turns(g, l)};
	const bool has_samples = !is_by_thread(g) && !rows.has_waits;
	const struct scry_column columns[] = {
		{kind->lost, "lost_ns", SCRY_CELL_TIME, NUMBER(lost_ns)},
		{has_samples ? "+- s" : NULL, "lost_error_ns", SCRY_CELL_TIME, get_error, 0},
		{"%", NULL, SCRY_CELL_TENTHS, get_tenths, 0},
		{NULL, "share_pct", SCRY_CELL_NUMBER, get_share, 0},
		{has_samples ? "samples" : NULL, "samples", SCRY_CELL_COUNT, get_samples, 0},
		{rows.has_waits ? "waits" : NULL, is_waiting ? "waits" : NULL, SCRY_CELL_COUNT,
		 get_waits, 0},
		{rows.has_waits ? "max s" : NULL, is_waiting ? "wait_max_ns" : NULL, SCRY_CELL_TIME,
		 get_wait_max, 0},
		{kind->head, NULL, SCRY_CELL_TEXT, get_text, SCRY_COLUMN_GREP},
		{NULL, "frames", SCRY_CELL_FRAMES, get_frames, 0},
		{NULL, "file", SCRY_CELL_TEXT, get_file, SCRY_COLUMN_GREP},
		{NULL, "line", SCRY_CELL_NUMBER, get_line, 0},
		{NULL, "method", SCRY_CELL_TEXT, get_method, 0},
		{NULL, "is_c", SCRY_CELL_BOOL, get_is_c, 0},
		{NULL, "library", SCRY_CELL_TEXT, get_library, 0},
		{NULL, "function", SCRY_CELL_SYMBOL, get_function, 0},
		{NULL, "gem", SCRY_CELL_TEXT, get_gem, 0},
		{NULL, "pid", SCRY_CELL_NUMBER, get_pid, 0},
		{NULL, "thread", SCRY_CELL_NUMBER, get_number, 0},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns),
					 SCRY_ROWS(l->rows, l->count),
					 .view = &rows,
					 .order = scry_gvl_row_compare,
					 .grep = &g->grep,
					 .filter = &g->opts->filter,
					 .sort = g->opts->sort_key,
					 .top = scry_view_top(g->opts, g->doc)};

	g->doc->weight = "lost_ns";
	g->doc->title = kind->title;
	scry_table_push(&table, g->doc);
	free(rows.scratch.frames);
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
			l.rows[l.count++] = (struct scry_gvl_line){.what = i + 1, .lost_ns = lost};
	}
	if (l.rows && is_holder && g->sum.handing_ns)
		l.rows[l.count++] = (struct scry_gvl_line){.lost_ns = g->sum.handing_ns};
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

#undef NUMBER
#undef GET

struct runnable {
	uint64_t threads, ns;
};

#define GET(name, ...) SCRY_GET(name, struct runnable, struct scry_gvl_view, __VA_ARGS__)
GET(get_runnable_tenths, scry_cell_number(scry_share(row->ns, scry_gvl_known_ns(view), 1000)))
#undef GET

static bool was_so(const void *row, void *view)
{
	const struct runnable *r = row;

	return r->ns || ((struct scry_gvl_view *)view)->doc->is_data;
}

static void push_runnable(struct scry_gvl_view *g)
{
	static const struct scry_column columns[] = {
		{"threads", "threads", SCRY_CELL_NUMBER, SCRY_AT(struct runnable, threads)},
		{"seconds", "time_ns", SCRY_CELL_TIME, SCRY_AT(struct runnable, ns)},
		{"%", NULL, SCRY_CELL_TENTHS, get_runnable_tenths, 0},
	};
	const struct scry_ev_gvl *s = &g->sum;
	const struct runnable rows[] = {
		{0, s->runnable0_ns}, {1, s->runnable1_ns}, {2, s->runnable2_ns},
		{3, s->runnable3_ns}, {4, s->runnable4_ns}, {5, s->runnable5_ns},
		{6, s->runnable6_ns}, {7, s->runnable7_ns},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns),
					 SCRY_ROWS(rows, sizeof(rows) / sizeof(rows[0])), .view = g,
					 .has = was_so};

	g->doc->section = "runnable";
	g->doc->title = "time with so many threads that held or wanted the GVL (7: or more)";
	scry_table_push(&table, g->doc);
	g->doc->section = g->doc->title = NULL;
}

/* ---- locks ---- */

#define NUMBER(member) SCRY_AT(struct scry_gvl_lock_sum, member)
#define GET(name, ...) SCRY_GET(name, struct scry_gvl_lock_sum, struct scry_gvl_view, __VA_ARGS__)
GET(get_contended, scry_cell_number(scry_share(row->contended_ns, row->known_ns, 1000)))
GET(get_more, scry_cell_number(row->runnable_ns[3] + row->runnable_ns[4] + row->runnable_ns[5] +
			       row->runnable_ns[6] + row->runnable_ns[7]))

static int by_contended(const void *left, const void *right)
{
	const struct scry_gvl_lock_sum *a = left, *b = right;
	int order = scry_functions_compare(b->contended_ns, a->contended_ns);

	order = order ? order : scry_functions_compare(b->held_ns, a->held_ns);
	order = order ? order : scry_functions_compare(a->pid, b->pid);
	return order ? order : scry_functions_compare(a->ractor, b->ractor);
}

static void push_locks(struct scry_gvl_view *g)
{
	const struct scry_column columns[] = {
		{g->process_count > 1 ? "pid" : NULL, "pid", SCRY_CELL_NUMBER, NUMBER(pid)},
		{"ractor", "ractor", SCRY_CELL_NUMBER, NUMBER(ractor)},
		{"watched s", "known_ns", SCRY_CELL_TIME, NUMBER(known_ns)},
		{NULL, "unknown_ns", SCRY_CELL_TIME, NUMBER(unknown_ns)},
		{"wanted s", "contended_ns", SCRY_CELL_TIME, NUMBER(contended_ns)},
		{"%", NULL, SCRY_CELL_TENTHS, get_contended, 0},
		{"held s", "held_ns", SCRY_CELL_TIME, NUMBER(held_ns)},
		{"waited s", "waited_ns", SCRY_CELL_TIME, NUMBER(waited_ns)},
		{"free s", "runnable0_ns", SCRY_CELL_TIME, NUMBER(runnable_ns[0])},
		{"one s", "runnable1_ns", SCRY_CELL_TIME, NUMBER(runnable_ns[1])},
		{"two s", "runnable2_ns", SCRY_CELL_TIME, NUMBER(runnable_ns[2])},
		{"more s", NULL, SCRY_CELL_TIME, get_more, 0},
		{NULL, "runnable3_ns", SCRY_CELL_TIME, NUMBER(runnable_ns[3])},
		{NULL, "runnable4_ns", SCRY_CELL_TIME, NUMBER(runnable_ns[4])},
		{NULL, "runnable5_ns", SCRY_CELL_TIME, NUMBER(runnable_ns[5])},
		{NULL, "runnable6_ns", SCRY_CELL_TIME, NUMBER(runnable_ns[6])},
		{NULL, "runnable7_ns", SCRY_CELL_TIME, NUMBER(runnable_ns[7])},
		{"threads", "threads", SCRY_CELL_COUNT, NUMBER(threads)},
		{NULL, "is_over", SCRY_CELL_BOOL, NUMBER(is_over)},
	};
	const struct scry_table table = {SCRY_COLUMNS(columns), SCRY_ROWS(g->locks, g->lock_count),
					 .view = g, .order = by_contended,
					 .top = scry_view_top(g->opts, g->doc)};

	g->doc->section = "locks";
	g->doc->title =
		"ractors, each with a lock of its own; time in which it was free, and one, two "
		"or more threads held or wanted it";
	if (g->lock_count)
		qsort(g->locks, g->lock_count, sizeof(*g->locks), by_contended);
	scry_table_push(&table, g->doc);
	g->doc->section = g->doc->title = NULL;
}
#undef NUMBER
#undef GET

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
	if (scry_gvl_has_ractors(g) || g->doc->is_data)
		push_locks(g);
	if ((g->events && !scry_gvl_has_ractors(g)) || g->doc->is_data)
		push_runnable(g);
}
