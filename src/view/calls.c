/*
 * The calls view: each call as ltrace shows it. A line is printed when its call begins and is
 * completed when it returns; when something else comes between, it ends with "<unfinished ...>" and
 * a line "<... NAME resumed>" follows. With --slow, and in JSON, each call is written once it is
 * over.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/demangle.h"
#include "base/err.h"
#include "base/text.h"
#include "view/calls_line.h"
#include "view/calls_number.h"
#include "view/calls_where.h"
#include "view/functions.h"
#include "view/grep.h"
#include "view/data_quality.h"
#include "view/native_frames.h"
#include "view/table.h"

#define OPEN_MAX (1u << 20)
#define NS 1000000000u
#define INDENT_MAX 400u

struct open_call {
	struct scry_event *event; /* a copy, in `room` bytes, which stay for the next one */
	uint32_t next_free, room;
	bool is_open;
	bool need_comma; /* behind what was printed when it began */
};

struct lines {
	const struct scry_view_opts *opts;
	struct scry_reader *reader;
	struct scry_doc *doc;
	struct scry_grep grep;
	struct scry_call_where *where;
	uint64_t unsure;   /* calls of which --where has no answer */
	bool has_vfork;	   /* a call of it was shown */
	uint64_t left_out; /* calls that began while OPEN_MAX others were open */
	uint64_t hidden;   /* calls, by --grep */
	struct scry_call_functions functions;
	struct scry_map open;  /* key of a call -> index */
	struct scry_map depth; /* thread -> calls that are open */
	struct open_call *calls;
	uint32_t count, room, free;
	uint64_t line; /* key of the call whose line is not completed */
	bool has_line; /* there is one */
	bool is_whole; /* calls are written when they are over */
	bool are_many; /* threads: lines say which */
	uint32_t first_pid;
	bool has_tid;
	uint32_t tid;
	uint64_t line_ns, last_ns; /* of the line before; of the newest event */
	uint64_t shown;
	uint64_t clock_of; /* the second that `clock` shows */
	size_t clock_length;
	char clock[16];
	struct scry_buf buf;
	struct scry_native_frames frames;
	struct scry_map called, ruby; /* key of a call -> id of its stack, until it is over */
};

static int no_memory(void)
{
	return scry_no_memory("calls that have not returned");
}

/* "22:31:50" of a second; most lines are of the same one. */
static void put_clock(struct lines *l, uint64_t seconds)
{
	const time_t t = (time_t)seconds;
	struct tm tm;

	if (seconds != l->clock_of && localtime_r(&t, &tm)) {
		l->clock_length = strftime(l->clock, sizeof(l->clock), "%H:%M:%S", &tm);
		l->clock_of = seconds;
	}
	scry_buf_append(&l->buf, l->clock, l->clock_length);
}

static void put_time(struct lines *l, uint64_t time_ns)
{
	const struct scry_view_call_style *style = &l->opts->calls;
	const struct scry_file_head *head = scry_reader_head(l->reader);
	uint64_t wall = head->wall_ns + (time_ns - head->mono_ns);
	uint64_t gap = l->line_ns && time_ns > l->line_ns ? time_ns - l->line_ns : 0;

	if (style->relative) {
		scry_buf_append(&l->buf, "  ", gap < 10ull * NS ? 2 : gap < 100ull * NS ? 1 : 0);
		scry_call_put_seconds(&l->buf, gap);
		scry_buf_append(&l->buf, " ", 1);
	}
	if (!style->clock)
		return;
	if (style->clock >= 3)
		scry_call_put_u64(&l->buf, wall / NS, 1);
	else
		put_clock(l, wall / NS);
	if (style->clock >= 2) {
		scry_buf_append(&l->buf, ".", 1);
		scry_call_put_u64(&l->buf, wall % NS / 1000, 6);
	}
	scry_buf_append(&l->buf, " ", 1);
}

static void put_pointer(struct lines *l, uint64_t key)
{
	uint64_t id, address = 0;

	if (key && scry_map_get(&l->called, key, &id))
		address = scry_native_frames_address(&l->frames, (uint32_t)id);
	if (address)
		scry_buf_printf(&l->buf, "[%#llx] ", (unsigned long long)address);
	else if (key)
		scry_buf_printf(&l->buf, "[?] ");
}

/* Thread, time, indentation, where the call returns to: what a line begins with. `key` 0: it is of
 * no call. */
