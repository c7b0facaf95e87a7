/*
 * The document of a dump: what it has to do with locks first, then the threads, then the fibers.
 * In text a row is some lines, and threads that are alike are one row. See dump.h.
 */
#include "cmd/dump_print.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "cmd/report.h"
#include "view/table.h"
#include "view/verdict.h"

#define NATIVE_COLUMNS 2 /* the last ones of a thread */

struct show {
	const struct scry_dump *d;
	struct scry_doc *doc;
	uint64_t depth;
	bool are_others;	       /* the table that is open: threads that run no Ruby */
	struct scry_doc_frame *frames; /* of the row that is printed */
	size_t room;
	struct scry_doc_value values[SCRY_DUMP_LOCK_VALUES];
	int err;
};

/* --- cells ------------------------------------------------------------------------------------ */

static const char *verdict_word(enum scry_walk_verdict verdict)
{
	static const char *const words[] = {"valid", "repaired", "rejected", "empty"};

	return words[verdict];
}

static const char *native_end_word(const struct scry_dump_thread *t)
{
	static const char *const ends[] = {
		[SCRY_NATIVE_WHOLE] = "whole",
		[SCRY_NATIVE_NO_RULE] = "no rule",
		[SCRY_NATIVE_NO_REGISTER] = "no register",
		[SCRY_NATIVE_UNREADABLE] = "unreadable",
		[SCRY_NATIVE_TOO_DEEP] = "too deep",
	};

	return t->is_running ? "running" : t->native_count ? ends[t->end] : "unknown";
}

static struct scry_doc_frame doc_frame(const struct scry_dump_frame *f)
{
	return (struct scry_doc_frame){
		.file = f->path[0] ? f->path : NULL,
		.file_length = strlen(f->path),
		.method = f->name[0] ? f->name : NULL,
		.method_length = strlen(f->name),
		.line = f->line,
		.is_c = f->is_c,
		.is_native = f->is_native,
		.offset = f->offset,
		.label = f->is_native ? NULL : f->label,
		.address = f->is_native ? f->address : 0,
	};
}

static struct scry_cell frames_cell(struct show *s, const struct scry_dump_thread *t)
{
	if (t->count > s->room) {
		free(s->frames);
		s->frames = calloc(t->count, sizeof(*s->frames));
		s->room = s->frames ? t->count : 0;
		if (!s->frames) {
			s->err = -ENOMEM;
			return scry_cell_unknown();
		}
	}
	for (size_t i = 0; i < t->count; i++)
		s->frames[t->count - 1 - i] = doc_frame(&t->frames[i]);
	return (struct scry_cell){.frames = s->frames, .number = t->count};
}

#define GET(name, ...) SCRY_GET(name, struct scry_dump_thread, struct show, __VA_ARGS__)

GET(get_lines, (scry_dump_put_threads(view->d, row, view->depth, buf), scry_cell_buf(buf)))
GET(get_tid, scry_cell_number((uint64_t)row->ruby.tid))
GET(get_name, scry_cell_string(row->name))
GET(get_state, scry_cell_string(scry_thread_state_words(row->state)))
GET(get_wait, scry_cell_string(row->wait[0] ? row->wait : NULL))
GET(get_waits_for, scry_dump_lock_cell(view->d, row, view->values))
GET(get_verdict, scry_cell_string(verdict_word(row->verdict)))
GET(get_frames, frames_cell(view, row))
GET(get_native_end, scry_cell_string(native_end_word(row)))
GET(get_is_merged, scry_cell_number(row->native_count && !row->is_apart))

#define THREAD(member) SCRY_AT(struct scry_dump_thread, member)

