/*
 * The stacks view: which lines take the time. Rows are lines, with their own time and with that of
 * what they call; with --stacks, whole stacks.
 *
 * A line that is on a stack several times (recursion) gets its time once. What is shown is the
 * weight that was asked for: all time, time on a processor, or time waiting for the VM's lock.
 */
#include "view/stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/demangle.h"
#include "base/err.h"
#include "base/text.h"
#include "base/vector.h"
#include "view/frames.h"
#include "view/gem.h"
#include "view/grep.h"
#include "view/data_quality.h"
#include "view/stack_processes.h"
#include "view/stack_sums.h"
#include "view/stack_threads.h"
#include "view/stacks_rows.h"
#include "view/table.h"
#include "view/verdict.h"
#include "view/view.h"

#define NAMES_MAX (4u << 20)
#define NAMES_BYTES (512u << 20)
#define PLACES_MAX (8u << 20)
#define IDLE_PLACES 4u /* named in a note */

struct sample {
	uint32_t stack;		     /* frame id; 0: no frame is known */
	uint32_t pid, thread, state; /* thread: index */
	uint64_t count, wall_ns, cpu_ns;
};

struct place { /* hashed as bytes; a frame without its callers */
	uint32_t file, line, method, flags;
};
#define PLACE_SPLIT (1u << 30) /* no frame: file, line, method are stack, thread, state */

struct row {
	uint64_t self_ns, total_ns, samples;
	uint64_t state_ns[SCRY_STATES];
	uint32_t stamp; /* last sample that was added to total */
	uint32_t id;	/* of its place, or frame */
};

struct stacks {
	struct scry_reader *reader;
	const struct scry_view_opts *opts;
	struct scry_doc *doc;
	struct scry_data_quality quality;
	struct scry_intern names, places;
	struct scry_frames frames;
	struct scry_stack_threads threads;
	struct scry_stack_processes processes;
	struct sample *samples;
	size_t count, room;
	struct scry_stack_sums sums;
	struct row *rows;
	size_t row_count;
	uint64_t total_ns;
	uint64_t cpu_unknown_ns; /* of threads that were not seen while they ran */
	struct scry_frame_row scratch;
	struct scry_buf line;
	bool is_compared; /* with another run, where threads have other ids */
};

static uint64_t weight_of(const struct stacks *v, const struct sample *s)
{
	if (v->opts->times.cpu)
		return s->cpu_ns;
	if (v->opts->times.gvl)
		return s->state == SCRY_STATE_GVL ? s->wall_ns : 0;
	return s->wall_ns;
}

/* Run between looks: it has no sample. */
static bool is_unknown(const struct scry_ev_samples *e)
{
	return e->state == SCRY_STATE_UNKNOWN && !e->count;
}

static int add_sample(struct stacks *v, const struct scry_ev_samples *e)
{
	uint32_t stack, thread;

	if (v->opts->pid && v->opts->pid != e->pid)
		return 0;
	v->cpu_unknown_ns += is_unknown(e) ? e->cpu_ns : 0;
	if (scry_vector_reserve(&v->samples, v->count, &v->room))
		return -ENOMEM;
	stack = scry_frames_find(&v->frames, e->stack);
	if (scry_stack_threads_sample(&v->threads, e, stack, &thread))
		return -ENOMEM;
	v->samples[v->count++] = (struct sample){
		.stack = stack,
		.pid = e->pid,
		.thread = thread,
		.state = e->state < SCRY_STATES ? e->state : SCRY_STATE_UNKNOWN,
		.count = e->count,
		.wall_ns = e->wall_ns,
		.cpu_ns = e->cpu_ns,
	};
	return 0;
}

static void add_sums(struct stacks *v, const struct scry_ev_sampling *e)
{
	if (!v->opts->pid || v->opts->pid == e->pid)
		scry_stack_sums_sampling(&v->sums, e);
}