static void begin_line(struct lines *l, uint64_t time_ns, uint32_t tid, uint64_t key)
{
	uint64_t depth = 0, columns = l->opts->calls.indent;

	if (l->are_many) {
		scry_buf_append(&l->buf, "[pid ", 5);
		scry_call_put_u64(&l->buf, tid, 1);
		scry_buf_append(&l->buf, "] ", 2);
	}
	put_time(l, time_ns);
	l->line_ns = time_ns;
	if (l->opts->calls.pointer)
		put_pointer(l, key);
	if (!columns || !scry_map_get(&l->depth, tid, &depth) || !depth)
		return;
	columns = depth > INDENT_MAX || columns > INDENT_MAX / depth ? INDENT_MAX : columns * depth;
	scry_buf_printf(&l->buf, "%*s", (int)columns, "");
}

static void print(struct lines *l)
{
	l->doc->ops->text(l->doc, scry_buf_str(&l->buf), l->buf.len);
	scry_buf_clear(&l->buf);
}

static void put_name(struct lines *l, const struct scry_call_function *f)
{
	const int objects = l->opts->calls.objects;

	scry_call_put_name(&l->buf, l->reader, f,
			   objects == SCRY_CALL_OBJECTS_YES ||
				   (!objects && l->functions.are_several));
}

/* "name(arg, arg" */
static bool put_begin(struct lines *l, const struct scry_event *call,
		      const struct scry_call_function *f)
{
	put_name(l, f);
	return scry_call_put(
		&(struct scry_call_out){.text = &l->buf, .elements = l->opts->calls.elements}, call,
		f);
}

static void cut_line(struct lines *l)
{
	if (l->has_line)
		scry_buf_printf(&l->buf, " <unfinished ...>\n");
	l->has_line = false;
}

static void end_line(struct lines *l, const struct scry_call_image *image,
		     const struct scry_call_function *f, bool need_comma)
{
	const struct scry_ev_return *ret = (const void *)(image->ret + 1);

	scry_call_put_rest(
		&(struct scry_call_out){.text = &l->buf, .elements = l->opts->calls.elements},
		image, f, need_comma);
	if ((l->opts->calls.durations || l->opts->calls.slow_ns) && ret->how == SCRY_RETURN_DONE) {
		scry_buf_append(&l->buf, " <", 2);
		scry_call_put_seconds(&l->buf, ret->duration_ns);
		scry_buf_append(&l->buf, ">", 1);
	}
	scry_buf_append(&l->buf, "\n", 1);
}

static uint64_t key_of(const struct scry_event *event)
{
	const struct scry_ev_call *call = (const void *)(event + 1);

	return scry_call_key(call->pid, call->call);
}

/* The caller: a stack, outermost first. */
static struct scry_cell stack_cell(const struct lines *l, const struct scry_map *called,
				   const struct scry_event *event,
				   struct scry_doc_frame frames[SCRY_NATIVE_DEPTH])
{
	uint64_t id = 0;
	uint32_t depth = 0;

	if (scry_map_get(called, key_of(event), &id))
		depth = scry_native_frames_all(&l->frames, l->reader, (uint32_t)id, frames);
	return (struct scry_cell){.is_unknown = !depth, .number = depth, .frames = frames};
}

