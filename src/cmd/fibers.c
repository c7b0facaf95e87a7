/*
 * `scry fibers`: stacks that a program switches between by itself, as they are now, or were when
 * its core was made. Reads only; no thread is stopped.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/log.h"
#include "base/opt.h"
#include "cmd/cmd.h"
#include "cmd/fibers.h"
#include "cmd/output.h"
#include "cmd/report.h"
#include "name/fibers.h"
#include "sys/living.h"
#include "sys/proc.h"
#include "view/fibers.h"

#define NOTES_MAX 4
#define NOTE_BYTES 768
#define NAME_MOST 4096u		  /* of a name; the rest is left out */
#define FRAME_BYTES 128u	  /* of a frame beside its names, in memory and as JSON */
#define FRAMES_BYTES (128u << 20) /* of all frames that are named */
#define MOST_NS 120000000000u

struct fibers_opts {
	uint64_t pid, top, most_ns;
	const char *core, *exe, *output;
	bool json, all, force, verbose, help, count;
};

struct show { /* what the view is given */
	const struct fibers_opts *opts;
	struct scry_fibers *fibers;
	struct scry_fibers_report report;
	struct scry_fibers_group *groups;
	struct scry_intern names;
	uint64_t frame_bytes;
	char lack[NOTE_BYTES];
	char notes[NOTES_MAX][NOTE_BYTES];
	const char *note_list[NOTES_MAX];
};

static const char *const kind_words[] = {
	[SCRY_FIBER_SCRYFIBER] = "scryfiber", [SCRY_FIBER_RUBY] = "ruby",
	[SCRY_FIBER_UCONTEXT] = "ucontext",   [SCRY_FIBER_BOOST] = "boost",
	[SCRY_FIBER_OTHER] = "unknown",
};

static const enum scry_view_fiber_state states[] = {
	[SCRY_FIBER_SUSPENDED] = SCRY_VIEW_FIBER_SUSPENDED,
	[SCRY_FIBER_NEW] = SCRY_VIEW_FIBER_NEW,
	[SCRY_FIBER_RUNNING] = SCRY_VIEW_FIBER_RUNNING,
	[SCRY_FIBER_CHANGED] = SCRY_VIEW_FIBER_CHANGED,
	[SCRY_FIBER_ENDED] = SCRY_VIEW_FIBER_ENDED,
	[SCRY_FIBER_UNKNOWN] = SCRY_VIEW_FIBER_UNKNOWN,
};