static const struct scry_column thread_columns[] = {
	{"", NULL, SCRY_CELL_LINES, get_lines, 0},
	{NULL, "tid", SCRY_CELL_NUMBER, get_tid, 0},
	{NULL, "name", SCRY_CELL_TEXT, get_name, 0},
	{NULL, "state", SCRY_CELL_TEXT, get_state, 0},
	{NULL, "wait", SCRY_CELL_TEXT, get_wait, 0},
	{NULL, "waits_for", SCRY_CELL_VALUE, get_waits_for, 0},
	{NULL, "has_signal", SCRY_CELL_BOOL, THREAD(has_signal)},
	{NULL, "verdict", SCRY_CELL_TEXT, get_verdict, 0},
	{NULL, "unnamed", SCRY_CELL_NUMBER, THREAD(unnamed)},
	{NULL, "is_cut", SCRY_CELL_BOOL, THREAD(is_cut)},
	{NULL, "is_left_out", SCRY_CELL_BOOL, THREAD(is_left_out)},
	{NULL, "frames", SCRY_CELL_FRAMES, get_frames, 0},
	{NULL, "native_end", SCRY_CELL_TEXT, get_native_end, 0},
	{NULL, "is_merged", SCRY_CELL_BOOL, get_is_merged, 0},
};

#define GET_PLACE(name, ...) SCRY_GET(name, struct scry_dump_place, struct show, __VA_ARGS__)

GET_PLACE(get_place_lines, (scry_dump_put_place(row, view->depth, buf), scry_cell_buf(buf)))
GET_PLACE(get_is_cut, scry_cell_number(row->thread->is_cut))
GET_PLACE(get_place_frames, frames_cell(view, row->thread))

static const struct scry_column place_columns[] = {
	{"", NULL, SCRY_CELL_LINES, get_place_lines, 0},
	{NULL, "count", SCRY_CELL_NUMBER, SCRY_AT(struct scry_dump_place, fibers)},
	{NULL, "is_cut", SCRY_CELL_BOOL, get_is_cut, 0},
	{NULL, "frames", SCRY_CELL_FRAMES, get_place_frames, 0},
};

/* --- head ------------------------------------------------------------------------------------- */

static void push_note(const struct show *s, struct scry_buf *buf)
{
	s->doc->ops->note(s->doc, scry_buf_str(buf), buf->len);
	scry_buf_clear(buf);
}

/* What is not as in a process that lives. */
static void push_core_notes(const struct show *s, struct scry_buf *buf)
{
	const struct scry_core *core = s->d->core;
	size_t unchecked = 0;

	if (core->cut) {
		scry_buf_printf(buf, "the core was cut off, it lacks ");
		scry_text_size(buf, core->cut);
		scry_buf_printf(buf, "; look at ulimit -c and the disk's room");
		push_note(s, buf);
	}
	for (size_t i = 0; i < core->file_count; i++)
		unchecked += core->files[i].path && core->files[i].check == SCRY_CORE_UNCHECKED;
	if (unchecked) {
		scry_buf_printf(buf, "the core does not say whether %zu file%s that it ran",
				unchecked, unchecked == 1 ? " is the one" : "s are the ones");
		push_note(s, buf);
	}
	if (s->d->is_odd) {
		scry_buf_printf(buf, "not all of the VM's state is there or whole: a thread may "
				     "have been in the midst of a call");
		push_note(s, buf);
	}
}

/* Why there may be suspended fibers that are not shown. */
static void push_fiber_notes(const struct show *s, struct scry_buf *buf)
{
	const struct scry_dump *d = s->d;

	if (d->unsearched) {
		scry_buf_printf(buf,
				"suspended fibers were not looked for, as that takes long in ");
		scry_text_size(buf, d->unsearched);
		scry_buf_printf(buf, d->core ? " of a core" : " of memory");
		scry_buf_printf(buf, "; fix: --fibers");
	} else if (d->fibers_error[0]) {
		scry_buf_printf(buf, "suspended fibers could not be looked for: %s",
				d->fibers_error);
	} else if (d->is_late) {
		scry_buf_printf(buf,
				"suspended fibers may be missing, as the time for the search was "
				"over; fix: scry fibers --max-time 0");
	}
	if (buf->len)
		push_note(s, buf);
}