/* One call, in JSON; image->ret NULL: it is not over. */
static int push(struct lines *l, const struct scry_call_image *image,
		const struct scry_call_function *f)
{
	static const char *const states[] = {"returned", "left", "alone", "unfinished"};
	const struct scry_event *event = image->call;
	const struct scry_ev_call *call = (const void *)(event + 1);
	const struct scry_ev_return *ret = image->ret ? (const void *)(image->ret + 1) : NULL;
	const struct scry_proto *proto = f ? f->proto : &scry_proto_unknown;
	uint64_t start = scry_reader_head(l->reader)->mono_ns;
	struct scry_call_values values = {0}, result = {0};
	const uint64_t elements = l->opts->calls.elements;
	const struct scry_call_out out = {.values = &values, .elements = elements},
				   result_out = {.values = &result, .elements = elements};
	static const struct scry_doc_value null = {.kind = SCRY_VALUE_NULL};
	unsigned int state = !ret ? 3 : ret->how < 2 ? ret->how : 2;
	struct scry_doc_frame frames[SCRY_NATIVE_DEPTH], ruby[SCRY_NATIVE_DEPTH];
	uint32_t flags = scry_call_part_flags(image);
	bool need_comma = false, is_failed;
	int number;
	const char *error = scry_call_error(f, image, &number);

	scry_call_show_args(image, proto, 0, scry_call_args_shown(proto, event), &need_comma, &out);
	if (!state)
		scry_call_show_result(image, proto, &result_out);
	const struct scry_pair pairs[] = {
		{"pid", NULL, SCRY_CELL_NUMBER, 0, scry_cell_number(call->pid)},
		{"time_ns", NULL, SCRY_CELL_TIME, 0,
		 scry_cell_number(event->time_ns > start ? event->time_ns - start : 0)},
		{"tid", NULL, SCRY_CELL_NUMBER, 0, scry_cell_number(event->tid)},
		{"function", NULL, SCRY_CELL_SYMBOL, 0,
		 f ? scry_functions_string(l->reader, f->ev.symbol_str) : scry_cell_unknown()},
		{"library", NULL, SCRY_CELL_TEXT, 0,
		 f ? scry_functions_string(l->reader, f->ev.module_str) : scry_cell_unknown()},
		{"caller", NULL, SCRY_CELL_TEXT, 0,
		 f ? scry_functions_string(l->reader, f->ev.caller_str) : scry_cell_unknown()},
		{"args",
		 NULL,
		 SCRY_CELL_VALUES,
		 0,
		 {.values = values.values, .number = values.count}},
		{"result",
		 NULL,
		 SCRY_CELL_VALUE,
		 0,
		 {.values = result.count ? result.values : &null,
		  .number = result.count ? result.count : 1}},
		{"error", NULL, SCRY_CELL_TEXT, 0,
		 scry_cell_text(error, error ? strlen(error) : 0)},
		{"duration_ns", NULL, SCRY_CELL_NUMBER, 0,
		 scry_cell_known(state ? 0 : ret->duration_ns, !state)},
		{"state", NULL, SCRY_CELL_TEXT, 0,
		 scry_cell_text(states[state], strlen(states[state]))},
		{"is_cut", NULL, SCRY_CELL_BOOL, 0,
		 scry_cell_number(flags & SCRY_PART_CUT || values.is_long || result.is_long)},
		{"is_digest", NULL, SCRY_CELL_BOOL, 0,
		 scry_cell_number(flags & SCRY_PART_DIGEST ? 1 : 0)},
		{"frames", NULL, SCRY_CELL_FRAMES, 0, stack_cell(l, &l->called, event, frames)},
		{"ruby_frames", NULL, SCRY_CELL_FRAMES, 0, stack_cell(l, &l->ruby, event, ruby)},
	};

	is_failed = values.failed || result.failed;
	if (!is_failed)
		l->doc->ops->record(l->doc, pairs, sizeof(pairs) / sizeof(pairs[0]));
	scry_call_values_done(&values);
	scry_call_values_done(&result);
	return is_failed ? no_memory() : 0;
}

/* The caller, below the line that ends a call. */
static void put_stack(struct lines *l, uint64_t key)
{
	uint64_t id;

	if (!l->opts->calls.no_stacks && scry_map_get(&l->called, key, &id))
		scry_native_frames_lines(&l->frames, l->reader, (uint32_t)id, &l->buf);
	if (scry_map_get(&l->ruby, key, &id))
		scry_native_frames_lines(&l->frames, l->reader, (uint32_t)id, &l->buf);
}

static void meet(struct lines *l, uint32_t tid)
{
	l->are_many |= l->has_tid && tid != l->tid;
	l->has_tid = true;
	l->tid = tid;
}

/* Is it of another process than the first? Then lines say which. */
static void note_process(struct lines *l, uint32_t pid)
{
	l->are_many |= l->first_pid && pid != l->first_pid;
}

static int copy(struct open_call *o, const struct scry_event *event)
{
	if (o->room < event->size) {
		free(o->event);
		o->room = event->size;
		o->event = malloc(o->room);
	}
	if (!o->event)
		return -ENOMEM;
	memcpy(o->event, event, event->size);
	o->is_open = true;
	return 0;
}

static int keep(struct lines *l, uint64_t key, const struct scry_event *event, bool need_comma)
{
	uint32_t i = l->free;
	uint64_t *depth;

	if (l->open.count == OPEN_MAX) { /* hostile: it is not written when it is over */
		l->left_out++;
		return 0;
	}
	if (i) {
		l->free = l->calls[i - 1].next_free;
	} else if (l->count == l->room) {
		uint32_t room = l->room ? 2 * l->room : 256;
		struct open_call *more = reallocarray(l->calls, room, sizeof(*more));

		if (!more)
			return no_memory();
		l->calls = more;
		l->room = room;
	}
	if (!i)
		l->calls[(i = ++l->count) - 1] = (struct open_call){0};
	if (copy(&l->calls[i - 1], event) < 0 || scry_map_put(&l->open, key, i) < 0)
		return no_memory();
	l->calls[i - 1].need_comma = need_comma;
	depth = scry_map_ref(&l->depth, event->tid);
	if (depth)
		++*depth;
	return 0;
}

