/*
 * The syscalls view: which code makes system calls, how many and in how much of the time, and which
 * of them were in vain. A row is an instruction of an object (by place), a call, or a thread;
 * places of the same object and offset are one row, in whatever process they were.
 */
#include "view/syscalls.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "view/functions.h"
#include "view/grep.h"
#include "wire/bpf_syscalls.h"

#define ROWS_MAX (1u << 20)
#define CALLERS_SHOWN 3
#define LITTLE 50      /* of a thousand: less of the time in system calls is nothing to win */
#define CALLER_MOST 90 /* percent: it stands for all */

/* --- reading --------------------------------------------------------------------------------- */

static int no_memory(void)
{
	return scry_fail(-ENOMEM, "no memory for rows of system calls");
}

static int on_site(struct scry_syscall_view *v, const struct scry_ev_syscall_site *ev)
{
	if (v->site_count == v->site_room) {
		size_t room = v->site_room ? 2 * v->site_room : 256;
		struct scry_ev_syscall_site *more = reallocarray(v->sites, room, sizeof(*more));

		if (!more)
			return no_memory();
		v->sites = more;
		v->site_room = room;
	}
	if (scry_map_put(&v->by_site, ev->site, v->site_count + 1) < 0)
		return no_memory();
	v->sites[v->site_count++] = *ev;
	return 0;
}

static struct scry_syscall_row *row_of(struct scry_syscall_table *t, const void *key, size_t size)
{
	const uint32_t count = t->keys.count;
	uint32_t id = 0;

	if (count == t->room) {
		size_t room = t->room ? 2 * t->room : 256;
		struct scry_syscall_row *more = reallocarray(t->rows, room, sizeof(*more));

		if (!more)
			return NULL;
		t->rows = more;
		t->room = room;
	}
	if (scry_intern_put(&t->keys, key, size, &id) < 0)
		return NULL;
	if (t->keys.count != count)
		t->rows[count] = (struct scry_syscall_row){0};
	return &t->rows[id - 1];
}

/* The row of a place: the same in all processes. */
static struct scry_syscall_row *place_of(struct scry_syscall_view *v, uint32_t number)
{
	struct { /* no padding */
		uint32_t number, abi, module, symbol;
		uint64_t offset;
	} key;
	struct scry_syscall_row *row;
	uint64_t at;

	if (!scry_map_get(&v->by_site, number, &at))
		return NULL;
	key.number = v->sites[at - 1].number;
	key.abi = v->sites[at - 1].abi;
	key.module = v->sites[at - 1].module_str;
	key.symbol = v->sites[at - 1].symbol_str;
	key.offset = v->sites[at - 1].offset;
	row = row_of(&v->places, &key, sizeof(key));
	if (row && !row->site)
		row->site = (uint32_t)at;
	return row;
}

/* The row that is shown of what a thread did at a site, where rows are no places. */
static struct scry_syscall_row *shown_of(struct scry_syscall_view *v,
					 const struct scry_ev_syscall *ev, uint64_t site)
{
	const struct scry_ev_syscall_site *s = &v->sites[site - 1];
	uint32_t key[2] = {s->number, s->abi};
	struct scry_syscall_row *row;

	if (v->opts->by == SCRY_VIEW_BY_THREAD) {
		key[0] = ev->pid;
		key[1] = ev->tid;
	}
	row = row_of(&v->shown, key, sizeof(key));
	if (row && !row->site) {
		row->site = (uint32_t)site;
		row->pid = ev->pid;
		row->tid = ev->tid;
	}
	if (row && ev->thread_str)
		row->thread_str = ev->thread_str;
	return row;
}

static void add(struct scry_syscall_row *row, const struct scry_ev_syscall *ev)
{
	row->calls += ev->calls;
	row->errors += ev->errors;
	row->again += ev->again;
	row->absent += ev->absent;
	row->ticks += ev->ticks;
	row->asked += ev->asked;
	row->vain += ev->vain;
	row->timed += ev->timed;
	row->total_ns += ev->total_ns;
	row->max_ns = ev->max_ns > row->max_ns ? ev->max_ns : row->max_ns;
	row->what = ev->what ? ev->what : row->what;
	row->error = ev->error ? ev->error : row->error;
}

static int on_sum(struct scry_syscall_view *v, const struct scry_ev_syscall *ev)
{
	struct scry_syscall_row *row;
	uint64_t site;

	if ((v->opts->pid && v->opts->pid != ev->pid) ||
	    !scry_map_get(&v->by_site, ev->site, &site))
		return 0;
	row = place_of(v, ev->site);
	if (!row)
		return no_memory();
	add(row, ev);
	if (v->opts->by == SCRY_VIEW_BY_LINE)
		return 0;
	row = shown_of(v, ev, site);
	if (!row)
		return no_memory();
	add(row, ev);
	return 0;
}

