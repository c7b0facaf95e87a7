/*
 * The syscalls view: which code makes system calls, how many and in how much of the time, and which
 * of them were in vain. A row is an instruction of an object (by place), a call, or a thread;
 * places of the same object and offset are one row, in whatever process they were.
 */
#include "view/syscalls.h"
#include "view/syscall_columns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "view/grep.h"
#include "wire/bpf_syscalls.h"

#define ROWS_MAX (1u << 20)
#define CALLERS_SHOWN 3
#define STEPS_MAX 1024

/* --- reading --------------------------------------------------------------------------------- */

static int no_memory(void)
{
	return scry_no_memory("rows of system calls");
}

/* Room for one more, in both tables. */
static int grow_sites(struct scry_syscall_view *v)
{
	const size_t room = v->site_room ? 2 * v->site_room : 256;
	struct scry_ev_syscall_site *sites;
	struct scry_syscall_row *sums;

	if (v->site_count < v->site_room)
		return 0;
	sites = reallocarray(v->sites, room, sizeof(*sites));
	if (!sites)
		return no_memory();
	v->sites = sites;
	sums = reallocarray(v->site_sums, room, sizeof(*sums));
	if (!sums)
		return no_memory();
	v->site_sums = sums;
	v->site_room = room;
	return 0;
}