static bool is_wanted(struct lines *l, uint32_t pid, const struct scry_call_function *f)
{
	const char *symbol = f ? scry_reader_string(l->reader, f->ev.symbol_str, NULL) : NULL;

	if (l->opts->pid && l->opts->pid != pid)
		return false;
	if (!l->opts->grep || (symbol && scry_grep_matches_symbol(&l->grep, symbol)))
		return true;
	l->hidden++;
	return false;
}

static int on_call(struct lines *l, const struct scry_event *event)
{
	const struct scry_ev_call *call = (const void *)(event + 1);
	const struct scry_call_function *f =
		scry_call_functions_find(&l->functions, call->pid, call->function);
	uint64_t key = scry_call_key(call->pid, call->call), old;
	bool need_comma = false;

	if (!is_wanted(l, call->pid, f) || scry_map_get(&l->open, key, &old))
		return 0;
	l->has_vfork |= f && f->is_vfork;
	note_process(l, call->pid); /* a child may call first */
	if (!l->is_whole) {
		cut_line(l);
		meet(l, event->tid);
		begin_line(l, event->time_ns, event->tid, key);
		need_comma = put_begin(l, event, f);
		print(l);
		l->has_line = true;
		l->line = key;
		l->shown++;
	}
	return keep(l, key, event, need_comma);
}

/* A call that is over, or (image->ret NULL) has not ended, written as a whole. */
static int write_whole(struct lines *l, const struct scry_call_image *image,
		       const struct scry_call_function *f)
{
	const struct scry_event *event = image->call;
	bool need_comma;

	l->shown++;
	if (l->doc->is_data)
		return push(l, image, f);
	meet(l, event->tid);
	begin_line(l, event->time_ns, event->tid, key_of(event));
	need_comma = put_begin(l, event, f);
	if (image->ret)
		end_line(l, image, f, need_comma);
	else
		scry_buf_printf(&l->buf, " <unfinished ...>\n");
	put_stack(l, key_of(event));
	print(l);
	return 0;
}

static void write_resumed(struct lines *l, const struct scry_call_image *image,
			  const struct scry_call_function *f, bool need_comma)
{
	cut_line(l);
	meet(l, image->ret->tid);
	begin_line(l, image->ret->time_ns, image->ret->tid, key_of(image->call));
	scry_buf_printf(&l->buf, "<... ");
	scry_call_put_name(&l->buf, l->reader, f, false);
	scry_buf_printf(&l->buf, " resumed> ");
	end_line(l, image, f, need_comma);
	put_stack(l, key_of(image->call));
	print(l);
}

static bool is_where(struct lines *l, const struct scry_call_image *image,
		     const struct scry_call_function *f)
{
	enum scry_call_where_answer a = scry_call_where_takes(l->where, image, f);

	l->unsure += a == SCRY_WHERE_UNKNOWN;
	return a == SCRY_WHERE_YES;
}

static void forget_stacks(struct lines *l, uint64_t key)
{
	scry_map_remove(&l->called, key, NULL);
	scry_map_remove(&l->ruby, key, NULL);
}

static int on_return(struct lines *l, const struct scry_event *event)
{
	const struct scry_ev_return *ret = (const void *)(event + 1);
	const struct scry_call_function *f =
		scry_call_functions_find(&l->functions, ret->pid, ret->function);
	uint64_t key = scry_call_key(ret->pid, ret->call), i, *depth;
	struct scry_call_image image = {.ret = event};
	struct open_call *o;
	int r = 0;

	if (!scry_map_remove(&l->open, key, &i)) {
		forget_stacks(l, key);
		return 0;
	}
	o = &l->calls[i - 1];
	image.call = o->event;
	depth = scry_map_ref(&l->depth, o->event->tid);
	if (depth && *depth && !--*depth)
		scry_map_remove(&l->depth, o->event->tid, NULL);
	if (l->is_whole) {
		if ((!l->opts->calls.slow_ns || (ret->how == SCRY_RETURN_DONE &&
						 ret->duration_ns >= l->opts->calls.slow_ns)) &&
		    is_where(l, &image, f))
			r = write_whole(l, &image, f);
	} else if (l->has_line && l->line == key) {
		end_line(l, &image, f, o->need_comma);
		put_stack(l, key);
		print(l);
		l->has_line = false;
	} else {
		write_resumed(l, &image, f, o->need_comma);
	}
	forget_stacks(l, key);
	o->is_open = false;
	o->next_free = l->free;
	l->free = (uint32_t)i;
	return r;
}