static int add_step(struct scry_syscall_row *row, const struct scry_ev_syscall_time *ev)
{
	struct scry_syscall_step *more;
	size_t at = 0;

	while (at < row->step_count && row->steps[at].from_ns < ev->from_ns)
		at++;
	if (at < row->step_count && row->steps[at].from_ns == ev->from_ns) {
		row->steps[at].calls += ev->calls;
		return 0;
	}
	more = reallocarray(row->steps, row->step_count + 1, sizeof(*more));
	if (!more)
		return no_memory();
	row->steps = more;
	memmove(more + at + 1, more + at, (row->step_count - at) * sizeof(*more));
	more[at] = (struct scry_syscall_step){ev->from_ns, ev->to_ns, ev->calls};
	row->step_count++;
	return 0;
}

static int on_time(struct scry_syscall_view *v, const struct scry_ev_syscall_time *ev)
{
	struct scry_syscall_row *row;
	uint64_t site;
	int r = 0;

	if (!scry_map_get(&v->by_site, ev->site, &site))
		return 0;
	if (v->opts->pid && v->opts->pid != v->sites[site - 1].pid)
		return 0;
	row = place_of(v, ev->site);
	if (row)
		r = add_step(row, ev);
	if (r || v->opts->by != SCRY_VIEW_BY_SYSCALL)
		return r;
	row = shown_of(v, &(struct scry_ev_syscall){.pid = v->sites[site - 1].pid}, site);
	return row ? add_step(row, ev) : no_memory();
}

/* "b+0x12 < main+0x40": who called the function that has the instruction. */
static void put_callers(struct scry_syscall_view *v, uint32_t stack, struct scry_buf *buf)
{
	struct scry_doc_frame frames[SCRY_NATIVE_DEPTH];
	uint32_t count = scry_native_frames_frames(&v->frames, v->reader, stack, frames);

	for (uint32_t i = 1; i < count && i <= CALLERS_SHOWN; i++) {
		const struct scry_doc_frame *f = &frames[count - 1 - i];

		if (i > 1)
			scry_buf_printf(buf, " < ");
		scry_native_frame_name(f, buf);
		if (f->method && f->offset)
			scry_buf_printf(buf, "+%#llx", (unsigned long long)f->offset);
	}
}

static int on_stack(struct scry_syscall_view *v, const struct scry_ev_syscall_stack *ev)
{
	struct scry_syscall_row *row = place_of(v, ev->site);
	struct scry_buf text = {0};
	uint32_t id = 0;
	uint64_t *count = NULL;

	if (!row)
		return 0;
	row->callers_seen += ev->count;
	if (ev->stack)
		put_callers(v, ev->stack, &text);
	if (text.len)
		scry_intern_put(&v->texts, text.data, text.len, &id);
	scry_buf_done(&text);
	if (id)
		count = scry_map_ref(&v->callers, (uint64_t)(row - v->places.rows) << 32 | id);
	if (!count)
		return 0;
	*count += ev->count;
	if (*count > row->caller_seen) {
		row->caller_seen = *count;
		row->caller_str = id;
		row->stack = ev->stack;
	}
	return 0;
}

static int on_path(struct scry_syscall_view *v, const struct scry_ev_syscall_path *ev)
{
	struct scry_syscall_row *row = place_of(v, ev->site);
	uint64_t *count =
		row ? scry_map_ref(&v->paths, (uint64_t)(row - v->places.rows) << 32 | ev->path_str)
		    : NULL;

	if (count)
		*count += ev->count;
	return 0;
}

static int on_event(struct scry_syscall_view *v, const struct scry_event *event)
{
	const void *payload = event + 1;

	switch (event->type) {
	case SCRY_EVENT_STACK:
		return scry_native_frames_event(&v->frames, payload);
	case SCRY_EVENT_SYSCALLS:
		v->sums = *(const struct scry_ev_syscalls *)payload;
		v->has_sums = true;
		return 0;
	case SCRY_EVENT_SYSCALL_SITE:
		return on_site(v, payload);
	case SCRY_EVENT_SYSCALL:
		return on_sum(v, payload);
	case SCRY_EVENT_SYSCALL_TIME:
		return on_time(v, payload);
	case SCRY_EVENT_SYSCALL_STACK:
		return on_stack(v, payload);
	case SCRY_EVENT_SYSCALL_PATH:
		return on_path(v, payload);
	}
	return 0;
}

/* --- cells ----------------------------------------------------------------------------------- */

const struct scry_ev_syscall_site *scry_syscall_site_of(const struct scry_syscall_view *v,
							const struct scry_syscall_row *row)
{
	return row->site ? &v->sites[row->site - 1] : NULL;
}

static const char *base_name(const char *path)
{
	const char *slash = path[0] == '[' ? NULL : strrchr(path, '/');

	return slash ? slash + 1 : path;
}