/* Whatever its threads would do: they do nothing before they may run again. */
static void push_stopped(const struct show *s, struct scry_buf *buf)
{
	const struct scry_proc *proc = &s->d->proc;

	if (proc->state == 'T')
		scry_buf_printf(buf,
				"the process is stopped by a signal (as ^Z is): none of its "
				"threads runs; fix: kill -CONT %d",
				(int)proc->pid);
	else if (proc->state == 't')
		scry_buf_printf(buf,
				"process %d traces this one and holds it: its threads may be "
				"stopped",
				(int)proc->tracer);
	if (buf->len)
		push_note(s, buf);
}

/* The first cycle is the verdict, of deadlocks before others; the rest are notes. */
static void push_cycles(const struct show *s, size_t verdict, struct scry_buf *buf)
{
	for (int is_timed = 0; is_timed < 2; is_timed++) {
		for (size_t i = 0; i < s->d->count; i++) {
			if (i == verdict || !scry_dump_is_cycle(s->d, i, is_timed))
				continue;
			scry_dump_put_cycle(s->d, i, buf);
			push_note(s, buf);
		}
	}
}

/* The index of the thread with which the worst cycle begins; the count of threads: there is none.
 */
static size_t worst_cycle(const struct scry_dump *d)
{
	for (int is_timed = 0; is_timed < 2 && d->cycles; is_timed++)
		for (size_t i = 0; i < d->count; i++)
			if (scry_dump_is_cycle(d, i, is_timed))
				return i;
	return d->count;
}

/* `process` is the verdict where there is no cycle, else the title of the threads. */
static void push_head(const struct show *s, const struct scry_buf *process)
{
	const struct scry_dump *d = s->d;
	const size_t cycle = worst_cycle(d);
	struct scry_buf buf = {0};

	if (cycle < d->count) {
		scry_dump_put_cycle(d, cycle, &buf);
		scry_verdict(s->doc, &buf);
		scry_buf_clear(&buf);
		s->doc->title = scry_buf_str(process);
	} else {
		scry_verdict(s->doc, process);
	}
	if (d->left_out) {
		scry_buf_printf(&buf,
				"incomplete: the frames of %zu thread%s, and what %s, are left "
				"out: the frames of the others fill 64 MiB",
				d->left_out, scry_text_s(d->left_out),
				d->left_out == 1 ? "it waits for" : "these wait for");
		push_note(s, &buf);
	}
	if (d->core)
		push_core_notes(s, &buf);
	else
		push_stopped(s, &buf);
	push_fiber_notes(s, &buf);
	if (d->cycles)
		push_cycles(s, cycle, &buf);
	scry_buf_done(&buf);
}

/* An object, or null: the process lives. */
static struct scry_cell core_cell(const struct scry_dump *d, struct scry_doc_value values[10])
{
	if (!d->core)
		return scry_cell_unknown();
	const struct scry_doc_value all[] = {
		{.kind = SCRY_VALUE_OBJECT},
		SCRY_VALUE_OF_KEY("file"),
		{SCRY_VALUE_TEXT, d->core_path, strlen(d->core_path)},
		SCRY_VALUE_OF_KEY("signal"),
		{.kind = SCRY_VALUE_UNSIGNED, .number = (uint64_t)d->core->signal},
		SCRY_VALUE_OF_KEY("cut_bytes"),
		{.kind = SCRY_VALUE_UNSIGNED, .number = d->core->cut},
		SCRY_VALUE_OF_KEY("is_odd"),
		{.kind = SCRY_VALUE_BOOL, .number = d->is_odd},
		{.kind = SCRY_VALUE_OBJECT_END},
	};

	memcpy(values, all, sizeof(all));
	return (struct scry_cell){.values = values, .number = sizeof(all) / sizeof(all[0])};
}

