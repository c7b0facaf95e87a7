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
#include "base/map.h"
#include "base/opt.h"
#include "cmd/cmd.h"
#include "sys/fd.h"
#include "sys/stop_the_world.h"
#include "vm/ruby_gvl.h"
#include "vm/ruby_locks.h"
#include "watch/signals.h"

#define LOOK_AGAIN_NS 3000000 /* for what a thread has run between two looks */
#define LOOKS 5
#define FRAMES_BYTES (64ull << 20) /* of all threads; JSON has three times as much */
#define DEPTH_DEFAULT UINT64_MAX

struct dump_opts {
	struct scry_opt_list pids;
	const char *core, *exe;
	bool json, pause, native, fibers, help;
	uint64_t depth, max_pause_ns;
};

/* --- threads ---------------------------------------------------------------------------------- */

static int take_stacks(struct scry_dump *d, const struct scry_stw *world)
{
	struct scry_walk walk;
	uint64_t bytes = 0;
	int err = scry_walk_init(&walk);

	for (size_t i = 0; i < d->count && !err; i++) {
		struct scry_dump_thread *t = &d->threads[i];

		if (bytes >= FRAMES_BYTES) {
			t->is_left_out = true;
			t->verdict = SCRY_WALK_EMPTY;
			d->left_out++;
			continue;
		}
		err = scry_dump_stack(d, world, &walk, t);
		bytes += (t->count > walk.count ? t->count : walk.count) * sizeof(*t->frames);
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
 * What the tasks do, and which of them are in the VM's queue. The two are of one moment when
 * those that wait on a futex, as a thread does that waits for the lock, have not run in between.
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
		if (t->is_other ||
		    !scry_ruby_thread_name(d->ruby, &t->ruby, t->name, sizeof(t->name)))
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
	    a->is_other != b->is_other || a->end != b->end || a->is_running != b->is_running ||
	    a->lock.object != b->lock.object || strcmp(a->wait, b->wait) != 0 ||
	    a->verdict != b->verdict || a->unnamed || b->unnamed)
		return false;
	return memcmp(a->frames, b->frames, a->count * sizeof(*a->frames)) == 0;
}

/* Of what is_alike compares most. */
static uint64_t hash_of(const struct scry_dump_thread *t)
{
	const unsigned char *bytes = (const unsigned char *)t->frames;
	uint64_t h = t->lock.object * 31 + (uint64_t)t->state;

	for (size_t i = 0; i < t->count * sizeof(*t->frames); i++)
		h = (h ^ bytes[i]) * 0x100000001b3ull; /* FNV-1a */
	for (const char *c = t->wait; *c; c++)
		h = (h ^ (unsigned char)*c) * 0x100000001b3ull;
	return h;
}

/* A thread is compared with the first that has its hash. */
static int group(struct scry_dump *d)
{
	struct scry_map firsts; /* index + 1 */
	int err = 0;

	scry_map_init(&firsts, d->count);
	for (size_t i = 0; i < d->count && !err; i++) {
		struct scry_dump_thread *t = &d->threads[i], *first = t;
		uint64_t *found = scry_map_ref(&firsts, hash_of(t));

		err = found ? 0 : -ENOMEM;
		if (found && *found && is_alike(&d->threads[*found - 1], t))
			first = &d->threads[*found - 1];
		else if (found && !*found)
			*found = i + 1;
		t->same_as = (size_t)(first - d->threads);
		first->alike++;
		if (first != t)
			d->threads[first->last_alike].next_alike = i;
		first->last_alike = i;
	}
	scry_map_done(&firsts);
	return err;
}

static ssize_t list_tasks(const struct scry_dump *d, pid_t **ret)
{
	if (!d->core)
		return scry_proc_tasks(d->proc.pid, ret);
	*ret = calloc(d->core->thread_count + 1, sizeof(**ret));
	for (size_t i = 0; *ret && i < d->core->thread_count; i++)
		(*ret)[i] = d->core->threads[i].tid;
	return *ret ? (ssize_t)d->core->thread_count : -ENOMEM;
}

static bool is_ruby(const struct scry_dump *d, size_t count, pid_t tid)
{
	for (size_t i = 0; i < count; i++)
		if (d->threads[i].ruby.tid == tid)
			return true;
	return false;
}

/* Ruby's threads, then the others, which have native frames only. */
static int list_threads(struct scry_dump *d)
{
	struct scry_ruby_thread *threads = NULL;
	ssize_t n = scry_ruby_threads(d->ruby, &threads), tasks;
	pid_t *tids = NULL;

	if (n < 0)
		return (int)n;
	tasks = list_tasks(d, &tids);
	tasks = tasks > 0 ? tasks : 0;
	d->threads = calloc((size_t)(n + tasks) + 1, sizeof(*d->threads));
	d->count = d->threads ? (size_t)n : 0;
	for (size_t i = 0; i < d->count; i++)
		d->threads[i].ruby = threads[i];
	for (ssize_t i = 0; i < tasks && d->threads; i++) {
		if (is_ruby(d, (size_t)n, tids[i]))
			continue;
		d->others++;
		if (d->native)
			d->threads[d->count++] = (struct scry_dump_thread){
				.ruby.tid = tids[i], .is_other = true, .verdict = SCRY_WALK_EMPTY};
	}
	free(threads);
	free(tids);
	return d->threads ? 0 : -ENOMEM;
}