void scry_syscall_put_place(const struct scry_syscall_view *v,
			    const struct scry_ev_syscall_site *site, struct scry_buf *buf)
{
	size_t length;
	const char *module = scry_reader_string(v->reader, site->module_str, &length);
	const char *symbol = scry_reader_string(v->reader, site->symbol_str, &length);

	if (!module) {
		scry_buf_printf(buf, "[nowhere]");
		return;
	}
	scry_buf_printf(buf, "%s", base_name(module));
	scry_buf_printf(buf, symbol ? " %s" : "%s", symbol ? symbol : "");
	scry_buf_printf(buf, "+%#llx", (unsigned long long)site->offset);
}

void scry_syscall_put_paths(const struct scry_syscall_view *v, const struct scry_syscall_row *row,
			    struct scry_buf *buf)
{
	const uint64_t of = (uint64_t)(row - v->places.rows);
	struct scry_map_slot best[SCRY_SYSCALL_PATHS] = {0}, slot;
	size_t cursor = 0, length;

	while (scry_map_next(&v->paths, &cursor, &slot)) {
		if (slot.key >> 32 != of)
			continue;
		for (size_t i = 0; i < SCRY_SYSCALL_PATHS; i++)
			if (slot.value > best[i].value) {
				struct scry_map_slot other = best[i];

				best[i] = slot;
				slot = other;
			}
	}
	for (size_t i = 0; i < SCRY_SYSCALL_PATHS && best[i].value; i++) {
		const char *path = scry_reader_string(v->reader, (uint32_t)best[i].key, &length);

		scry_buf_printf(buf, "%s%s", i ? ", " : "", path ? path : "?");
	}
}

static bool is_exact(const struct scry_syscall_view *v)
{
	return v->sums.flags & SCRY_SYSCALLS_EXACT;
}

static bool is_timed(const struct scry_syscall_view *v)
{
	return v->sums.flags & SCRY_SYSCALLS_LATENCY;
}

/* The time that no more than so many thousandths took: the end of its step, as none took longer
 * than the longest. */
static struct scry_cell quantile(const struct scry_syscall_row *row, uint64_t thousandths)
{
	uint64_t all = 0, seen = 0;
	size_t i;

	for (i = 0; i < row->step_count; i++)
		all += row->steps[i].calls;
	for (i = 0; i < row->step_count; i++) {
		seen += row->steps[i].calls;
		if (seen * 1000 >= all * thousandths)
			break;
	}
	if (!all)
		return scry_cell_unknown();
	return scry_cell_number(row->steps[i].to_ns < row->max_ns ? row->steps[i].to_ns
								  : row->max_ns);
}

static struct scry_cell tenths(uint64_t part, uint64_t whole)
{
	return scry_cell_known(scry_share(part, whole, 1000), whole != 0);
}

static struct scry_doc_value share_value(uint64_t part, uint64_t whole)
{
	struct scry_doc_value value = {.kind = whole ? SCRY_VALUE_DOUBLE : SCRY_VALUE_NULL};
	double share = whole ? (double)part / (double)whole : 0;

	memcpy(&value.number, &share, sizeof(share));
	return value;
}

static const char *text_of(const struct scry_syscall_view *v, uint32_t id)
{
	size_t length;
	const char *text = scry_reader_string(v->reader, id, &length);

	return text ? text : "";
}

/* "main+0x4 < ...", and how much of the samples that is where it is not all. */
static void put_caller(const struct scry_syscall_view *v, const struct scry_syscall_row *row,
		       struct scry_buf *buf)
{
	const char *text = scry_intern_get(&v->texts, row->caller_str, NULL);
	const uint64_t part = scry_share(row->caller_seen, row->callers_seen, 100);

	if (!text)
		return;
	if (part < CALLER_MOST)
		scry_buf_printf(buf, "%llu %% ", (unsigned long long)part);
	scry_buf_printf(buf, "%s", text);
}

static const struct scry_syscall_verdict *verdict_of(const struct scry_syscall_row *row,
						     const struct scry_syscall_verdict *verdicts,
						     size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (verdicts[i].row == row)
			return &verdicts[i];
	return NULL;
}

/* "2,752,057 of 2,752,057 calls set ..." */
static void put_verdict(const struct scry_syscall_verdict *verdict, struct scry_buf *buf)
{
	scry_text_count(buf, verdict->vain);
	scry_buf_printf(buf, " of ");
	scry_text_count(buf, verdict->of);
	scry_buf_printf(buf, " calls %s", verdict->did);
}

/* --- tables ---------------------------------------------------------------------------------- */

/* Columns of every form; a title is NULL where it is not shown as text. */
enum {
	COL_PID,
	COL_TID,
	COL_THREAD,
	COL_SHARE,
	COL_SHARE_DATA,
	COL_TICKS,
	COL_CALLS,
	COL_RATE,
	COL_ERRORS,
	COL_AGAIN,
	COL_ABSENT,
	COL_ERRNO,
	COL_TOTAL,
	COL_MEAN,
	COL_P50,
	COL_P99,
	COL_MAX,
	COL_TIMED,
	COL_NAME,
	COL_NUMBER,
	COL_ABI,
	COL_PLACE,
	COL_MODULE,
	COL_SYMBOL,
	COL_OFFSET,
	COL_CALLER,
	COL_FRAMES,
	COL_VERDICT,
	COLUMNS,
};