static int by_time(const void *left, const void *right)
{
	const struct open_call *a = left, *b = right;

	if (!a->is_open || !b->is_open)
		return b->is_open - a->is_open;
	return a->event->time_ns < b->event->time_ns ? -1 : a->event->time_ns > b->event->time_ns;
}

/* What has not returned by the end. */
static int write_unfinished(struct lines *l)
{
	int r = 0;

	if (!l->is_whole) {
		cut_line(l);
		print(l);
		return 0;
	}
	if (l->count)
		qsort(l->calls, l->count, sizeof(*l->calls), by_time);
	for (uint32_t i = 0; i < l->count && l->calls[i].is_open && r == 0; i++) {
		const struct scry_call_image image = {.call = l->calls[i].event};
		const struct scry_ev_call *call = (const void *)(image.call + 1);
		const struct scry_call_function *f =
			scry_call_functions_find(&l->functions, call->pid, call->function);

		if (l->last_ns - image.call->time_ns >= l->opts->calls.slow_ns &&
		    is_where(l, &image, f))
			r = write_whole(l, &image, f);
	}
	return r;
}

/* "--- SIGUSR1 (User defined signal 1) ---", in text. */
static void write_signal(struct lines *l, const struct scry_event *event)
{
	const struct scry_ev_signal *s = (const void *)(event + 1);
	const int number = s->signal < _NSIG ? (int)s->signal : 0;
	const char *name = sigabbrev_np(number), *text = sigdescr_np(number);

	if (l->opts->pid && l->opts->pid != s->pid)
		return;
	cut_line(l);
	note_process(l, s->pid);
	meet(l, event->tid);
	l->are_many |= event->tid != s->pid; /* its main thread may never have a line */
	begin_line(l, event->time_ns, event->tid, 0);
	if (name && text)
		scry_buf_printf(&l->buf, "--- SIG%s (%s) ---\n", name, text);
	else if (number >= SIGRTMIN)
		scry_buf_printf(&l->buf, "--- SIGRTMIN+%d (Real-time signal %d) ---\n",
				number - SIGRTMIN, number - SIGRTMIN);
	else
		scry_buf_printf(&l->buf, "--- signal %u ---\n", s->signal);
	print(l);
}

/* A process that is known runs another program, in text. */
static void write_exec(struct lines *l, const struct scry_event *event)
{
	const struct scry_ev_process *p = (const void *)(event + 1);
	uint64_t known;

	if (!scry_map_get(&l->functions.programs, p->pid, &known) ||
	    (l->opts->pid && l->opts->pid != p->pid))
		return;
	cut_line(l);
	note_process(l, p->pid);
	begin_line(l, event->time_ns, p->pid, 0);
	scry_buf_printf(&l->buf, "--- Called exec() ---\n");
	print(l);
}

/* "+++ exited (status 0) +++", in text. */
static void write_exit(struct lines *l, const struct scry_event *event)
{
	const struct scry_ev_totals *t = (const void *)(event + 1);
	int status = (int)(t->exit & 0xffff);

	if (!(t->exit & SCRY_EXIT_KNOWN) || l->doc->is_data ||
	    (l->opts->pid && l->opts->pid != t->pid))
		return;
	cut_line(l);
	note_process(l, t->pid);
	begin_line(l, event->time_ns, t->pid, 0);
	if (WIFSIGNALED(status))
		scry_buf_printf(&l->buf, "+++ killed by SIG%s +++\n",
				sigabbrev_np(WTERMSIG(status)) ? sigabbrev_np(WTERMSIG(status))
							       : "?");
	else
		scry_buf_printf(&l->buf, "+++ exited (status %d) +++\n", WEXITSTATUS(status));
	print(l);
}

static int on_called(struct lines *l, const struct scry_ev_called *called)
{
	struct scry_map *map =
		scry_native_frames_are(&l->frames, called->stack) ? &l->called : &l->ruby;

	if (scry_map_put(map, scry_call_key(called->pid, called->call), called->stack) == -ENOMEM)
		return no_memory();
	return 0;
}