static void add_pauses(struct stacks *v, const struct scry_ev_pauses *e)
{
	if (!v->opts->pid || v->opts->pid == e->pid)
		scry_stack_sums_pauses(&v->sums, e);
}

static int read_all(struct stacks *v)
{
	const struct scry_event *event;
	int got, err = 0;

	while (!err && (got = scry_reader_next(v->reader, &event)) > 0) {
		scry_data_quality_event(&v->quality, event);
		if (event->type == SCRY_EVENT_STACK)
			scry_frames_event(&v->frames, &v->names, v->reader,
					  (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_THREAD)
			err = scry_stack_threads_event(&v->threads, &v->names, v->reader,
						       (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_SAMPLES)
			err = add_sample(v, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_SAMPLING)
			add_sums(v, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_NAMING)
			scry_stack_sums_naming(&v->sums, (const void *)(event + 1));
		else if (event->type == SCRY_EVENT_PAUSES)
			add_pauses(v, (const void *)(event + 1));
	}
	if (err)
		return scry_no_memory("the report");
	if (!v->opts->times.cpu &&
	    !v->opts->times.gvl) /* a thread that only waits has none of these */
		scry_stack_threads_settle(&v->threads);
	return got < 0 ? got : 0;
}

static void push_totals(struct stacks *v)
{
	struct scry_stack_times t = {.cpu_unknown_ns = v->cpu_unknown_ns,
				     .idle_threads = v->threads.idle,
				     .idle_ns = v->threads.idle_ns};

	for (size_t i = 0; i < v->count; i++) {
		t.state_ns[v->samples[i].state] += v->samples[i].wall_ns;
		t.wall_ns += v->samples[i].wall_ns;
		t.cpu_ns += v->samples[i].cpu_ns;
		t.samples += v->samples[i].count;
	}
	scry_stack_sums_push(&v->sums, &t, v->doc);
}

/* Where the idle ones wait, each place once: "Thread::Queue#pop, Kernel#sleep". */
static void put_waits(struct stacks *v, struct scry_buf *buf)
{
	uint32_t shown[IDLE_PLACES] = {0};
	size_t count = 0;

	for (size_t i = 0; i < v->threads.count && count < IDLE_PLACES; i++) {
		const struct scry_stack_thread *t = &v->threads.rows[i];
		uint32_t method = scry_frames_get(&v->frames, t->waits_at).method;
		struct scry_cell name = scry_name_text(&v->names, method);
		size_t j = 0;

		while (j < count && shown[j] != method)
			j++;
		if (!t->is_idle || j < count || !name.bytes)
			continue;
		shown[count++] = method;
		scry_buf_printf(buf, count > 1 ? ", " : " (");
		scry_buf_append(buf, name.bytes, name.length);
	}
	scry_buf_printf(buf, count ? ")" : "");
}

/* Programs have the total, and all rows. */
static void note_idle(struct stacks *v)
{
	struct scry_buf buf = {0};

	if (!v->threads.idle || v->opts->times.idle)
		return;
	scry_text_things(&buf, v->threads.idle, "idle threads");
	scry_buf_printf(&buf, v->threads.idle == 1 ? " is" : " are");
	scry_buf_printf(&buf, " hidden, which waited in one place for 99 %% of the time or more");
	put_waits(v, &buf);
	scry_buf_printf(&buf, "; --idle shows them");
	v->doc->ops->note(v->doc, scry_buf_str(&buf), buf.len);
	scry_buf_done(&buf);
}

/* --- rows ------------------------------------------------------------------------------------- */

static bool is_hidden(const struct stacks *v, const struct sample *s)
{
	return !v->opts->times.idle && v->threads.rows[s->thread].is_idle;
}

static uint32_t put_key(struct stacks *v, const struct place *place)
{
	uint32_t id = 0;

	scry_intern_put(&v->places, (const char *)place, sizeof(*place), &id);
	return id;
}

/* Of a name that stands for itself: a gem, a thread, a process. */
static uint32_t place_named(struct stacks *v, const char *name, size_t length)
{
	struct place place = {0};

	scry_intern_put(&v->names, name, length, &place.method);
	return put_key(v, &place);
}

static uint32_t place_of_gem(struct stacks *v, const struct scry_frame *frame)
{
	struct scry_cell file = scry_name_text(&v->names, frame->file);
	size_t length = 0;
	const char *gem = "(native)";

	if (frame->flags & SCRY_STACK_NATIVE)
		return place_named(v, gem, strlen(gem));
	gem = scry_gem_name(file.bytes ? file.bytes : "<internal:", &length);
	return place_named(v, gem, length);
}

static uint32_t place_of(struct stacks *v, uint32_t frame_id)
{
	struct scry_frame frame = scry_frames_get(&v->frames, frame_id);
	struct place place = {frame.file, frame.line, frame.method, frame.flags};

	if (v->opts->by == SCRY_VIEW_BY_GEM)
		return place_of_gem(v, &frame);
	if (v->opts->by == SCRY_VIEW_BY_METHOD && frame.method)
		place = (struct place){0, 0, frame.method, frame.flags};
	return put_key(v, &place);
}

/* Where a sample is counted that has one row: its stack, in parts or not; its thread or process;
 * else none is known. */
static uint32_t place_of_sample(struct stacks *v, const struct sample *s)
{
	const struct place split = {s->stack, s->thread, s->state, PLACE_SPLIT};
	const bool is_thread = v->opts->by == SCRY_VIEW_BY_THREAD;

	if (v->opts->stacks)
		return v->opts->times.split ? put_key(v, &split) : s->stack;
	if (!is_thread && v->opts->by != SCRY_VIEW_BY_PROCESS)
		return 0;
	if (is_thread && v->is_compared) {
		struct scry_cell name = scry_name_text(&v->names, v->threads.rows[s->thread].name);

		return place_named(v, name.bytes ? name.bytes : "[no name]",
				   name.bytes ? name.length : strlen("[no name]"));
	}
	scry_buf_clear(&v->line);
	if (is_thread)
		scry_stack_threads_put(&v->threads, &v->names, s->thread, &v->line);
	else
		scry_buf_printf(&v->line, "process %u", s->pid);
	return place_named(v, scry_buf_str(&v->line), v->line.len);
}

static struct row *row_at(struct stacks *v, uint32_t id)
{
	if (id >= v->row_count) {
		size_t room = v->row_count ? v->row_count : 1024;
		struct row *more;

		while (room <= id)
			room *= 2;
		more = reallocarray(v->rows, room, sizeof(*more));
		if (!more)
			return NULL;
		memset(more + v->row_count, 0, (room - v->row_count) * sizeof(*more));
		v->rows = more;
		v->row_count = room;
	}
	v->rows[id].id = id;
	return &v->rows[id];
}

/* The sample's time to every place on its stack, once each; its own to the newest. */
static int add_to_places(struct stacks *v, uint32_t stamp, const struct sample *s, uint64_t ns)
{
	for (uint32_t at = s->stack, newest = 1; at; newest = 0) {
		struct row *row = row_at(v, place_of(v, at));

		if (!row)
			return -ENOMEM;
		if (newest) {
			row->self_ns += ns;
			row->samples += s->count;
		}
		if (row->stamp != stamp)
			row->total_ns += ns;
		row->stamp = stamp;
		at = scry_frames_get(&v->frames, at).parent;
	}
	return 0;
}

static int make_rows(struct stacks *v)
{
	for (size_t i = 0; i < v->count; i++) {
		const struct sample *s = &v->samples[i];
		uint64_t ns = weight_of(v, s);
		const bool is_shown = !is_hidden(v, s) && ns;
		struct row *row;

		/* a process that did nothing is there all the same */
		if (scry_stack_processes_add(&v->processes, s->pid, is_shown ? ns : 0,
					     is_shown ? s->count : 0))
			return -ENOMEM;
		if (is_hidden(v, s))
			continue;
		v->total_ns += ns;
		if (!ns)
			continue;
		if (!v->opts->stacks && s->stack && v->opts->by != SCRY_VIEW_BY_THREAD &&
		    v->opts->by != SCRY_VIEW_BY_PROCESS) {
			if (add_to_places(v, (uint32_t)i + 1, s, ns))
				return -ENOMEM;
			continue;
		}
		row = row_at(v, place_of_sample(v, s));
		if (!row)
			return -ENOMEM;
		row->self_ns += ns;
		row->total_ns += ns;
		row->samples += s->count;
		row->state_ns[s->state] += ns;
	}
	return 0;
}

static int by_time(const void *left, const void *right)
{
	const struct row *a = left, *b = right;

	if (a->self_ns != b->self_ns)
		return a->self_ns < b->self_ns ? 1 : -1;
	return (a->total_ns < b->total_ns) - (a->total_ns > b->total_ns);
}

static struct scry_cell tenths(const struct stacks *v, uint64_t ns)
{
	return scry_cell_number(scry_share(ns, v->total_ns, 1000));
}

static struct place interned(const struct stacks *v, const struct row *row)
{
	const char *bytes = scry_intern_get(&v->places, row->id, NULL);
	struct place place = {0};

	if (bytes)
		memcpy(&place, bytes, sizeof(place));
	return place;
}

static uint32_t stack_of(const struct stacks *v, const struct row *row)
{
	return v->opts->times.split ? interned(v, row).file : row->id;
}

static struct place place_at(const struct stacks *v, const struct row *row)
{
	struct scry_frame frame;

	if (v->opts->stacks) {
		frame = scry_frames_get(&v->frames, stack_of(v, row));
		return (struct place){frame.file, frame.line, frame.method, frame.flags};
	}
	return interned(v, row);
}

static bool has_flag(const struct stacks *v, const struct row *row, uint32_t flag)
{
	return place_at(v, row).flags & flag;
}

/* The whole stack; one without frames has a nameless one. */
static struct scry_cell frames_cell(struct stacks *v, uint32_t stack)
{
	const struct scry_frame leaf = scry_frames_get(&v->frames, stack);

	return scry_frames_cell(&v->frames, &v->names, &leaf, &v->scratch);
}

/* Without the folders that a gem lies in. */
static void put_path(const struct scry_cell *file, struct scry_buf *buf)
{
	if (file->bytes)
		scry_gem_put_path(file->bytes, buf);
}

static void put_place(const struct stacks *v, const struct place *p, struct scry_buf *buf)
{
	struct scry_cell file = scry_name_text(&v->names, p->file),
			 method = scry_name_text(&v->names, p->method);

	if (p->flags & SCRY_STACK_NATIVE) {
		scry_buf_append(buf, file.bytes, file.bytes ? file.length : 0);
		if (p->method) {
			scry_buf_printf(buf, "  ");
			scry_demangle_put(method.bytes, method.length, buf);
		} else {
			scry_buf_printf(buf, "+0x%x", p->line);
		}
		scry_buf_printf(buf, " (native)");
		return;
	}
	if (!p->method) {
		scry_buf_printf(buf, "(no frame known)");
		return;
	}
	put_path(&file, buf);
	if (p->line)
		scry_buf_printf(buf, ":%u", p->line);
	scry_buf_append(buf, "  ", file.bytes ? 2 : 0);
	scry_buf_append(buf, method.bytes, method.length);
	if (p->flags & SCRY_STACK_C)
		scry_buf_append(buf, " (C)", 4);
}

/* "Object#fib (/srv/app.rb:3)" */
static void put_subject(const struct stacks *v, const struct place *p, struct scry_buf *buf)
{
	struct scry_cell file = scry_name_text(&v->names, p->file),
			 method = scry_name_text(&v->names, p->method);
	const bool is_native = p->flags & SCRY_STACK_NATIVE, is_c = p->flags & SCRY_STACK_C;

	if (!p->method) {
		put_place(v, p, buf);
		return;
	}
	if (is_native)
		scry_demangle_put(method.bytes, method.length, buf);
	else
		scry_buf_append(buf, method.bytes, method.length);
	if (!file.bytes)
		return;
	scry_buf_printf(buf, is_c ? " (C, called at " : " (");
	put_path(&file, buf);
	if (p->line && !is_native)
		scry_buf_printf(buf, ":%u", p->line);
	scry_buf_printf(buf, ")");
}

/* --- columns ---------------------------------------------------------------------------------- */

static struct scry_cell get_text(const void *row, void *v, struct scry_buf *buf)
{
	const struct place place = place_at(v, row);

	put_place(v, &place, buf);
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

static struct scry_cell get_thread(const void *row, void *view, struct scry_buf *buf)
{
	struct stacks *v = view;

	scry_stack_threads_put(&v->threads, &v->names, interned(v, row).line, buf);
	return scry_cell_text(scry_buf_str(buf), buf->len);
}

static const char *const states[SCRY_STATES] = {
	[SCRY_STATE_UNKNOWN] = "unknown",	[SCRY_STATE_CPU] = "running",
	[SCRY_STATE_RUNNABLE] = "ready",	[SCRY_STATE_GVL] = "waiting for the GVL",
	[SCRY_STATE_BLOCKED] = "blocked",	[SCRY_STATE_SLEEPING] = "sleeping",
	[SCRY_STATE_GC] = "collecting garbage",
};

#define NUMBER(member) SCRY_AT(struct row, member)
#define GET(name, ...) SCRY_GET(name, struct row, struct stacks, __VA_ARGS__)

GET(get_self_share, tenths(view, row->self_ns))
GET(get_total_share, tenths(view, row->total_ns))
GET(get_frames, frames_cell(view, stack_of(view, row)))
GET(get_file, scry_name_text(&view->names, place_at(view, row).file))
GET(get_method, scry_name_text(&view->names, place_at(view, row).method))
GET(get_is_c, scry_cell_number(has_flag(view, row, SCRY_STACK_C)))
GET(get_is_native, scry_cell_number(has_flag(view, row, SCRY_STACK_NATIVE)))
GET(get_offset, scry_cell_known(place_at(view, row).line, has_flag(view, row, SCRY_STACK_NATIVE)))
GET(get_line, scry_cell_known(place_at(view, row).line,
			      place_at(view, row).line && !has_flag(view, row, SCRY_STACK_NATIVE)))
GET(get_state, scry_cell_string(states[interned(view, row).method]))

static const struct scry_column lines[] = {
	{"% own", NULL, SCRY_CELL_TENTHS, get_self_share, 0},
	{"own s", "self_ns", SCRY_CELL_TIME, NUMBER(self_ns)},
	{"% with callees", NULL, SCRY_CELL_TENTHS, get_total_share, 0},
	{"s", "total_ns", SCRY_CELL_TIME, NUMBER(total_ns)},
	{"samples", "samples", SCRY_CELL_COUNT, NUMBER(samples)},
	{"file:line  method", NULL, SCRY_CELL_TEXT, get_text,
	 SCRY_COLUMN_ELASTIC | SCRY_COLUMN_GREP},
	{NULL, "file", SCRY_CELL_TEXT, get_file, 0},
	{NULL, "line", SCRY_CELL_NUMBER, get_line, 0},
	{NULL, "method", SCRY_CELL_TEXT, get_method, 0},
	{NULL, "is_c", SCRY_CELL_BOOL, get_is_c, 0},
	{NULL, "is_native", SCRY_CELL_BOOL, get_is_native, 0},
	{NULL, "offset", SCRY_CELL_NUMBER, get_offset, 0},
};
static const struct scry_column stacks[] = {
	{"%", NULL, SCRY_CELL_TENTHS, get_self_share, 0},
	{"s", "self_ns", SCRY_CELL_TIME, NUMBER(self_ns)},
	{"samples", "samples", SCRY_CELL_COUNT, NUMBER(samples)},
	{"newest frame of the stack", NULL, SCRY_CELL_TEXT, get_text,
	 SCRY_COLUMN_ELASTIC | SCRY_COLUMN_GREP},
	{NULL, "frames", SCRY_CELL_FRAMES, get_frames, 0},
	{NULL, "file", SCRY_CELL_TEXT, get_file, 0},
	{NULL, "line", SCRY_CELL_NUMBER, get_line, 0},
	{NULL, "method", SCRY_CELL_TEXT, get_method, 0},
	{NULL, "is_c", SCRY_CELL_BOOL, get_is_c, 0},
	{NULL, "is_native", SCRY_CELL_BOOL, get_is_native, 0},
	{NULL, "offset", SCRY_CELL_NUMBER, get_offset, 0},
	{NULL, "thread", SCRY_CELL_TEXT, get_thread, 0},
	{NULL, "state", SCRY_CELL_TEXT, get_state, 0},
	{NULL, "unknown_ns", SCRY_CELL_COUNT, NUMBER(state_ns[SCRY_STATE_UNKNOWN])},
	{NULL, "cpu_ns", SCRY_CELL_COUNT, NUMBER(state_ns[SCRY_STATE_CPU])},
	{NULL, "runnable_ns", SCRY_CELL_COUNT, NUMBER(state_ns[SCRY_STATE_RUNNABLE])},
	{NULL, "gvl_ns", SCRY_CELL_COUNT, NUMBER(state_ns[SCRY_STATE_GVL])},
	{NULL, "blocked_ns", SCRY_CELL_COUNT, NUMBER(state_ns[SCRY_STATE_BLOCKED])},
	{NULL, "sleeping_ns", SCRY_CELL_COUNT, NUMBER(state_ns[SCRY_STATE_SLEEPING])},
	{NULL, "gc_ns", SCRY_CELL_COUNT, NUMBER(state_ns[SCRY_STATE_GC])},
};

/* By gem, thread or process a row is a name and no frame; by method it has no line. */
static void pick_columns(const struct stacks *v, struct scry_table *table,
			 struct scry_column columns[SCRY_DOC_COLUMNS_MAX])
{
	static const char *const names[] = {[SCRY_VIEW_BY_METHOD] = "method",
					    [SCRY_VIEW_BY_GEM] = "gem",
					    [SCRY_VIEW_BY_THREAD] = "thread",
					    [SCRY_VIEW_BY_PROCESS] = "process"};
	const char *name = names[v->opts->by];
	const bool is_name = name && v->opts->by != SCRY_VIEW_BY_METHOD;

	if (v->opts->stacks)
		memcpy(columns, stacks, sizeof(stacks));
	else
		memcpy(columns, lines, sizeof(lines));
	table->column_count = (v->opts->stacks ? sizeof(stacks) : sizeof(lines)) / sizeof(*columns);
	for (size_t i = 0; i < table->column_count; i++) {
		struct scry_column *c = &columns[i];

		if (name && c->get == get_text)
			c->title = name;
		else if (name && c->get == get_method)
			c->key = name;
		else if (is_name &&
			 (c->get == get_file || c->get == get_line || c->get == get_offset ||
			  c->get == get_is_c || c->get == get_is_native))
			c->key = NULL;
		else if (!v->opts->times.split && (c->get == get_thread || c->get == get_state))
			c->key = NULL;
	}
}

int scry_stacks_check_filter(const struct scry_view_opts *opts)
{
	const struct stacks v = {.opts = opts};
	struct scry_column columns[SCRY_DOC_COLUMNS_MAX];
	struct scry_table table = {.columns = columns, .filter = &opts->filter};

	pick_columns(&v, &table, columns);
	return scry_table_check_filter(&table, "stacks");
}

static bool has_time(const void *row, void *view __attribute__((unused)))
{
	return ((const struct row *)row)->total_ns != 0;
}

static void judge(struct stacks *v, const struct scry_table *table)
{
	const struct row *row = scry_table_first(table);
	const char *time = v->opts->times.cpu	? "the time on a processor"
			   : v->opts->times.gvl ? "the time that threads waited for the GVL"
			   : v->threads.idle && !v->opts->times.idle
				   ? "the time of threads that are not idle"
				   : "the time of all threads";
	struct scry_buf buf = {0};
	struct place place;

	if (!v->count) {
		scry_buf_printf(&buf, "nothing was seen: there are no samples");
	} else if (!v->total_ns) {
		scry_buf_printf(&buf, v->opts->times.gvl ? "no thread was seen waiting for the GVL"
							 : "no thread was seen running");
	} else if (!row && v->opts->filter.count) {
		scry_verdict_filtered(&buf, v->opts->grep != NULL);
	} else if (!row) {
		scry_buf_printf(&buf,
				v->opts->grep ? "no row contains '%s'"
					      : "no frame of the samples is known",
				v->opts->grep);
	} else {
		place = place_at(v, row);
		scry_verdict_percent(&buf, row->self_ns, v->total_ns);
		if (!place.method && !(place.flags & SCRY_STACK_NATIVE)) {
			scry_buf_printf(&buf, " of %s has no known frame", time);
		} else {
			scry_buf_printf(&buf,
					v->opts->stacks ? " of %s is one stack, which ends in "
							: " of %s is in ",
					time);
			put_subject(v, &place, &buf);
		}
		if (row->samples) {
			scry_buf_printf(&buf, ", by ");
			scry_text_things(&buf, row->samples, "samples");
		}
	}
	scry_verdict(v->doc, &buf);
	scry_buf_done(&buf);
}

static int push(struct stacks *v)
{
	struct scry_column columns[SCRY_DOC_COLUMNS_MAX];
	struct scry_table table = {.columns = columns, .view = v, .has = has_time};
	struct scry_grep grep;
	int err = scry_stacks_check_filter(v->opts);

	if (!err)
		err = scry_grep_init(&grep, v->opts->grep);
	if (err)
		return err;
	if (make_rows(v)) {
		scry_grep_done(&grep);
		return scry_no_memory("the report");
	}
	table.filter = &v->opts->filter;
	pick_columns(v, &table, columns);
	if (v->row_count)
		qsort(v->rows, v->row_count, sizeof(*v->rows), by_time);
	table.rows = v->rows;
	table.count = v->row_count;
	table.size = sizeof(*v->rows);
	table.grep = &grep;
	table.sort = v->opts->sort_key;
	table.order = by_time;
	table.top = scry_view_top(v->opts, v->doc);
	scry_data_quality_close(&v->quality);
	v->quality.noun = "samples";
	v->quality.shown = v->sums.sums.valid + v->sums.sums.repaired + v->sums.sums.rejected;
	v->quality.unknown_cpu_ns = v->opts->times.cpu ? v->cpu_unknown_ns : 0;
	scry_data_quality_push(&v->quality, v->doc);
	judge(v, &table);
	note_idle(v);
	scry_stack_sums_note(&v->sums, v->doc);
	push_totals(v);
	v->doc->weight = "self_ns";
	if (v->opts->by == SCRY_VIEW_BY_LINE && !v->opts->stacks)
		scry_stack_processes_push(&v->processes, v->total_ns, v->doc);
	scry_table_push(&table, v->doc);
	scry_stack_sums_each(&v->sums, v->doc);
	scry_grep_done(&grep);
	return 0;
}

static void init(struct stacks *v)
{
	scry_data_quality_init(&v->quality, v->reader);
	scry_intern_init(&v->names, NAMES_MAX, NAMES_BYTES);
	scry_intern_init(&v->places, PLACES_MAX, PLACES_MAX * (sizeof(struct place) + 1ul));
	scry_frames_init(&v->frames);
	scry_stack_threads_init(&v->threads);
	scry_stack_processes_init(&v->processes);
}

static void done(struct stacks *v)
{
	scry_buf_done(&v->line);
	scry_stack_threads_done(&v->threads);
	scry_frames_done(&v->frames);
	scry_intern_done(&v->places);
	scry_intern_done(&v->names);
	free(v->samples);
	free(v->rows);
	free(v->scratch.frames);
	scry_stack_processes_done(&v->processes);
}

int scry_view_stacks(struct scry_reader *reader, const struct scry_view_opts *opts,
		     struct scry_doc *doc)
{
	struct stacks v = {.reader = reader, .opts = opts, .doc = doc};
	int err;

	init(&v);
	err = read_all(&v);
	if (!err)
		err = push(&v);
	done(&v);
	return err;
}

/* The rows that --grep leaves. */
static int give_rows(struct stacks *v, const struct scry_grep *grep, struct scry_stacks_rows *io)
{
	int err = 0;

	for (size_t i = 0; i < v->row_count && !err; i++) {
		const struct row *row = &v->rows[i];
		const struct scry_stacks_row of = {row->self_ns, row->total_ns, row->samples};
		struct place place = place_at(v, row);

		scry_buf_clear(&v->line);
		put_place(v, &place, &v->line);
		if (row->total_ns && scry_grep_matches(grep, scry_buf_str(&v->line)))
			err = io->take(io->arg, &v->line, &of);
	}
	return err;
}

/* Both have been read. */
static int compare(struct stacks v[2], struct scry_stacks_rows io[2])
{
	const struct scry_stack_threads_side sides[2] = {{&v[0].threads, &v[0].names},
							 {&v[1].threads, &v[1].names}};
	struct scry_grep grep;
	int err = v->opts->times.idle ? 0 : scry_stack_threads_agree(sides);

	if (!err)
		err = scry_grep_init(&grep, v->opts->grep);
	if (err)
		return err;
	for (int i = 0; i < 2 && !err; i++) {
		io[i].idle_threads = v->opts->times.idle ? 0 : v[i].threads.idle;
		err = make_rows(&v[i]);
		if (!err)
			err = give_rows(&v[i], &grep, &io[i]);
	}
	scry_grep_done(&grep);
	return err;
}

static void close_quality(struct stacks *v, struct scry_stacks_rows *io)
{
	scry_data_quality_close(&v->quality);
	v->quality.noun = "samples";
	v->quality.shown = v->sums.sums.valid + v->sums.sums.repaired + v->sums.sums.rejected;
	io->quality = v->quality;
	io->watched_ns = v->quality.last_ns > v->quality.first_ns
				 ? v->quality.last_ns - v->quality.first_ns
				 : v->quality.watched_ns;
}

int scry_stacks_rows(const struct scry_view_opts *opts, struct scry_stacks_rows io[2])
{
	struct stacks v[2];
	int err = 0;

	for (int i = 0; i < 2; i++) {
		v[i] = (struct stacks){.reader = io[i].reader, .opts = opts, .is_compared = true};
		init(&v[i]);
		if (!err)
			err = read_all(&v[i]);
	}
	if (!err)
		err = compare(v, io);
	if (err == -ENOMEM)
		err = scry_no_memory("comparing stacks");
	for (int i = 0; i < 2; i++) {
		close_quality(&v[i], &io[i]);
		done(&v[i]);
	}
	return err;
}