static void set_columns(const struct scry_syscall_view *v, struct scry_column *c)
{
	static const struct scry_column all[COLUMNS] = {
		[COL_PID] = {"pid", "pid", SCRY_CELL_NUMBER, false},
		[COL_TID] = {"tid", "tid", SCRY_CELL_NUMBER, false},
		[COL_THREAD] = {"thread", "thread", SCRY_CELL_TEXT, false},
		[COL_SHARE] = {"time %", NULL, SCRY_CELL_TENTHS, false},
		[COL_SHARE_DATA] = {NULL, "share", SCRY_CELL_VALUE, false},
		[COL_TICKS] = {"samples", "samples", SCRY_CELL_COUNT, false},
		[COL_CALLS] = {"calls", "count", SCRY_CELL_COUNT, false},
		[COL_RATE] = {"calls/s", "calls_per_second", SCRY_CELL_COUNT, false},
		[COL_ERRORS] = {"errors", "errors", SCRY_CELL_COUNT, false},
		[COL_AGAIN] = {NULL, "eagain", SCRY_CELL_COUNT, false},
		[COL_ABSENT] = {NULL, "enoent", SCRY_CELL_COUNT, false},
		[COL_ERRNO] = {NULL, "other_errno", SCRY_CELL_NUMBER, false},
		[COL_TOTAL] = {"total s", "total_ns", SCRY_CELL_TIME, false},
		[COL_MEAN] = {"mean s", "mean_ns", SCRY_CELL_TIME, false},
		[COL_P50] = {"p50 s", "p50_ns", SCRY_CELL_TIME, false},
		[COL_P99] = {"p99 s", "p99_ns", SCRY_CELL_TIME, false},
		[COL_MAX] = {"max s", "max_ns", SCRY_CELL_TIME, false},
		[COL_TIMED] = {NULL, "timed", SCRY_CELL_COUNT, false},
		[COL_NAME] = {"syscall", "name", SCRY_CELL_TEXT, false},
		[COL_NUMBER] = {NULL, "number", SCRY_CELL_NUMBER, false},
		[COL_ABI] = {NULL, "abi", SCRY_CELL_TEXT, false},
		[COL_PLACE] = {"from", NULL, SCRY_CELL_TEXT, false},
		[COL_MODULE] = {NULL, "module", SCRY_CELL_TEXT, false},
		[COL_SYMBOL] = {NULL, "symbol", SCRY_CELL_TEXT, false},
		[COL_OFFSET] = {NULL, "offset", SCRY_CELL_NUMBER, false},
		[COL_CALLER] = {"called by", "caller", SCRY_CELL_TEXT, false},
		[COL_FRAMES] = {NULL, "frames", SCRY_CELL_FRAMES, false},
		[COL_VERDICT] = {NULL, "verdict", SCRY_CELL_TEXT, false},
	};
	const int by = v->opts->by;
	const bool is_thread = by == SCRY_VIEW_BY_THREAD, is_place = by == SCRY_VIEW_BY_LINE;

	memcpy(c, all, sizeof(all));
	if (is_exact(v))
		c[COL_TICKS].title = NULL;
	for (int i = COL_CALLS; i <= COL_ERRORS && !is_exact(v); i++)
		c[i].title = NULL;
	for (int i = COL_TOTAL; i <= COL_MAX; i++)
		if (!is_timed(v) || (is_place && (i == COL_TOTAL || i == COL_MEAN)))
			c[i].title = NULL;
	if (is_thread)
		c[COL_P50].title = c[COL_P99].title = c[COL_NAME].title = NULL;
	for (int i = COL_PID; i <= COL_THREAD && !is_thread; i++)
		c[i] = (struct scry_column){NULL, NULL, SCRY_CELL_TEXT, false};
	for (int i = COL_NAME; i <= COL_ABI && is_thread; i++)
		c[i] = (struct scry_column){NULL, NULL, SCRY_CELL_TEXT, false};
	for (int i = COL_PLACE; i <= COL_VERDICT && !is_place; i++)
		c[i] = (struct scry_column){NULL, NULL, SCRY_CELL_TEXT, false};
}