static int read_all(struct lines *l, struct scry_data_quality *quality)
{
	const struct scry_event *event;
	int got, r = 0;

	while ((got = scry_reader_next(l->reader, &event)) > 0 && r == 0 && !ferror(l->doc->out)) {
		scry_data_quality_event(quality, event);
		if (event->type == SCRY_EVENT_PROCESS && !l->first_pid)
			l->first_pid = ((const struct scry_ev_process *)(event + 1))->pid;
		if (event->type == SCRY_EVENT_PROCESS && !l->is_whole)
			write_exec(l, event);
		if (event->type == SCRY_EVENT_PROCESS)
			scry_call_functions_program(&l->functions, (const void *)(event + 1));
		if (event->type == SCRY_EVENT_FUNCTION)
			r = scry_call_functions_add(&l->functions, l->reader,
						    (const void *)(event + 1));
		if (event->type == SCRY_EVENT_STACK)
			r = scry_native_frames_event(&l->frames, (const void *)(event + 1));
		if (event->type == SCRY_EVENT_CALLED)
			r = on_called(l, (const void *)(event + 1));
		if (event->type == SCRY_EVENT_CALL)
			r = on_call(l, event);
		if (event->type == SCRY_EVENT_RETURN)
			r = on_return(l, event);
		if (event->type == SCRY_EVENT_SIGNAL && !l->is_whole)
			write_signal(l, event);
		if (event->type == SCRY_EVENT_TOTALS && !l->is_whole)
			write_exit(l, event);
		if (event->type == SCRY_EVENT_CALL || event->type == SCRY_EVENT_RETURN)
			l->last_ns = event->time_ns;
	}
	return got < 0 ? got : r;
}

static void done(struct lines *l)
{
	for (uint32_t i = 0; i < l->count; i++)
		free(l->calls[i].event);
	free(l->calls);
	scry_map_done(&l->open);
	scry_map_done(&l->depth);
	scry_map_done(&l->called);
	scry_map_done(&l->ruby);
	scry_native_frames_done(&l->frames);
	scry_call_functions_done(&l->functions);
	scry_grep_done(&l->grep);
	scry_call_where_free(l->where);
	scry_buf_done(&l->buf);
}

static void note_vfork(struct lines *l)
{
	static const char note[] =
		"what a child of vfork calls before it runs another program or ends "
		"is shown with its parent's number";

	if (l->has_vfork)
		l->doc->ops->note(l->doc, note, sizeof(note) - 1);
}

static void note_left_out(struct lines *l)
{
	if (!l->left_out)
		return;
	scry_buf_clear(&l->buf);
	scry_text_things(&l->buf, l->left_out, "calls");
	scry_buf_printf(&l->buf, " %s %s: ", scry_text_were(l->left_out),
			l->is_whole ? "left out" : "shown without their ends");
	scry_text_count(&l->buf, OPEN_MAX);
	scry_buf_printf(&l->buf, " others had not returned when they began");
	l->doc->ops->note(l->doc, scry_buf_str(&l->buf), l->buf.len);
}

int scry_view_calls(struct scry_reader *reader, const struct scry_view_opts *opts,
		    struct scry_doc *doc)
{
	struct lines l = {.opts = opts,
			  .reader = reader,
			  .doc = doc,
			  .is_whole = opts->calls.slow_ns || opts->calls.where || doc->is_data};
	struct scry_data_quality quality;
	int r = scry_grep_init(&l.grep, opts->grep);

	if (r == 0)
		r = scry_call_where_parse(opts->calls.where, &l.where);
	if (r < 0) {
		scry_grep_done(&l.grep);
		return r;
	}
	scry_map_init(&l.open, OPEN_MAX);
	scry_map_init(&l.depth, OPEN_MAX);
	scry_map_init(&l.called, OPEN_MAX);
	scry_map_init(&l.ruby, OPEN_MAX);
	scry_call_functions_init(&l.functions);
	scry_data_quality_init(&quality, reader);
	r = read_all(&l, &quality);
	if (r == 0)
		r = write_unfinished(&l);
	if (r == 0) {
		scry_data_quality_close(&quality);
		quality.shown = l.shown;
		quality.noun = "calls";
		quality.unsure = l.unsure;
		scry_data_quality_push(&quality, doc);
		note_left_out(&l);
		note_vfork(&l);
		scry_left_out_push(&(struct scry_left_out){.noun = "calls", .by_grep = l.hidden},
				   doc);
	}
	done(&l);
	return r;
}