static int on_site(struct scry_syscall_view *v, const struct scry_ev_syscall_site *ev)
{
	if (grow_sites(v) < 0 || scry_map_put(&v->by_site, ev->site, v->site_count + 1) < 0)
		return no_memory();
	v->site_sums[v->site_count] = (struct scry_syscall_row){0};
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

/* The row that is shown of what a thread did at a site, where rows are not places. */
static struct scry_syscall_row *shown_of(struct scry_syscall_view *v,
					 const struct scry_ev_syscall *ev, uint64_t site)
{
	const struct scry_ev_syscall_site *s = &v->sites[site - 1];
	uint32_t key[2] = {s->number, s->abi};
	struct scry_syscall_row *row;

	if (v->opts->by == SCRY_VIEW_BY_THREAD) {
		key[0] = s->image;
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
	row->again_ticks += ev->again_ticks;
	row->absent_ticks += ev->absent_ticks;
	if (ev->what && ev->what < SCRY_SYSCALL_KINDS) {
		row->kinds[ev->what].asked += ev->asked;
		row->kinds[ev->what].vain += ev->vain;
		row->kinds[ev->what].ticks += ev->vain_ticks;
	}
	row->timed += ev->timed;
	row->total_ns += ev->total_ns;
	row->max_ns = ev->max_ns > row->max_ns ? ev->max_ns : row->max_ns;
	row->error = ev->error ? ev->error : row->error;
}

static int on_sum(struct scry_syscall_view *v, const struct scry_ev_syscall *ev)
{
	struct scry_syscall_row *row;
	uint64_t site;

	if ((v->opts->pid && v->opts->pid != ev->pid) ||
	    !scry_map_get(&v->by_site, ev->site, &site))
		return 0;
	v->calls += ev->calls;
	v->inside += ev->ticks;
	row = place_of(v, ev->site);
	if (!row)
		return no_memory();
	row->why_str = row->why_str ? row->why_str : v->sites[site - 1].why_str;
	add(row, ev);
	add(&v->site_sums[site - 1], ev);
	if (v->opts->by == SCRY_VIEW_BY_SITE || v->opts->by == SCRY_VIEW_BY_LINE)
		return 0;
	row = shown_of(v, ev, site);
	if (!row)
		return no_memory();
	row->why_str = row->why_str ? row->why_str : v->sites[site - 1].why_str;
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
	if (row->step_count == STEPS_MAX) /* no scry writes so many */
		return 0;
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

/* "b+0x12 < main+0x40": what called the function that has the instruction. */
static void put_callers(struct scry_syscall_view *v, uint32_t stack, struct scry_buf *buf)
{
	struct scry_doc_frame frames[SCRY_NATIVE_DEPTH];
	uint32_t count = scry_native_frames_all(&v->frames, v->reader, stack, frames);

	for (uint32_t i = 1; i < count && i <= CALLERS_SHOWN; i++) {
		const struct scry_doc_frame *f = &frames[count - 1 - i];

		if (i > 1)
			scry_buf_printf(buf, " < ");
		scry_native_frame_name(f, buf);
		if (f->method && f->offset)
			scry_buf_printf(buf, "+%#llx", (unsigned long long)f->offset);
	}
}

/* The row of a site's place; NULL: it is none, or of another process than the one that is wanted.
 */
static struct scry_syscall_row *wanted_place(struct scry_syscall_view *v, uint32_t number)
{
	uint64_t site;

	if (!scry_map_get(&v->by_site, number, &site) ||
	    (v->opts->pid && v->opts->pid != v->sites[site - 1].pid))
		return NULL;
	return place_of(v, number);
}

/* Two objects had this address in turn: whose callers they were is not known. */
static bool is_several(const struct scry_syscall_view *v, const struct scry_syscall_row *row)
{
	return !strcmp(scry_syscall_text(v, v->sites[row->site - 1].module_str),
		       SCRY_SYSCALLS_SEVERAL);
}

static int on_stack(struct scry_syscall_view *v, const struct scry_ev_syscall_stack *ev)
{
	struct scry_syscall_row *row = wanted_place(v, ev->site);
	struct scry_buf text = {0};
	uint32_t id = 0;
	uint64_t *count = NULL;

	if (!row || is_several(v, row))
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

/* The text of a line: "app.rb:12 Foo#bar". 0: it is none. */
static uint32_t line_of(struct scry_syscall_view *v, uint32_t stack)
{
	struct scry_doc_frame frames[SCRY_NATIVE_DEPTH], *f;
	uint32_t count = stack ? scry_native_frames_all(&v->frames, v->reader, stack, frames) : 0;
	struct scry_buf text = {0};
	uint32_t id = 0;

	if (!count)
		return 0;
	f = &frames[count - 1];
	if (f->file)
		scry_buf_printf(&text, "%.*s:%u", (int)f->file_length, f->file, f->line);
	if (f->method)
		scry_buf_printf(&text, " %.*s", (int)f->method_length, f->method);
	if (text.len)
		scry_intern_put(&v->texts, text.data, text.len, &id);
	scry_buf_done(&text);
	return id;
}

static int on_line(struct scry_syscall_view *v, const struct scry_ev_syscall_line *ev)
{
	struct scry_syscall_row *row = wanted_place(v, ev->site);
	const uint32_t id = line_of(v, ev->stack);
	uint64_t *count, *of_site, site;

	if (!row || !scry_map_get(&v->by_site, ev->site, &site))
		return 0;
	of_site = scry_map_ref(&v->site_lines, (site - 1) << 32 | id);
	if (of_site)
		*of_site += ev->count;
	count = scry_map_ref(&v->lines, (uint64_t)(row - v->places.rows) << 32 | id);
	if (!of_site || !count)
		return no_memory();
	*count += ev->count;
	v->site_sums[site - 1].lines_seen += ev->count;
	row->lines_seen += ev->count;
	v->lines_seen += ev->count;
	if (!id) {
		row->lineless += ev->count;
		v->lineless += ev->count;
	} else if (*count > row->line_seen) {
		row->line_seen = *count;
		row->line_str = id;
		row->line = ev->stack;
	}
	return 0;
}

static int add_part(struct scry_syscall_view *v, uint32_t text, const struct scry_syscall_row *of,
		    uint64_t part, uint64_t whole)
{
	struct scry_syscall_row *row = row_of(&v->shown, &text, sizeof(text));

	if (!row)
		return no_memory();
	row->line_str = text;
	row->line_seen += part;
	row->calls += scry_share(part, whole, of->calls);
	row->ticks += scry_share(part, whole, of->ticks);
	row->timed += scry_share(part, whole, of->timed);
	row->total_ns += scry_share(part, whole, of->total_ns);
	return 0;
}

/*
 * Rows by line: what a process's calls at a place are is shared out among its lines, by their
 * samples. What no Ruby called, or without a sample, is of no line.
 */
static int share_out(struct scry_syscall_view *v)
{
	struct scry_map_slot slot;
	size_t cursor = 0;
	int r = 0;

	while (!r && scry_map_next(&v->site_lines, &cursor, &slot)) {
		const struct scry_syscall_row *of = &v->site_sums[slot.key >> 32];

		r = add_part(v, (uint32_t)slot.key, of, slot.value, of->lines_seen);
	}
	for (size_t i = 0; i < v->site_count && !r; i++)
		if (!v->site_sums[i].lines_seen && (v->site_sums[i].calls || v->site_sums[i].ticks))
			r = add_part(v, 0, &v->site_sums[i], 1, 1);
	return r;
}

static int on_path(struct scry_syscall_view *v, const struct scry_ev_syscall_path *ev)
{
	struct scry_syscall_row *row = wanted_place(v, ev->site);
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
	case SCRY_EVENT_SYSCALL_LINE:
		return on_line(v, payload);
	case SCRY_EVENT_SYSCALL_PATH:
		return on_path(v, payload);
	}
	return 0;
}

static int push(struct scry_syscall_view *v)
{
	const size_t count = scry_syscall_judge(v, &v->verdicts);
	int r;

	for (size_t i = count; i-- > 0;) /* the first of a row's */
		v->places.rows[v->verdicts[i].row - v->places.rows].verdict = (uint32_t)i + 1;
	r = scry_syscall_check_filter(v->opts);
	if (r == 0 && v->opts->by == SCRY_VIEW_BY_LINE)
		r = share_out(v);
	if (r < 0)
		return r;
	scry_syscall_push_head(v, v->verdicts, count);
	r = scry_syscall_push_rows(v);
	if (r == 0)
		scry_syscall_push_verdicts(v, count);
	return r;
}

/* --- the view -------------------------------------------------------------------------------- */

static void init(struct scry_syscall_view *v)
{
	scry_map_init(&v->by_site, ROWS_MAX);
	scry_map_init(&v->callers, ROWS_MAX);
	scry_map_init(&v->lines, ROWS_MAX);
	scry_map_init(&v->site_lines, ROWS_MAX);
	scry_map_init(&v->paths, ROWS_MAX);
	scry_intern_init(&v->texts, ROWS_MAX, 256u << 20);
	scry_intern_init(&v->places.keys, ROWS_MAX, ROWS_MAX * 32u);
	scry_intern_init(&v->shown.keys, ROWS_MAX, ROWS_MAX * 16u);
	scry_data_quality_init(&v->quality, v->reader);
}

static void done_table(struct scry_syscall_table *t)
{
	for (uint32_t i = 0; i < t->keys.count; i++)
		free(t->rows[i].steps);
	free(t->rows);
	scry_intern_done(&t->keys);
}

void scry_syscall_done(struct scry_syscall_view *v)
{
	free(v->verdicts);
	scry_native_frames_done(&v->frames);
	scry_map_done(&v->by_site);
	scry_map_done(&v->callers);
	scry_map_done(&v->lines);
	scry_map_done(&v->site_lines);
	scry_map_done(&v->paths);
	scry_intern_done(&v->texts);
	done_table(&v->places);
	done_table(&v->shown);
	free(v->sites);
	free(v->site_sums);
}

int scry_syscall_read(struct scry_syscall_view *v, struct scry_reader *reader,
		      const struct scry_view_opts *opts, struct scry_doc *doc)
{
	const struct scry_event *event;
	int r = 0, got = 0;

	v->reader = reader;
	v->opts = opts;
	v->doc = doc;
	init(v);
	while (r == 0 && (got = scry_reader_next(reader, &event)) > 0) {
		scry_data_quality_event(&v->quality, event);
		r = on_event(v, event);
	}
	scry_data_quality_close(&v->quality);
	v->quality.has_own_errors = true;
	v->quality.noun = scry_syscall_is_exact(v) ? "system calls" : "samples in system calls";
	v->quality.shown = scry_syscall_is_exact(v) ? v->calls : v->inside;
	if (!opts->pid) {
		v->calls = v->sums.calls;
		v->inside = v->sums.inside;
		v->quality.shown = scry_syscall_is_exact(v) ? v->calls - v->sums.nowhere
							    : v->inside - v->sums.unplaced;
	}
	return r ? r : got;
}

int scry_view_syscalls(struct scry_reader *reader, const struct scry_view_opts *opts,
		       struct scry_doc *doc)
{
	struct scry_syscall_view v = {0};
	struct scry_grep grep;
	int r = scry_grep_init(&grep, opts->grep);

	if (r < 0)
		return r;
	v.grep = &grep;
	r = scry_syscall_read(&v, reader, opts, doc);
	if (r == 0)
		r = push(&v);
	scry_grep_done(&grep);
	scry_syscall_done(&v);
	return r;
}