static void push_row(const struct scry_syscall_view *v, const struct scry_syscall_row *row,
		     const struct scry_syscall_verdict *verdict)
{
	const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, row);
	struct scry_doc_frame frames[SCRY_NATIVE_DEPTH];
	const uint32_t depth =
		row->stack ? scry_native_frames_frames(&v->frames, v->reader, row->stack, frames)
			   : 0;
	const struct scry_doc_value share = share_value(row->ticks, v->sums.ticks);
	struct scry_buf place = {0}, caller = {0}, said = {0};
	struct scry_cell c[COLUMNS];

	if (site)
		scry_syscall_put_place(v, site, &place);
	put_caller(v, row, &caller);
	if (verdict)
		put_verdict(verdict, &said);
	c[COL_PID] = scry_cell_number(row->pid);
	c[COL_TID] = scry_cell_known(row->tid, row->tid != 0);
	c[COL_THREAD] = scry_functions_string(v->reader, row->thread_str);
	c[COL_SHARE] = tenths(row->ticks, v->sums.ticks);
	c[COL_SHARE_DATA] = (struct scry_cell){.values = &share, .number = 1};
	c[COL_TICKS] = scry_cell_number(row->ticks);
	c[COL_CALLS] = scry_cell_known(row->calls, is_exact(v));
	c[COL_RATE] = scry_cell_known(scry_share(row->calls, v->sums.watched_ns, 1000000000u),
				      is_exact(v) && v->sums.watched_ns);
	c[COL_ERRORS] = scry_cell_known(row->errors, is_exact(v));
	c[COL_AGAIN] = scry_cell_known(row->again, is_exact(v));
	c[COL_ABSENT] = scry_cell_known(row->absent, is_exact(v));
	c[COL_ERRNO] = scry_cell_known(row->error, row->error != 0);
	c[COL_TOTAL] = scry_cell_known(row->total_ns, row->timed != 0);
	c[COL_MEAN] = scry_cell_known(row->timed ? row->total_ns / row->timed : 0, row->timed != 0);
	c[COL_P50] = quantile(row, 500);
	c[COL_P99] = quantile(row, 990);
	c[COL_MAX] = scry_cell_known(row->max_ns, row->timed != 0);
	c[COL_TIMED] = scry_cell_known(row->timed, is_timed(v));
	c[COL_NAME] = site ? scry_functions_string(v->reader, site->name_str)
			   : scry_cell_text("total", 5);
	c[COL_NUMBER] = scry_cell_known(site ? site->number : 0,
					site && site->number != SCRY_SYSCALLS_RETURNED);
	c[COL_ABI] = scry_cell_text(site && site->abi ? "32" : "64", 2);
	c[COL_PLACE] = scry_cell_text(scry_buf_str(&place), place.len);
	c[COL_MODULE] = scry_functions_string(v->reader, site ? site->module_str : 0);
	c[COL_SYMBOL] = scry_functions_string(v->reader, site ? site->symbol_str : 0);
	c[COL_OFFSET] = scry_cell_known(site ? site->offset : 0, site && site->module_str);
	c[COL_CALLER] = caller.len ? scry_cell_text(caller.data, caller.len) : scry_cell_unknown();
	c[COL_FRAMES] = (struct scry_cell){.is_unknown = !depth, .frames = frames, .number = depth};
	c[COL_VERDICT] = said.len ? scry_cell_text(said.data, said.len) : scry_cell_unknown();
	v->doc->ops->row(v->doc, c);
	scry_buf_done(&place);
	scry_buf_done(&caller);
	scry_buf_done(&said);
}

static bool is_wanted(const struct scry_syscall_view *v, const struct scry_syscall_row *row)
{
	const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, row);
	struct scry_buf text = {0};
	bool is;

	if (v->opts->by == SCRY_VIEW_BY_THREAD)
		scry_buf_printf(&text, "%s", text_of(v, row->thread_str));
	else if (site)
		scry_buf_printf(&text, "%s ", text_of(v, site->name_str));
	if (site && v->opts->by == SCRY_VIEW_BY_LINE) {
		scry_syscall_put_place(v, site, &text);
		scry_buf_printf(&text, " ");
		put_caller(v, row, &text);
	}
	is = scry_grep_matches(v->grep, scry_buf_str(&text));
	scry_buf_done(&text);
	return is;
}

static const struct scry_syscall_view *sorting;

static int by_weight(const void *left, const void *right)
{
	const struct scry_syscall_row *a = *(const struct scry_syscall_row *const *)left,
				      *b = *(const struct scry_syscall_row *const *)right;
	int order = 0;

	if (is_timed(sorting) && sorting->opts->by != SCRY_VIEW_BY_LINE)
		order = scry_functions_compare(b->total_ns, a->total_ns);
	order = order ? order : scry_functions_compare(b->ticks, a->ticks);
	order = order ? order : scry_functions_compare(b->calls, a->calls);
	return order ? order : scry_functions_compare(a->site, b->site);
}

static const struct scry_syscall_row **sorted(struct scry_syscall_view *v,
					      const struct scry_syscall_table *t)
{
	const struct scry_syscall_row **all = calloc(t->keys.count + 1, sizeof(*all));

	for (uint32_t i = 0; all && i < t->keys.count; i++)
		all[i] = &t->rows[i];
	sorting = v;
	if (all && t->keys.count)
		qsort(all, t->keys.count, sizeof(*all), by_weight);
	return all;
}

static uint64_t most_rows(const struct scry_syscall_view *v)
{
	if (v->opts->top != SCRY_VIEW_TOP_DEFAULT)
		return v->opts->top;
	/* who asks by call wants all of them, as of strace -c: there are a few dozen */
	return v->doc->is_data || v->opts->by == SCRY_VIEW_BY_SYSCALL ? 0 : SCRY_VIEW_TOP_ROWS;
}

