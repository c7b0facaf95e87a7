/*
 * `scry dump`: what every Ruby thread of a process does now, and what it waits for. Reads only;
 * with
 * --pause all threads are stopped meanwhile, and then the stacks are of one moment.
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
#include "sys/fd.h"
#include "sys/world.h"
#include "vm/ruby_gvl.h"

#define LOOK_AGAIN_NS 3000000 /* for what a thread has run between two looks */
#define LOOKS 5
#define FUTEX_COMMAND 127u
#define FUTEX_WAIT_BITSET 9u
#define FUTEX_CLOCK_REALTIME 256u

struct dump_opts {
	struct scry_opt_list pids;
	bool json, pause, help;
	uint64_t depth, max_pause_ns;
};

/* --- what a thread waits for ------------------------------------------------------------------ */

static void put_seconds(char *buf, size_t size, const char *what, int64_t ns)
{
	size_t at = strlen(buf);

	snprintf(buf + at, size - at, ", %s %.1f s", what, (double)ns / 1e9);
}

/* A time that is written as {seconds, parts} at `at`. */
static bool read_time(const struct scry_mem *mem, uint64_t at, int64_t unit_ns, int64_t *ret_ns)
{
	int64_t words[2];

	if (!at || scry_mem_read(mem, at, words, sizeof(words)) || words[0] < 0 ||
	    words[0] > 1ll << 32)
		return false;
	*ret_ns = words[0] * 1000000000 + words[1] * unit_ns;
	return true;
}

static int64_t clock_ns(clockid_t clock)
{
	struct timespec now = {0};

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void put_timeout(const struct scry_mem *mem, const struct scry_syscall *call,
			const struct scry_task_now *now, char *buf, size_t size)
{
	uint64_t value = call->timeout_arg < 0 ? 0 : now->args[call->timeout_arg];
	uint32_t op = (uint32_t)now->args[1];
	int64_t ns;

	switch (call->timeout) {
	case SCRY_TIMEOUT_NONE:
		return;
	case SCRY_TIMEOUT_MS:
		if ((int32_t)value > 0)
			put_seconds(buf, size, "for at most", (int64_t)(int32_t)value * 1000000);
		return;
	case SCRY_TIMEOUT_TIMESPEC:
	case SCRY_TIMEOUT_TIMEVAL:
		if (read_time(mem, value, call->timeout == SCRY_TIMEOUT_TIMEVAL ? 1000 : 1, &ns))
			put_seconds(buf, size, "for at most", ns);
		return;
	case SCRY_TIMEOUT_NANOSLEEP:
		if (!read_time(mem, value, 1, &ns))
			return;
		if (now->args[1] & 1)
			put_seconds(buf, size, "still", ns - clock_ns((clockid_t)now->args[0]));
		else
			put_seconds(buf, size, "for", ns);
		return;
	case SCRY_TIMEOUT_FUTEX:
		if (!read_time(mem, value, 1, &ns))
			return;
		if ((op & FUTEX_COMMAND) == FUTEX_WAIT_BITSET)
			put_seconds(buf, size, "still",
				    ns - clock_ns(op & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME
									    : CLOCK_MONOTONIC));
		else
			put_seconds(buf, size, "for at most", ns);
		return;
	}
}

/* poll(2) and its like name descriptors in memory: the first of them. */
static int polled_fd(const struct scry_mem *mem, const struct scry_task_now *now)
{
	uint32_t fd;

	if ((now->nr == SYS_poll || now->nr == SYS_ppoll) && now->args[1] == 1 &&
	    scry_mem_u32(mem, now->args[0], &fd) == 0)
		return (int)fd;
	return -1;
}

static void put_wait(const struct scry_dump *d, const struct scry_task_now *now,
		     struct scry_dump_thread *t)
{
	const struct scry_syscall *call = scry_syscall_find(now->nr);
	char name[256];
	int fd = -1;

	if (now->is_running || now->nr == -2 || t->state == SCRY_STATE_GVL)
		return;
	if (now->nr == -1) {
		snprintf(t->wait, sizeof(t->wait), "for a page of memory");
		return;
	}
	if (!call) {
		snprintf(t->wait, sizeof(t->wait), "system call %" PRId64, now->nr);
		return;
	}
	if (call->fd_arg >= 0)
		fd = (int)now->args[call->fd_arg];
	else
		fd = polled_fd(&d->ruby->mem, now);
	if (fd >= 0 && scry_fd_name(d->proc.pid, fd, name, sizeof(name)) == 0)
		snprintf(t->wait, sizeof(t->wait), "%s(%d), %s", call->name, fd, name);
	else
		snprintf(t->wait, sizeof(t->wait), "%s", call->name);
	put_timeout(&d->ruby->mem, call, now, t->wait, sizeof(t->wait));
}

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
		put_wait(d, &l.now[i], t);
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
	tasks = scry_proc_tasks(d->proc.pid, &tids);
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

	d->wall_s = (int64_t)time(NULL);
	err = list_threads(d);
	if (err)
		return err;
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

static int dump(pid_t pid, const struct dump_opts *opts)
{
	struct scry_dump d = {.proc.pidfd = -1};
	int err = scry_proc_open(&d.proc, pid);

	if (!err)
		err = scry_ruby_open(pid, true, &d.ruby);
	if (!err)
		err = scry_symbols_init(&d.symbols);
	if (!err)
		err = take(&d, opts);
	if (!err && opts->json)
		err = scry_dump_json(&d, stdout);
	else if (!err)
		scry_dump_text(&d, opts->depth, stdout);
	for (size_t i = 0; i < d.count; i++)
		free(d.threads[i].frames);
	free(d.threads);
	scry_symbols_done(&d.symbols);
	scry_ruby_free(d.ruby);
	scry_proc_close(&d.proc);
	if (err == -ENOMEM)
		scry_fail(err, "no memory for the dump");
	return err;
}

int scry_cmd_dump(int argc, char **argv)
{
	static const char usage[] = "scry dump -p PID [OPTIONS]";
	struct dump_opts o = {.depth = 20, .max_pause_ns = 50000000};
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_U64_LIST, &o.pids, "PID",
		 "dump this live process; may be given again", NULL},
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
	if (!err && (rest < argc || !o.pids.count))
		err = scry_fail(-EINVAL, "say which process: usage: %s", usage);
	for (size_t i = 0; i < o.pids.count && !err; i++) {
		if (!o.pids.values[i] || o.pids.values[i] > 4194304) /* PID_MAX_LIMIT */
			err = scry_fail(-EINVAL, "%llu is not a process id",
					(unsigned long long)o.pids.values[i]);
		else
			err = dump((pid_t)o.pids.values[i], &o);
	}
	return scry_front_status(err);
}
