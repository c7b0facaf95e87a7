/*
 * `scry dump`: what every Ruby thread of a process does now, or did when its core was made, and
 * what it waits for. Reads only; with --pause all threads are stopped meanwhile, and then the
 * stacks are of one moment.
 */
#include "cmd/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/opt.h"
#include "cmd/cmd.h"
#include "cmd/front.h"
#include "sys/world.h"
#include "vm/ruby_gvl.h"

#define LOOK_AGAIN_NS 3000000 /* for what a thread has run between two looks */
#define LOOKS 5

struct dump_opts {
	struct scry_opt_list pids;
	const char *core, *exe;
	bool json, pause, help;
	uint64_t depth, max_pause_ns;
};

/* --- threads ---------------------------------------------------------------------------------- */

/* The frames of a thread: a C method has the place of the Ruby frame below it. */
static int take_frames(struct scry_dump *d, const struct scry_walk *w, struct scry_dump_thread *t)
{
	struct scry_named_frame *named = calloc(w->count + 1, sizeof(*named));
	const char *path = "";
	uint32_t line = 0;

	t->frames = calloc(w->count + 1, sizeof(*t->frames));
	if (!named || !t->frames) {
		free(named);
		return -ENOMEM;
	}
	scry_symbols_turn(&d->symbols);
	t->unnamed = scry_symbols_name(&d->symbols, d->ruby, w, named);
	for (size_t i = 0; i < w->count; i++)
		t->count += named[i].symbol && !named[i].is_hidden;
	for (size_t i = w->count, at = t->count; i > 0; i--) {
		const struct scry_symbol *s = scry_symbols_get(&d->symbols, named[i - 1].symbol);

		if (!s || named[i - 1].is_hidden)
			continue;
		if (!s->is_c) {
			path = scry_symbols_text(&d->symbols, s->path);
			line = named[i - 1].line;
		}
		t->frames[--at] = (struct scry_dump_frame){
			.path = path,
			.name = scry_symbols_text(&d->symbols, s->name),
			.label = scry_symbols_text(&d->symbols, s->label),
			.line = line,
			.is_c = s->is_c,
		};
	}
	if (t->count)
		t->state = scry_thread_state_named(t->state, t->frames[0].name);
	free(named);
	return 0;
}

static int take_stacks(struct scry_dump *d)
{
	struct scry_walk walk;
	int err = scry_walk_init(&walk);

	for (size_t i = 0; i < d->count && !err; i++) {
		struct scry_dump_thread *t = &d->threads[i];

		for (int try = 0; try < 8; try++) { /* rejected only when it never stands still */
			t->verdict = scry_walk_collect(&walk, d->ruby, &t->ruby, NULL);
			if (t->verdict == SCRY_WALK_VALID || t->verdict == SCRY_WALK_EMPTY)
				break;
		}
		t->is_cut = walk.is_cut;
		if (t->verdict <= SCRY_WALK_REPAIRED)
			err = take_frames(d, &walk, t);
	}
	scry_walk_done(&walk);
	return err;
}

struct looks { /* by thread */
	struct scry_task *tasks;
	struct scry_task_now *before, *now;
	struct scry_ruby_thread *threads;
	bool *waits;
};

/*
 * What the tasks do, and who of them is in the VM's queue. The two are of one moment when those
 * that wait on a futex, as who waits for the lock does, have not run since they were asked.
 */
static void look(struct scry_dump *d, struct looks *l)
{
	bool is_one_moment = false;

	for (int try = 0; try < LOOKS && !is_one_moment; try++) {
		for (size_t i = 0; i < d->count; i++)
			scry_task_read(&l->tasks[i], &l->now[i]);
		scry_ruby_gvl_waiters(d->ruby, l->threads, d->count, l->waits);
		is_one_moment = true;
		for (size_t i = 0; i < d->count; i++)
			if (l->now[i].nr == SYS_futex && !l->waits[i])
				is_one_moment &= scry_task_rests(&l->tasks[i], &l->now[i]);
	}
}