static int push_rows(struct scry_syscall_view *v, const struct scry_syscall_verdict *verdicts,
		     size_t verdict_count)
{
	const struct scry_syscall_table *t =
		v->opts->by == SCRY_VIEW_BY_LINE ? &v->places : &v->shown;
	const struct scry_syscall_row **rows = sorted(v, t);
	struct scry_column columns[COLUMNS];
	struct scry_syscall_row total = {0};
	const uint64_t most = most_rows(v);
	uint64_t shown = 0, hidden = 0;

	if (!rows)
		return no_memory();
	set_columns(v, columns);
	scry_doc_table(v->doc, columns, COLUMNS);
	for (uint32_t i = 0; i < t->keys.count; i++) {
		const struct scry_syscall_row *row = rows[i];

		if ((most && shown == most) || !is_wanted(v, row)) {
			hidden++;
			continue;
		}
		push_row(v, row, verdict_of(row, verdicts, verdict_count));
		shown++;
		total.calls += row->calls;
		total.errors += row->errors;
		total.ticks += row->ticks;
		total.timed += row->timed;
		total.total_ns += row->total_ns;
		total.max_ns = row->max_ns > total.max_ns ? row->max_ns : total.max_ns;
	}
	if (!v->doc->is_data && v->opts->by == SCRY_VIEW_BY_SYSCALL && shown > 1)
		push_row(v, &total, NULL);
	if (hidden)
		scry_doc_remark(v->doc,
				"%llu more rows are not shown; --top 0 without --grep shows them",
				(unsigned long long)hidden);
	free(rows);
	return 0;
}

static void push_verdicts(struct scry_syscall_view *v, const struct scry_syscall_verdict *verdicts,
			  size_t count)
{
	static const struct scry_column columns[] = {
		{"in vain", "count", SCRY_CELL_COUNT, false},
		{"of", "of", SCRY_CELL_COUNT, false},
		{"time %", NULL, SCRY_CELL_TENTHS, false},
		{NULL, "share", SCRY_CELL_VALUE, false},
		{"grade", "grade", SCRY_CELL_TEXT, false},
		{NULL, "pattern", SCRY_CELL_TEXT, false},
		{"syscall", "name", SCRY_CELL_TEXT, false},
		{"from", "from", SCRY_CELL_TEXT, false},
		{"they", "did", SCRY_CELL_TEXT, false},
		{NULL, "paths", SCRY_CELL_TEXT, false},
		{NULL, "cure", SCRY_CELL_TEXT, false},
		{NULL, "risk", SCRY_CELL_TEXT, false},
	};
	uint64_t most = v->doc->is_data ? count : 10;

	if (!count && !v->doc->is_data)
		return;
	v->doc->section = "verdicts";
	v->doc->title = "calls in vain";
	scry_doc_table(v->doc, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; i < count && i < most; i++) {
		const struct scry_syscall_verdict *d = &verdicts[i];
		const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, d->row);
		const struct scry_doc_value share = share_value(d->row->ticks, v->sums.ticks);
		const char *grade = scry_syscall_grade_name(d->grade);
		struct scry_buf place = {0}, paths = {0};

		scry_syscall_put_place(v, site, &place);
		scry_syscall_put_paths(v, d->row, &paths);
		const struct scry_cell cells[] = {
			scry_cell_number(d->vain),
			scry_cell_number(d->of),
			tenths(d->row->ticks, v->sums.ticks),
			{.values = &share, .number = 1},
			scry_cell_text(grade, strlen(grade)),
			scry_cell_text(d->pattern, strlen(d->pattern)),
			scry_functions_string(v->reader, site->name_str),
			scry_cell_text(scry_buf_str(&place), place.len),
			scry_cell_text(d->did, strlen(d->did)),
			paths.len ? scry_cell_text(paths.data, paths.len) : scry_cell_unknown(),
			scry_cell_text(d->cure, strlen(d->cure)),
			scry_cell_text(d->risk, strlen(d->risk)),
		};

		v->doc->ops->row(v->doc, cells);
		scry_buf_done(&place);
		scry_buf_done(&paths);
	}
	v->doc->section = v->doc->title = NULL;
}

/* What ends each kind, once. */
static void push_cures(struct scry_syscall_view *v, const struct scry_syscall_verdict *verdicts,
		       size_t count)
{
	for (size_t i = 0; i < count && i < 10 && !v->doc->is_data; i++) {
		bool is_told = false;

		for (size_t k = 0; k < i; k++)
			is_told |= verdicts[k].cure == verdicts[i].cure;
		if (is_told)
			continue;
		scry_doc_remark(v->doc, "%s: fix: %s (risk: %s)", verdicts[i].pattern,
				verdicts[i].cure, verdicts[i].risk);
	}
}

/* --- the head -------------------------------------------------------------------------------- */