static int take(struct scry_dump *d, const struct dump_opts *opts)
{
	struct scry_stw world = {0};
	int err;

	err = list_threads(d);
	if (err)
		return err;
	if (d->core)
		scry_dump_core_states(d);
	else
		take_states(d); /* a stopped thread does nothing */
	if (opts->pause)
		err = scry_stw_stop(&world, d->proc.pid, opts->max_pause_ns);
	if (!err)
		err = take_stacks(d, opts->pause ? &world : NULL);
	if (!err)
		err = scry_dump_lock_owners(d, opts->pause);
	if (opts->pause) {
		scry_stw_release(&world);
		d->pause_ns = world.pause_ns;
	}
	return err ? err : group(d);
}

static int print(struct scry_dump *d, const struct dump_opts *opts)
{
	int err = scry_symbols_init(&d->symbols), gone;

	if (!err && opts->native)
		err = scry_dump_native_open(d);
	if (!err)
		err = take(d, opts);
	if (!err)
		err = scry_dump_fibers_take(d, opts->fibers);
	gone = scry_mem_check_alive(&d->ruby->mem);
	if (gone)
		err = gone;
	if (!err)
		err = scry_dump_push(d, opts->depth, opts->json);
	for (size_t i = 0; i < d->count; i++)
		free(d->threads[i].frames);
	free(d->threads);
	scry_dump_fibers_done(d);
	scry_dump_native_close(d);
	scry_symbols_done(&d->symbols);
	scry_ruby_free(d->ruby);
	if (err == -ENOMEM)
		scry_no_memory("the dump");
	return err;
}

static int dump(pid_t pid, const struct dump_opts *opts)
{
	struct scry_dump d = {.proc.pidfd = -1, .wall_s = (int64_t)time(NULL)};
	int err = scry_proc_open(&d.proc, pid);

	scry_fd_raise_limit(); /* two a thread */
	if (!err)
		err = scry_ruby_open(pid, SCRY_RUBY_BOOTED, &d.ruby);
	if (!err)
		err = print(&d, opts);
	scry_proc_close(&d.proc);
	return err;
}

static int dump_core(const struct dump_opts *opts)
{
	struct scry_dump d = {.proc.pidfd = -1};
	int err = scry_dump_core_open(&d, opts->core, opts->exe);

	if (!err) {
		err = print(&d, opts);
		if (err && d.core->cut)
			err = scry_fail(err, "the core '%s' was cut off: %s", opts->core,
					scry_error());
	}
	scry_core_close(d.core);
	return err;
}

static int check_opts(const struct dump_opts *o, bool has_rest, const char *usage)
{
	if (has_rest || !o->pids.count == !o->core)
		return scry_fail(-EINVAL, "say which process, or which core; usage: %s", usage);
	if (o->core && o->pause)
		return scry_fail(-EINVAL, "--pause is for a process that lives, not for a core");
	if (o->exe && !o->core)
		return scry_fail(-EINVAL,
				 "--exe names the program of a core; fix: give --core FILE too");
	for (size_t i = 0; i < o->pids.count; i++)
		if (!o->pids.values[i] || o->pids.values[i] > 4194304) /* PID_MAX_LIMIT */
			return scry_fail(-EINVAL, "%llu is not a process id",
					 (unsigned long long)o->pids.values[i]);
	return 0;
}

int scry_cmd_dump(int argc, char **argv)
{
	static const char usage[] = "scry dump -p PID | --core FILE [OPTIONS]";
	struct dump_opts o = {.depth = DEPTH_DEFAULT, .max_pause_ns = 50000000};
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_U64_LIST, &o.pids, "PID",
		 "dump this live process; may be given again", NULL},
		{0, "core", SCRY_OPT_STRING, &o.core, "FILE", "dump the process of this core file",
		 NULL},
		{0, "exe", SCRY_OPT_STRING, &o.exe, "FILE",
		 "the core's program, if its file has moved", NULL},
		{0, "pause", SCRY_OPT_FLAG, &o.pause, NULL,
		 "stop all its threads for some ms: stacks of one moment", NULL},
		{0, "native", SCRY_OPT_FLAG, &o.native, NULL,
		 "native frames too, merged with Ruby's; threads that run no Ruby too", NULL},
		{0, "fibers", SCRY_OPT_FLAG, &o.fibers, NULL,
		 "look for suspended fibers in big processes too (more than 256 MiB)", NULL},
		{0, "max-pause", SCRY_OPT_DURATION, &o.max_pause_ns, "TIME",
		 "give up when its threads do not stop within this (default 50ms)", NULL},
		{0, "depth", SCRY_OPT_U64, &o.depth, "N",
		 "show N frames of each thread, the newest, 0 all (default 20, with --native 60; "
		 "all "
		 "in JSON)",
		 NULL},
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
	if (o.depth == DEPTH_DEFAULT)
		o.depth = o.native ? 60 : 20;
	if (!err)
		err = check_opts(&o, rest < argc, usage);
	if (!err && o.core)
		err = dump_core(&o);
	for (size_t i = 0; i < o.pids.count && !err; i++)
		err = dump((pid_t)o.pids.values[i], &o);
	return scry_front_status(err);
}