static void take_states(struct scry_dump *d)
{
	const struct timespec pause = {0, LOOK_AGAIN_NS};
	struct looks l = {
		calloc(d->count + 1, sizeof(*l.tasks)), calloc(d->count + 1, sizeof(*l.before)),
		calloc(d->count + 1, sizeof(*l.now)),	calloc(d->count + 1, sizeof(*l.threads)),
		calloc(d->count + 1, sizeof(*l.waits)),
	};
	size_t count = l.tasks && l.before && l.now && l.threads && l.waits ? d->count : 0;
	bool runs = false;

	for (size_t i = 0; i < count; i++) {
		l.threads[i] = d->threads[i].ruby;
		scry_task_open(&l.tasks[i], d->proc.pid, l.threads[i].tid);
		scry_task_read(&l.tasks[i], &l.before[i]);
		runs |= l.before[i].is_running;
	}
	if (runs)
		nanosleep(&pause, NULL);
	if (count)
		look(d, &l);
	for (size_t i = 0; i < count; i++) {
		struct scry_dump_thread *t = &d->threads[i];

		t->state = scry_thread_state(&l.before[i], &l.now[i], l.waits[i]);
		scry_dump_wait(d, &l.now[i], t);
		scry_task_name(d->proc.pid, t->ruby.tid, t->name, sizeof(t->name));
		scry_task_close(&l.tasks[i]);
	}
	free(l.tasks);
	free(l.before);
	free(l.now);
	free(l.threads);
	free(l.waits);
}

static bool is_alike(const struct scry_dump_thread *a, const struct scry_dump_thread *b)
{
	if (a->state != b->state || a->count != b->count || a->count == 0 ||
	    strcmp(a->wait, b->wait) != 0 || a->verdict != b->verdict || a->unnamed || b->unnamed)
		return false;
	return memcmp(a->frames, b->frames, a->count * sizeof(*a->frames)) == 0;
}

static void group(struct scry_dump *d)
{
	for (size_t i = 0; i < d->count; i++) {
		size_t at = 0;

		while (at < i &&
		       !(d->threads[at].same_as == at && is_alike(&d->threads[at], &d->threads[i])))
			at++;
		d->threads[i].same_as = at;
	}
}

static int list_threads(struct scry_dump *d)
{
	struct scry_ruby_thread *threads = NULL;
	ssize_t n = scry_ruby_threads(d->ruby, &threads), tasks;
	pid_t *tids = NULL;

	if (n < 0)
		return (int)n;
	d->threads = calloc((size_t)n + 1, sizeof(*d->threads));
	d->count = d->threads ? (size_t)n : 0;
	tasks = d->core ? (ssize_t)d->core->thread_count : scry_proc_tasks(d->proc.pid, &tids);
	d->others = tasks > 0 ? (size_t)tasks : 0;
	for (size_t i = 0; i < d->count; i++) {
		d->threads[i].ruby = threads[i];
		d->others -= threads[i].tid && d->others;
	}
	free(threads);
	free(tids);
	return d->threads ? 0 : -ENOMEM;
}

static int take(struct scry_dump *d, const struct dump_opts *opts)
{
	struct scry_world world = {0};
	int err;

	err = list_threads(d);
	if (err)
		return err;
	if (d->core)
		scry_dump_core_states(d);
	else
		take_states(d); /* a stopped thread does nothing */
	if (opts->pause)
		err = scry_world_stop(&world, d->proc.pid, opts->max_pause_ns);
	if (!err)
		err = take_stacks(d);
	if (opts->pause) {
		scry_world_release(&world);
		d->pause_ns = world.pause_ns;
	}
	group(d);
	return err;
}