static const struct scry_syscall_row *largest(struct scry_syscall_view *v)
{
	const struct scry_syscall_row **rows = sorted(v, &v->places), *row;

	row = rows && v->places.keys.count ? rows[0] : NULL;
	free(rows);
	return row;
}

static void put_largest(struct scry_syscall_view *v, struct scry_buf *b)
{
	const struct scry_syscall_row *row = largest(v);
	const uint64_t all = scry_share(v->sums.inside, v->sums.ticks, 1000);
	const struct scry_ev_syscall_site *site = row ? scry_syscall_site_of(v, row) : NULL;

	if (!v->sums.ticks) {
		scry_buf_printf(b, "it was not seen on a processor%s",
				is_exact(v) ? "" : "; calls that wait need --exact");
		return;
	}
	scry_buf_printf(b, "%llu.%llu %% of its processor time is spent in system calls",
			(unsigned long long)(all / 10), (unsigned long long)(all % 10));
	if (all < LITTLE) {
		scry_buf_printf(b, ": little is to be won there");
		return;
	}
	if (!site)
		return;
	scry_buf_printf(b, ", most in %s from ", text_of(v, site->name_str));
	scry_syscall_put_place(v, site, b);
	scry_buf_printf(b, " (%llu %%)",
			(unsigned long long)scry_share(row->ticks, v->sums.ticks, 100));
	if (row->caller_str) {
		scry_buf_printf(b, ", called by ");
		put_caller(v, row, b);
	}
}

/* The sentence that a person can act on. */
static void judge(struct scry_syscall_view *v, const struct scry_syscall_verdict *verdicts,
		  size_t count)
{
	struct scry_buf b = {0};

	if (!v->has_sums)
		scry_buf_printf(&b, "as far as the recording goes: ");
	if (count && verdicts[0].grade != SCRY_GRADE_HINT &&
	    (!v->sums.ticks || scry_share(verdicts[0].row->ticks, v->sums.ticks, 1000) >= 10)) {
		const struct scry_syscall_verdict *d = &verdicts[0];
		const struct scry_ev_syscall_site *site = scry_syscall_site_of(v, d->row);

		put_verdict(d, &b);
		scry_buf_printf(&b, ": %s from ", text_of(v, site->name_str));
		scry_syscall_put_place(v, site, &b);
		scry_buf_printf(&b, ", %llu %% of its processor time; fix: %s",
				(unsigned long long)scry_share(d->row->ticks, v->sums.ticks, 100),
				d->cure);
	} else {
		put_largest(v, &b);
	}
	v->doc->ops->note(v->doc, b.data, b.len);
	scry_buf_done(&b);
}

static void note(struct scry_syscall_view *v, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void note(struct scry_syscall_view *v, const char *fmt, ...)
{
	char text[400];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	v->doc->ops->note(v->doc, text, strlen(text));
}

/* What is missing, where something is. */
static void note_missing(struct scry_syscall_view *v)
{
	const struct scry_ev_syscalls *s = &v->sums;

	if (s->nowhere)
		note(v,
		     "%llu of %llu calls are in no row, as there were more threads and places "
		     "than %u; fix: a shorter watch, or fewer processes",
		     (unsigned long long)s->nowhere, (unsigned long long)s->calls,
		     SCRY_SYSCALLS_SUMS);
	if (s->untimed)
		note(v, "%llu calls have no time, as there were more threads and places than %u",
		     (unsigned long long)s->untimed, SCRY_SYSCALLS_TIMES);
	if (s->unplaced)
		note(v, "%llu of %llu samples in system calls are in no row",
		     (unsigned long long)s->unplaced, (unsigned long long)s->inside);
	if (s->unnamed)
		note(v,
		     "%llu processes ended, or became others, before scry could see what they had "
		     "mapped: their calls are counted, from \"[not looked at]\"",
		     (unsigned long long)s->unnamed);
	if (s->strangers)
		note(v, "%llu child processes were not watched, as there were too many at once",
		     (unsigned long long)s->strangers);
	if (s->lost)
		note(v, "%llu places, stacks or ends of threads were not told, for want of room",
		     (unsigned long long)s->lost);
	if (is_exact(v) && (s->exits || s->killed))
		note(v,
		     "calls that do not return are not in the rows: %llu threads ended by exit, "
		     "%llu within another call",
		     (unsigned long long)s->exits, (unsigned long long)s->killed);
	if (is_exact(v) && s->with_ns)
		note(v,
		     "while it was counted each system call of every process of this machine took "
		     "some %llu ns more (getppid of scry: %llu ns, before %llu)",
		     (unsigned long long)(s->with_ns > s->before_ns ? s->with_ns - s->before_ns
								    : 0),
		     (unsigned long long)s->with_ns, (unsigned long long)s->before_ns);
	if (!is_exact(v) && v->has_sums && !v->doc->is_data)
		note(v, "sampled: shares of processor time; --exact counts calls, also those that "
			"wait, and proves which are in vain");
}

static void push_totals(struct scry_syscall_view *v)
{
	const struct scry_ev_syscalls *s = &v->sums;
	const struct scry_doc_value share = share_value(s->inside, s->ticks);
	struct scry_cell calls = scry_cell_known(s->calls, is_exact(v));
	struct scry_cell ticks = scry_cell_number(s->ticks), inside = scry_cell_number(s->inside);
	const char *mode = is_timed(v) ? "latency" : is_exact(v) ? "exact" : "sampled";
	struct scry_cell how = scry_cell_text(mode, strlen(mode));

	how.is_blank = true;
	calls.is_blank = !is_exact(v);
	const struct scry_pair pairs[] = {
		{"mode", NULL, SCRY_CELL_TEXT, 0, how},
		{"calls", "system calls", SCRY_CELL_COUNT, 0, calls},
		{"samples", "samples of its processor time", SCRY_CELL_COUNT, 0, ticks},
		{"samples_in_calls", "of them in system calls", SCRY_CELL_COUNT, 0, inside},
		{"share",
		 NULL,
		 SCRY_CELL_VALUE,
		 0,
		 {.values = &share, .number = 1, .is_blank = true}},
		{"watched_ns",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->watched_ns, .is_blank = true}},
		{"exits", NULL, SCRY_CELL_NUMBER, 0, {.number = s->exits, .is_blank = true}},
		{"killed_in_calls",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->killed, .is_blank = true}},
		{"calls_in_no_row",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->nowhere, .is_blank = true}},
		{"calls_untimed",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->untimed, .is_blank = true}},
		{"samples_in_no_row",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->unplaced, .is_blank = true}},
		{"images_not_looked_at",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->unnamed, .is_blank = true}},
		{"processes_not_watched",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->strangers, .is_blank = true}},
		{"records_lost", NULL, SCRY_CELL_NUMBER, 0, {.number = s->lost, .is_blank = true}},
		{"getppid_before_ns",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->before_ns, .is_blank = true}},
		{"getppid_with_ns",
		 NULL,
		 SCRY_CELL_NUMBER,
		 0,
		 {.number = s->with_ns, .is_blank = true}},
	};

	v->doc->ops->totals(v->doc, pairs, sizeof(pairs) / sizeof(pairs[0]));
}