/* For programs: the sentences have all of it. */
static int push_totals(const struct show *s)
{
	const struct scry_dump *d = s->d;
	struct scry_doc_value core[10];
	struct scry_doc_value *cycles = calloc(6 * d->count + 1, sizeof(*cycles));

	if (!cycles)
		return -ENOMEM;
	const struct scry_pair totals[] = {
		{"pid", NULL, SCRY_CELL_NUMBER, 0, scry_cell_number((uint64_t)d->proc.pid)},
		{"runtime", NULL, SCRY_CELL_TEXT, 0, scry_cell_string(d->ruby->description)},
		{"time_s", NULL, SCRY_CELL_NUMBER, 0, scry_cell_number((uint64_t)d->wall_s)},
		{"pause_ns", NULL, SCRY_CELL_NUMBER, 0, scry_cell_number(d->pause_ns)},
		{"is_stopped", NULL, SCRY_CELL_BOOL, 0,
		 scry_cell_number(!d->core && (d->proc.state == 'T' || d->proc.state == 't'))},
		{"core", NULL, SCRY_CELL_VALUE, 0, core_cell(d, core)},
		{"other_threads", NULL, SCRY_CELL_NUMBER, 0, scry_cell_number(d->others)},
		{"left_out", NULL, SCRY_CELL_NUMBER, 0, scry_cell_number(d->left_out)},
		{"suspended_fibers", NULL, SCRY_CELL_NUMBER, 0,
		 scry_cell_known(d->suspended, d->has_fibers)},
		{"deadlocks", NULL, SCRY_CELL_VALUES, 0, scry_dump_cycles_cell(d, false, cycles)},
		{"timed_cycles", NULL, SCRY_CELL_VALUES, 0,
		 scry_dump_cycles_cell(d, true, cycles + 3 * d->count)},
	};

	s->doc->ops->totals(s->doc, totals, sizeof(totals) / sizeof(totals[0]));
	free(cycles);
	return 0;
}

/* --- tables ----------------------------------------------------------------------------------- */

static bool is_shown(const void *row, void *view)
{
	const struct scry_dump_thread *t = row;
	const struct show *s = view;

	if (s->doc->is_data)
		return t->is_other == s->are_others;
	return t == &s->d->threads[t->same_as] && !t->is_left_out;
}

static void push_threads(struct show *s, const char *section, bool are_others)
{
	struct scry_table table = {SCRY_COLUMNS(thread_columns),
				   SCRY_ROWS(s->d->threads, s->d->count), .view = s,
				   .has = is_shown};

	if (!s->d->native)
		table.column_count -= NATIVE_COLUMNS;
	s->are_others = are_others;
	s->doc->section = section;
	scry_table_push(&table, s->doc);
	s->doc->title = NULL;
}

static void push_fibers(struct show *s)
{
	const struct scry_dump *d = s->d;

	if (!d->place_count && !(s->doc->is_data && d->has_fibers))
		return;
	s->doc->section = "fibers";
	scry_table_push(&(struct scry_table){SCRY_COLUMNS(place_columns),
					     SCRY_ROWS(d->places, d->place_count), .view = s},
			s->doc);
}

int scry_dump_push(const struct scry_dump *d, uint64_t depth, bool is_json)
{
	const struct scry_report_opts form = {.json = is_json};
	struct scry_doc doc = {.view = "dump", .schema = 3, .out = stdout};
	struct show s = {.d = d, .doc = &doc, .depth = depth};
	struct scry_buf process = {0};
	int err = scry_report_open(&doc, &form);

	if (err)
		return err;
	scry_dump_put_process(d, &process);
	push_head(&s, &process);
	s.err = doc.is_data ? push_totals(&s) : 0;
	if (!s.err)
		push_threads(&s, "threads", false);
	if (!s.err && doc.is_data && d->native)
		push_threads(&s, "others", true);
	if (!s.err)
		push_fibers(&s);
	if (s.err)
		scry_doc_abandon(&doc);
	else
		s.err = scry_doc_end(&doc);
	free(s.frames);
	scry_buf_done(&process);
	return s.err;
}