static int print(struct scry_dump *d, const struct dump_opts *opts)
{
	int err = scry_symbols_init(&d->symbols);

	if (!err)
		err = take(d, opts);
	if (!err && opts->json)
		err = scry_dump_json(d, stdout);
	else if (!err)
		scry_dump_text(d, opts->depth, stdout);
	for (size_t i = 0; i < d->count; i++)
		free(d->threads[i].frames);
	free(d->threads);
	scry_symbols_done(&d->symbols);
	scry_ruby_free(d->ruby);
	if (err == -ENOMEM)
		scry_fail(err, "no memory for the dump");
	return err;
}

static int dump(pid_t pid, const struct dump_opts *opts)
{
	struct scry_dump d = {.proc.pidfd = -1, .wall_s = (int64_t)time(NULL)};
	int err = scry_proc_open(&d.proc, pid);

	if (!err)
		err = scry_ruby_open(pid, true, &d.ruby);
	if (!err)
		err = print(&d, opts);
	scry_proc_close(&d.proc);
	return err;
}

static int dump_core(const struct dump_opts *opts)
{
	struct scry_dump d = {.proc.pidfd = -1};
	int err = scry_dump_core_open(&d, opts->core, opts->exe);

	if (!err)
		err = print(&d, opts);
	scry_core_close(d.core);
	return err;
}

static int check_opts(const struct dump_opts *o, bool has_rest, const char *usage)
{
	if (has_rest || !o->pids.count == !o->core)
		return scry_fail(-EINVAL, "say which process, or which core: usage: %s", usage);
	if (o->core && o->pause)
		return scry_fail(-EINVAL, "--pause is for a process that lives, not for a core");
	if (o->exe && !o->core)
		return scry_fail(-EINVAL, "--exe says whose a --core is");
	for (size_t i = 0; i < o->pids.count; i++)
		if (!o->pids.values[i] || o->pids.values[i] > 4194304) /* PID_MAX_LIMIT */
			return scry_fail(-EINVAL, "%llu is not a process id",
					 (unsigned long long)o->pids.values[i]);
	return 0;
}

int scry_cmd_dump(int argc, char **argv)
{
	static const char usage[] = "scry dump -p PID | --core FILE [OPTIONS]";
	struct dump_opts o = {.depth = 20, .max_pause_ns = 50000000};
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_U64_LIST, &o.pids, "PID",
		 "dump this live process; may be given again", NULL},
		{0, "core", SCRY_OPT_STRING, &o.core, "FILE",
		 "dump the process whose core file this is", NULL},
		{0, "exe", SCRY_OPT_STRING, &o.exe, "FILE",
		 "the core's program, where it is not where it was", NULL},
		{0, "pause", SCRY_OPT_FLAG, &o.pause, NULL,
		 "stop all its threads meanwhile, some ms: stacks of one moment", NULL},
		{0, "max-pause", SCRY_OPT_DURATION, &o.max_pause_ns, "TIME",
		 "give up when its threads do not stop within this (default 50ms)", NULL},
		{0, "depth", SCRY_OPT_U64, &o.depth, "N",
		 "show N frames of each thread, the newest, 0 all (default 20; all in JSON)", NULL},
		{0, "json", SCRY_OPT_FLAG, &o.json, NULL, "print JSON instead of text", NULL},
		{'h', "help", SCRY_OPT_FLAG, &o.help, NULL, "this help", NULL},
	};
	size_t count = sizeof(rows) / sizeof(rows[0]);
	int rest, err = scry_opt_parse(rows, count, (struct scry_opt_args){argc, argv}, &rest);

	if (!err && o.help) {
		printf("usage: %s\n\nWhat every Ruby thread of a process does now.\n\n", usage);
		scry_opt_help(rows, count, stdout);
		return 0;
	}
	if (!err)
		err = check_opts(&o, rest < argc, usage);
	if (!err && o.core)
		err = dump_core(&o);
	for (size_t i = 0; i < o.pids.count && !err; i++)
		err = dump((pid_t)o.pids.values[i], &o);
	return scry_front_status(err);
}