static int push(struct scry_syscall_view *v)
{
	struct scry_syscall_verdict *verdicts = NULL;
	const size_t count = scry_syscall_judge(v, &verdicts);
	int r;

	v->honesty.noun = is_exact(v) ? "system calls" : "samples in system calls";
	v->honesty.shown =
		is_exact(v) ? v->sums.calls - v->sums.nowhere : v->sums.inside - v->sums.unplaced;
	v->doc->ops->honesty(v->doc, &v->honesty);
	judge(v, verdicts, count);
	note_missing(v);
	scry_honesty_notes(&v->honesty, v->doc);
	push_totals(v);
	r = push_rows(v, verdicts, count);
	if (r == 0) {
		push_verdicts(v, verdicts, count);
		push_cures(v, verdicts, count);
	}
	free(verdicts);
	return r;
}

/* --- the view -------------------------------------------------------------------------------- */

static void init(struct scry_syscall_view *v)
{
	scry_map_init(&v->by_site, ROWS_MAX);
	scry_map_init(&v->callers, ROWS_MAX);
	scry_map_init(&v->paths, ROWS_MAX);
	scry_intern_init(&v->texts, ROWS_MAX, 256u << 20);
	scry_intern_init(&v->places.keys, ROWS_MAX, ROWS_MAX * 32u);
	scry_intern_init(&v->shown.keys, ROWS_MAX, ROWS_MAX * 16u);
	scry_honesty_init(&v->honesty, v->reader);
}

static void done_table(struct scry_syscall_table *t)
{
	for (uint32_t i = 0; i < t->keys.count; i++)
		free(t->rows[i].steps);
	free(t->rows);
	scry_intern_done(&t->keys);
}

static void done(struct scry_syscall_view *v)
{
	scry_native_frames_done(&v->frames);
	scry_map_done(&v->by_site);
	scry_map_done(&v->callers);
	scry_map_done(&v->paths);
	scry_intern_done(&v->texts);
	done_table(&v->places);
	done_table(&v->shown);
	free(v->sites);
}

int scry_view_syscalls(struct scry_reader *reader, const struct scry_view_opts *opts,
		       struct scry_doc *doc)
{
	struct scry_syscall_view v = {.reader = reader, .opts = opts, .doc = doc};
	const struct scry_event *event;
	struct scry_grep grep;
	int r = scry_grep_init(&grep, opts->grep), got = 0;

	if (r < 0)
		return r;
	v.grep = &grep;
	init(&v);
	while (r == 0 && (got = scry_reader_next(reader, &event)) > 0) {
		scry_honesty_event(&v.honesty, event);
		r = on_event(&v, event);
	}
	scry_honesty_close(&v.honesty);
	r = r ? r : got;
	if (r == 0)
		r = push(&v);
	scry_grep_done(&grep);
	done(&v);
	return r;
}