static uint64_t now_ns(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- names ------------------------------------------------------------------------------------ */

/* Texts that live as long as what is shown; NULL where there is none, or no room. */
static const char *kept(struct show *s, const char *text, size_t *ret_length)
{
	char cut[NAME_MOST + 4];
	uint32_t id = 0;

	*ret_length = 0;
	if (text && strlen(text) > NAME_MOST) {
		snprintf(cut, sizeof(cut), "%.*s...", (int)NAME_MOST, text);
		text = cut;
	}
	if (text)
		scry_intern_put(&s->names, text, strlen(text), &id);
	return id ? scry_intern_get(&s->names, id, ret_length) : NULL;
}

static void name_native(struct show *s, uint64_t frame, struct scry_doc_frame *ret)
{
	const bool is_exact = frame & SCRY_FIBER_FRAME_EXACT;
	struct scry_code_name name;

	/* what covers the byte before a return address; of an exact pc that is itself */
	scry_modules_name(s->fibers->native, (frame & ~SCRY_FIBER_FRAME_EXACT) + is_exact, &name);
	ret->is_native = true;
	ret->file = kept(s, name.module, &ret->file_length);
	ret->method = kept(s, name.symbol, &ret->method_length);
	ret->offset = name.offset - is_exact;
	free(name.module);
}

/* What a method in C has of a file is its caller's. Returns whose the next one's would be. */
static const struct scry_doc_frame *name_ruby(struct show *s, uint64_t frame,
					      const struct scry_doc_frame *caller,
					      struct scry_doc_frame *ret)
{
	struct scry_symbols *symbols = &s->fibers->symbols;
	const struct scry_symbol *symbol =
		scry_symbols_get(symbols, (uint32_t)(frame >> 32) & 0x3fffffff);

	if (!symbol)
		return ret;
	ret->method = kept(s, scry_symbols_text(symbols, symbol->name), &ret->method_length);
	ret->file = kept(s, scry_symbols_text(symbols, symbol->path), &ret->file_length);
	ret->line = (uint32_t)frame;
	ret->is_c = symbol->is_c;
	if (!ret->is_c)
		return ret;
	if (caller) {
		ret->file = caller->file;
		ret->file_length = caller->file_length;
		ret->line = caller->line;
	}
	return caller;
}

/* The frames of a group, the outermost first. Where many groups have frames of their own there is
 * an end to it: the program decides how many. */
static int name_frames(struct show *s, const struct scry_fiber_group *from,
		       struct scry_fibers_group *to)
{
	uint64_t frames[SCRY_FIBER_FRAMES_MAX];
	const struct scry_doc_frame *caller = NULL;
	size_t count = scry_fibers_frames(s->fibers, from->stack, frames);
	struct scry_doc_frame *named;

	to->is_left_out = count && s->frame_bytes > FRAMES_BYTES;
	if (to->is_left_out)
		return 0;
	named = calloc(count + 1, sizeof(*named));
	to->frames = named;
	if (!named)
		return scry_no_memory("the stacks of fibers");
	for (size_t i = 0; i < count; i++) {
		struct scry_doc_frame *f = &named[i];

		if (frames[count - 1 - i] & SCRY_FIBER_FRAME_RUBY)
			caller = name_ruby(s, frames[count - 1 - i], caller, f);
		else
			name_native(s, frames[count - 1 - i], f);
		s->frame_bytes += FRAME_BYTES + f->file_length + f->method_length;
	}
	to->frame_count = count;
	return 0;
}

static int take_group(struct show *s, const struct scry_fiber_group *from,
		      struct scry_fibers_group *to)
{
	*to = (struct scry_fibers_group){
		.kind = kind_words[from->kind],
		.state = states[from->state],
		.word = scry_intern_get(&s->fibers->names, from->word, NULL),
		.count = from->count,
		.sized = from->sized,
		.size_min = from->size_min,
		.size_max = from->size_max,
		.used_count = from->used_count,
		.used_max = from->used_max,
		.used_sum = from->used_sum,
		.there_sum = from->there_sum,
		.unguarded = from->unguarded,
		.guard_unknown = from->guard_unknown,
		.is_cut = from->is_cut,
		.keeps_note = from->kind == SCRY_FIBER_SCRYFIBER || from->kind == SCRY_FIBER_RUBY,
	};
	return name_frames(s, from, to);
}

static struct scry_fibers_row take_row(const void *arg, size_t i)
{
	const struct scry_fibers *f = arg;
	const struct scry_found_fiber *from = &f->all[i];

	return (struct scry_fibers_row){
		.low = from->low,
		.top = from->top,
		.used_bytes = from->used_bytes,
		.left_bytes = from->left_bytes,
		.there_bytes = from->there_bytes,
		.guard_bytes = from->guard_bytes,
		.name = scry_intern_get(&f->names, from->name, NULL),
		.tid = from->tid,
		.group = from->group,
		.has_guard = from->has_guard,
		.knows_guard = from->knows_guard,
		.has_used = from->has_used,
	};
}

/* --- notes ------------------------------------------------------------------------------------ */

static void note(struct show *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(struct show *s, const char *fmt, ...)
{
	size_t at = s->report.note_count;
	va_list args;

	if (at == NOTES_MAX)
		return;
	va_start(args, fmt);
	vsnprintf(s->notes[at], NOTE_BYTES, fmt, args);
	va_end(args);
	s->note_list[at] = s->notes[at];
	s->report.note_count++;
}

/* The module of greenlet, which gevent uses, too. */
static bool has_greenlet(const struct scry_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++) {
		const char *slash = strrchr(maps->entries[i].path, '/');

		if (maps->entries[i].x && slash && strncmp(slash + 1, "_greenlet.", 10) == 0)
			return true;
	}
	return false;
}

/* A file of a core that is not what its process ran, its program before others; NULL. And how many
 * there are. */
static const struct scry_core_file *missing_file(const struct scry_core *core, size_t *ret_count)
{
	const struct scry_map_entry *m = scry_core_program(core);
	const struct scry_core_file *program = m ? scry_core_file(core, m) : NULL, *first = NULL;

	*ret_count = 0;
	for (size_t i = 0; i < core->file_count; i++) {
		const struct scry_core_file *file = &core->files[i];

		if (!file->path || file->elf)
			continue;
		++*ret_count;
		if (!first || file == program)
			first = file;
	}
	return first;
}

/* Without the code there are no frames, and with them go fibers. */
static void put_lack(struct show *s)
{
	const struct scry_core *core = s->fibers->space.core;
	size_t count = 0;
	const struct scry_core_file *file = core ? missing_file(core, &count) : NULL;
	char others[64] = "";

	if (!file)
		return;
	if (count > 1)
		snprintf(others, sizeof(others), " (and %zu more files are not as they were)",
			 count - 1);
	snprintf(s->lack, sizeof(s->lack),
		 "the core needs the file '%s', which %s%s: fibers may be missing, and where they "
		 "wait; fix: put back what it ran, or say --exe FILE if it is the program",
		 file->path,
		 file->check == SCRY_CORE_OTHER ? "was replaced since" : "cannot be read", others);
	s->report.lack = s->lack;
}

static void put_notes(struct show *s)
{
	const struct scry_fibers *f = s->fibers;

	if (f->ruby_error[0])
		note(s, "the Ruby in it could not be read, so its fibers are not known as such: %s",
		     f->ruby_error);
	if (has_greenlet(&f->maps))
		note(s, "it has greenlets: one that waits has no stack, its part was copied into "
			"the heap, and is not shown here");
	if (f->served.count)
		note(s,
		     "the server of the file '%s' that it has mapped (%zu mappings) does not "
		     "answer: of these only what is in memory is known, so fibers and names may "
		     "be missing",
		     f->served.first, f->served.count);
	if (f->space.core && f->space.core->cut)
		note(s, "the core was cut off: %llu bytes are missing",
		     (unsigned long long)f->space.core->cut);
}

/* --- showing ---------------------------------------------------------------------------------- */

static int by_count(const void *left, const void *right, void *arg)
{
	const struct scry_fiber_group *groups = arg;
	const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	if (groups[a].count != groups[b].count)
		return groups[a].count > groups[b].count ? -1 : 1;
	return (a > b) - (a < b);
}

/* The largest ones first, in case that not all can have their frames. */
static int take_groups(struct show *s)
{
	const struct scry_fibers *f = s->fibers;
	const uint32_t count = f->group_keys.count;
	uint32_t *order = calloc(count + 1u, sizeof(*order));
	int err = 0;

	s->groups = calloc(count + 1u, sizeof(*s->groups));
	if (!s->groups || !order)
		err = scry_no_memory("%u groups of fibers", count);
	for (uint32_t i = 0; i < count && !err; i++)
		order[i] = i;
	if (!err && count)
		qsort_r(order, count, sizeof(*order), by_count, f->groups);
	s->report.group_count = err ? 0 : count;
	for (uint32_t i = 0; i < count && !err; i++)
		err = take_group(s, &f->groups[order[i]], &s->groups[order[i]]);
	free(order);
	return err;
}

static int take(struct show *s, uint64_t took_ns)
{
	const struct scry_fibers *f = s->fibers;
	const struct scry_fibers_sums *sums = &f->sums;
	struct scry_fibers_report *r = &s->report;
	int err = take_groups(s);

	if (err)
		return err;
	for (int kind = 0; kind < SCRY_FIBER_KINDS; kind++)
		for (int state = 0; state < SCRY_FIBER_STATES; state++)
			r->found[states[state]] += sums->found[kind][state];
	r->groups = s->groups;
	r->row = take_row;
	r->arg = f;
	r->count = f->count;
	r->total = f->total;
	r->mapped_bytes = f->mapped_bytes;
	r->used_bytes = f->used_bytes;
	r->there_bytes = f->there_bytes;
	r->has_nearest = f->nearest.has_one;
	if (r->has_nearest)
		r->nearest = take_row(f, f->nearest.fiber);
	if (f->nearest_vm.has_one && f->nearest_vm.fiber < f->count) {
		r->nearest_vm = take_row(f, f->nearest_vm.fiber);
		r->vm_left_bytes = f->nearest_vm.left_bytes;
		r->vm_size_bytes = f->nearest_vm.size_bytes;
	}
	r->threads = sums->threads;
	r->threads_running = sums->threads_running;
	r->thread_stacks = sums->thread_stacks;
	r->on_fibers = sums->on_fibers;
	r->unmanned = sums->unmanned;
	r->spare_stacks = sums->spare_stacks;
	r->spare_bytes = sums->spare_bytes;
	r->stale = sums->stale;
	r->several = sums->several;
	r->unled = sums->unled;
	r->unled_midway = sums->unled_midway;
	r->freed = sums->freed;
	r->unchecked = sums->unchecked;
	r->unlisted = sums->unlisted;
	r->lost = sums->lost + f->marks.lost;
	r->unjudged = f->budget.unjudged;
	r->unsearched_bytes = f->budget.unsearched_bytes;
	r->is_late = f->budget.is_over || f->budget.is_look_over;
	r->bad = sums->bad;
	r->unreadable = sums->unreadable;
	r->read_bytes = f->marks.read_bytes;
	r->swapped_bytes = f->marks.swapped_bytes;
	r->unread_bytes = f->marks.unread_bytes;
	r->took_ns = took_ns;
	put_lack(s);
	put_notes(s);
	r->notes = s->note_list;
	return 0;
}

static int print(struct show *s)
{
	struct scry_report_opts form = SCRY_REPORT_OPTS_DEFAULT;
	struct scry_doc doc = {.view = "fibers", .schema = 3, .talk = stderr};
	struct scry_output o;
	int err = scry_output_stream(&o, s->opts->output, s->opts->force);

	if (err)
		return err;
	doc.out = o.out;
	form.json = s->opts->json || scry_output_is(s->opts->output, ".json");
	err = scry_report_open(&doc, &form);
	if (!err) {
		err = scry_fibers_push(&s->report, &doc);
		if (err)
			scry_doc_abandon(&doc);
		else
			err = scry_doc_end(&doc);
	}
	return scry_output_close(&o, err);
}

static int show(const struct scry_space *space, const struct fibers_opts *opts, const char *comm)
{
	struct show s = {.opts = opts};
	uint64_t began = now_ns();
	int err = scry_fibers_open(space, opts->most_ns, &s.fibers), gone;

	if (err)
		return err;
	scry_intern_init(&s.names, 1u << 20, 256u << 20);
	s.report.pid = space->pid;
	s.report.comm = comm;
	s.report.core = opts->core;
	s.report.is_all = opts->all;
	s.report.top = opts->top;
	err = take(&s, now_ns() - began);
	gone = scry_mem_check_alive(&s.fibers->mem);
	if (gone)
		err = gone;
	if (!err)
		err = print(&s);
	for (size_t i = 0; i < s.report.group_count; i++)
		free((void *)s.groups[i].frames);
	free(s.groups);
	scry_intern_done(&s.names);
	scry_fibers_close(s.fibers);
	return err == -EPIPE ? 0 : err;
}

static int show_process(const struct fibers_opts *opts)
{
	struct scry_proc proc = {.pidfd = -1};
	struct scry_space space = {.pid = (pid_t)opts->pid};
	int err = scry_proc_open(&proc, space.pid);

	/* its first thread may have ended before the others */
	if (!err && ((proc.state == 'Z' && scry_living_thread(space.pid) == space.pid) ||
		     scry_proc_is_kernel(space.pid)))
		err = scry_proc_fail_gone(space.pid);
	if (!err)
		err = show(&space, opts, proc.comm);
	scry_proc_close(&proc);
	return err;
}

static int show_core(const struct fibers_opts *opts)
{
	struct scry_core *core = NULL;
	int err = scry_core_open(opts->core, opts->exe, &core);

	if (!err)
		err = show(&(struct scry_space){.pid = core->pid, .core = core}, opts, core->comm);
	scry_core_close(core);
	return err;
}

static int check_opts(const struct fibers_opts *o, bool has_rest, const char *usage)
{
	if (has_rest || !o->pid == !o->core)
		return scry_fail(-EINVAL, "say which process, or which core; usage: %s", usage);
	if (o->exe && !o->core)
		return scry_fail(-EINVAL,
				 "--exe names the program of a core; fix: give --core FILE too");
	return scry_output_check_ending(o->output, "json txt");
}

int scry_cmd_fibers(int argc, char **argv)
{
	static const char usage[] = "scry fibers -p PID | --core FILE [OPTIONS]";
	struct fibers_opts o = {.top = SCRY_VIEW_TOP_DEFAULT, .most_ns = MOST_NS};
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_PID, &o.pid, "PID", "look at this live process", NULL},
		{0, "core", SCRY_OPT_STRING, &o.core, "FILE",
		 "look at the process of this core file", NULL},
		{0, "exe", SCRY_OPT_STRING, &o.exe, "FILE",
		 "the core's program, if its file has moved", NULL},
		{0, "count", SCRY_OPT_FLAG, &o.count, NULL,
		 "instead, watch what greenlets copy when they are switched, for -d TIME or until "
		 "^C; enters the process; see scry fibers --count --help",
		 NULL},
		{0, "all", SCRY_OPT_FLAG, &o.all, NULL, "list each fiber, too", NULL},
		{0, "top", SCRY_OPT_U64, &o.top, "N",
		 "show N groups of fibers, 0 all (default 30; all in JSON)", NULL},
		{0, "max-time", SCRY_OPT_DURATION, &o.most_ns, "TIME",
		 "look, and judge what is found, for so much processor time, and say what is left "
		 "(default 2m; 0: all)",
		 NULL},
		{0, "json", SCRY_OPT_FLAG, &o.json, NULL, "print JSON instead of text", NULL},
		{'o', "output", SCRY_OPT_STRING, &o.output, "FILE",
		 "write the report there: x.json, x.txt", NULL},
		{0, "force", SCRY_OPT_FLAG, &o.force, NULL, "overwrite the output file", NULL},
		{'v', "verbose", SCRY_OPT_FLAG, &o.verbose, NULL,
		 "all totals, one a line, those that are 0 too", NULL},
		{'h', "help", SCRY_OPT_FLAG, &o.help, NULL, "this help", NULL},
	};
	size_t count = sizeof(rows) / sizeof(rows[0]);
	int rest, err;

	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--count") == 0)
			return scry_fibers_count(argc, argv);
	err = scry_opt_parse(rows, count, (struct scry_opt_args){argc, argv}, &rest);

	if (!err && o.help) {
		printf("usage: %s\n\nFibers of a process: which stacks it has besides its "
		       "threads', how deep\nthey are, and where each waits.\n\n",
		       usage);
		scry_opt_help(rows, count, stdout);
		return 0;
	}
	if (!err)
		err = check_opts(&o, rest < argc, usage);
	scry_log_setup(o.verbose, SCRY_LOG_COLOR_AUTO);
	if (!err)
		err = o.core ? show_core(&o) : show_process(&o);
	return scry_front_status(err);
}
