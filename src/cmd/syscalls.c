/*
 * `scry syscalls`: which instructions of a program make system calls, how many, and which of them
 * were in vain. There is no keeper: nothing is ever written into the process; what counts or
 * samples is in the kernel, which takes it off when scry ends, however it does (sample/syscalls).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/opt.h"
#include "cmd/cmd.h"
#include "cmd/outside.h"
#include "cmd/syscalls_at_sites.h"
#include "cmd/watch_opts.h"
#include "sample/syscalls.h"
#include "sys/container.h"
#include "sys/fd.h"
#include "sys/proc.h"
#include "view/filter.h"
#include "view/sort.h"
#include "view/syscall_columns.h"

#define TURN_NS 20000000u
#define RATE_DEFAULT 1000u
#define RATE_MAX 20000u
#define WATCHER_NICE (-15)

enum { BY_DEFAULT = -1, BY_SITE, BY_SYSCALL, BY_LINE, BY_THREAD };
enum { COUNT_NONE = -1, COUNT_IN_KERNEL, COUNT_AT_SITES };

struct syscalls {
	struct scry_opt_list pids;
	struct scry_outside o;
	uint64_t duration_ns, rate;
	bool exact, latency, follow, sums, quiet, help;
	int verbose, by, counts;
	/* the run */
	struct scry_syscalls_watch *watch;
	uint64_t began_ns;
	const char *why; /* it ended */
	int first_err;	 /* of several -p */
	bool is_gone;	 /* all that was watched had ended when the watch was over */
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Why what it runs is not to be seen. */
static int fail_unseen(const struct scry_proc *proc)
{
	char path[64], exe[1];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)proc->pid);
	if (readlink(path, exe, sizeof(exe)) < 0 && (errno == EACCES || errno == EPERM))
		return scry_fail(-EACCES,
				 "cannot see what process %d (%s, uid %u) runs: not permitted; "
				 "you are uid %u and have no CAP_SYS_PTRACE over it; fix: sudo "
				 "scry ...%s",
				 (int)proc->pid, proc->comm, proc->uid, geteuid(),
				 scry_container_fix(SCRY_CONTAINER_PTRACE));
	return scry_proc_fail_gone(proc->pid);
}

/* Is it there, and a process? It is pinned while it is put into the map. */
static int add_pid(struct syscalls *s, pid_t pid)
{
	struct scry_proc proc;
	int err = scry_proc_open(&proc, pid);

	if (err)
		return err;
	if (!proc.exe[0]) /* of one whose first thread has ended it is another's */
		err = fail_unseen(&proc);
	if (!err)
		err = scry_syscalls_watch_add(s->watch, pid, false);
	if (!err && !scry_proc_is_alive(&proc))
		err = scry_proc_fail_gone(pid);
	scry_proc_close(&proc);
	return err;
}

/* Those that can be watched are; the first that cannot gives the status. */
static int add_pids(struct syscalls *s)
{
	size_t added = 0;

	if (s->pids.count == 1)
		return add_pid(s, (pid_t)s->pids.values[0]);
	for (size_t i = 0; i < s->pids.count; i++) {
		int err = add_pid(s, (pid_t)s->pids.values[i]);

		added += !err;
		if (!err)
			continue;
		scry_log_error("%s", scry_error());
		s->first_err = s->first_err ? s->first_err : err;
		scry_error_clear();
	}
	if (added)
		return 0;
	return s->first_err ? s->first_err : -EINVAL;
}

static int open_watch(struct syscalls *s)
{
	const struct scry_syscalls_watch_opts opts = {
		.writer = s->o.writer,
		.follows = s->follow,
		.exact = s->exact,
		.latency = s->latency,
		.rate = (uint32_t)s->rate,
	};
	int err;

	scry_fd_raise_limit();
	/* What runs for a moment is to be looked at before it has ended, on a busy machine too;
	 * where it may not be, more places have no names. */
	setpriority(PRIO_PROCESS, 0, WATCHER_NICE);
	err = scry_syscalls_watch_open(&opts, &s->watch);
	scry_outside_head(&s->o, "syscalls");
	if (!err && s->pids.count)
		err = add_pids(s);
	if (!err && s->o.child)
		err = scry_syscalls_watch_add(s->watch, s->o.child, true);
	if (!err)
		err = scry_syscalls_watch_begin(s->watch);
	return err;
}

static bool is_over(struct syscalls *s)
{
	const bool has_ended = scry_outside_has_ended(&s->o);

	if (!scry_syscalls_watch_lives(s->watch)) {
		s->is_gone = true;
		s->why = "target exited";
	} else if (scry_front_interrupts && (!s->o.child || has_ended)) {
		s->why = "interrupt";
	} else if (s->duration_ns && now_ns() - s->began_ns >= s->duration_ns) {
		s->why = "duration";
	}
	return s->why;
}

/* The sums come last: without them there is nothing. */
static int check_room(struct syscalls *s)
{
	struct scry_writer_stats stats;
	int err = scry_writer_flush(s->o.writer);

	scry_writer_stats(s->o.writer, &stats);
	if (!err && !stats.lost)
		return 0;
	return scry_fail(err	       ? err
			 : stats.error ? stats.error
				       : -ENOSPC,
			 "the recording has no room for what was counted: %llu of its events are "
			 "missing; fix: room on the disk, or a greater --max-size",
			 (unsigned long long)stats.lost);
}

static int watch(struct syscalls *s)
{
	int err = 0;

	s->began_ns = now_ns();
	while (!err && !is_over(s)) {
		const uint64_t left =
			s->duration_ns ? s->began_ns + s->duration_ns - now_ns() : TURN_NS;

		err = scry_syscalls_watch_turn(s->watch, left < TURN_NS ? left : TURN_NS);
	}
	if (!err)
		err = scry_syscalls_watch_end(s->watch, s->why);
	return err ? err : check_room(s);
}

static int run(struct syscalls *s)
{
	int err = scry_outside_files(&s->o);

	if (!err && s->o.command)
		err = scry_outside_start(&s->o, true);
	if (!err)
		err = open_watch(s);
	if (!err && !s->o.out.out)
		err = scry_output_keep(&s->o.out);
	if (!err && s->exact)
		scry_log_say("counting each call: until it ends, every process of this machine "
			     "pays some 100 to 200 ns more for each system call");
	if (!err && s->o.child)
		err = scry_outside_let_go(&s->o);
	if (!err)
		err = watch(s);
	scry_syscalls_watch_close(s->watch);
	while (!err && s->o.child && !scry_outside_has_ended(&s->o)) /* the watch was shorter */
		scry_outside_rest(TURN_NS);
	if (!err)
		err = scry_outside_show(&s->o);
	return scry_outside_close(&s->o, err);
}

static const int rows_by[] = {
	[BY_SITE] = SCRY_VIEW_BY_SITE,
	[BY_SYSCALL] = SCRY_VIEW_BY_SYSCALL,
	[BY_LINE] = SCRY_VIEW_BY_LINE,
	[BY_THREAD] = SCRY_VIEW_BY_THREAD,
};

/* A counter in the process knows how often it was passed, and nothing else. */
static int check_at_sites(const struct syscalls *s)
{
	const char *what = s->follow	       ? "-f"
			   : s->sums	       ? "-c"
			   : s->latency	       ? "--latency"
			   : s->by > BY_SITE   ? "--by"
			   : s->o.command      ? "-- CMD"
			   : s->pids.count > 1 ? "a second -p"
					       : NULL;

	return what ? scry_fail(-EINVAL,
				"--exact=site counts at places of one process that lives, without "
				"children, threads, times and results, so there is no %s; fix: "
				"--exact",
				what)
		    : 0;
}

static int run_at_sites(struct syscalls *s)
{
	struct scry_watch_opts opts = {
		.pids = s->pids,
		.duration_ns = s->duration_ns,
		.max_pause_ns = SCRY_WATCH_PAUSE_NS,
		.memory = SCRY_WATCH_MEMORY,
		.max_size = s->o.max_size,
		.output = s->o.output,
		.force = s->o.force,
		.command_line = scry_command_line(),
	};

	return scry_syscalls_at_sites(&opts, (uint32_t)s->rate, &s->o.report);
}

static int check(struct syscalls *s, int argc, char **argv, int rest_at)
{
	if (rest_at < argc)
		s->o.command = argv + rest_at;
	if (!s->pids.count == !s->o.command)
		return scry_fail(-EINVAL, s->pids.count
						  ? "either -p PID or a command, not both"
						  : "say what to watch: -p PID, or -- CMD; "
						    "usage: scry syscalls [OPTIONS] -p PID | -- "
						    "CMD...");
	for (size_t i = 0; i < s->pids.count; i++)
		if (!s->pids.values[i] || s->pids.values[i] > 4194304)
			return scry_fail(-EINVAL, "%llu is not a process id",
					 (unsigned long long)s->pids.values[i]);
	if (!s->rate || s->rate > RATE_MAX)
		return scry_fail(-EINVAL, "--rate is from 1 to %u ticks a second", RATE_MAX);
	if (s->counts == COUNT_AT_SITES && check_at_sites(s) < 0)
		return -EINVAL;
	if (s->sums && s->by != BY_DEFAULT && s->by != BY_SYSCALL)
		return scry_fail(-EINVAL,
				 "-c is --by syscall with --exact; fix: --exact, or no --by");
	if (s->by == BY_DEFAULT)
		s->by = s->sums ? BY_SYSCALL : BY_SITE;
	s->exact = s->counts != COUNT_NONE || s->latency || s->sums;
	s->o.report.rows.by = rows_by[s->by];
	s->o.report.by_given = true;
	if (scry_output_check_ending(s->o.output, "scry json txt") < 0)
		return -EINVAL;
	if (scry_report_opts_check(&s->o.report, s->o.output) < 0)
		return -EINVAL;
	if (scry_view_sort_check("syscalls", s->o.report.rows.sort_key) < 0 ||
	    scry_view_filter_check("syscalls", &s->o.report.rows.filter) < 0 ||
	    scry_syscall_check_filter(&s->o.report.rows) < 0)
		return -EINVAL;
	return scry_report_check_kept(&s->o.report, s->o.output);
}

int scry_cmd_syscalls(int argc, char **argv)
{
	static const char usage[] = "scry syscalls [OPTIONS] -p PID | -- CMD...";
	struct syscalls s = {.rate = RATE_DEFAULT,
			     .by = BY_DEFAULT,
			     .counts = COUNT_NONE,
			     .o = SCRY_OUTSIDE_INIT};
	const struct scry_opt rows[] = {
		{'p', "pid", SCRY_OPT_U64_LIST, &s.pids, "PID",
		 "watch this live process; may be given again", NULL},
		{'d', "duration", SCRY_OPT_DURATION, &s.duration_ns, "TIME",
		 "stop after 30s, 5m, ...; 0 (default): at ^C, or when it ends", NULL},
		{'f', "follow", SCRY_OPT_FLAG, &s.follow, NULL,
		 "its child processes too, and what they run", NULL},
		{0, "exact", SCRY_OPT_CHOICE_MAYBE, &s.counts, NULL,
		 "count each call, in the kernel, and prove which were in vain; every process of "
		 "the machine pays some 100 to 200 ns a call meanwhile. site: count in the "
		 "process, at the places that a sample has found; other processes do not pay",
		 "kernel|site"},
		{0, "latency", SCRY_OPT_FLAG, &s.latency, NULL, "--exact, and how long calls took",
		 NULL},
		{'c', "sums", SCRY_OPT_FLAG, &s.sums, NULL,
		 "like strace -c: --exact, a row for each system call", NULL},
		{0, "by", SCRY_OPT_CHOICE, &s.by, NULL,
		 "one row for each place that makes calls, system call, line of Ruby, or thread",
		 "site|syscall|line|thread"},
		{'r', "rate", SCRY_OPT_U64, &s.rate, "N",
		 "ticks a second on each processor (default 1000)", NULL},
		{'o', "output", SCRY_OPT_STRING, &s.o.output, "FILE",
		 "keep the recording (x.scry), or render at once (x.json, x.txt)", NULL},
		{0, "force", SCRY_OPT_FLAG, &s.o.force, NULL, "replace FILE if it exists", NULL},
		{0, "max-size", SCRY_OPT_SIZE, &s.o.max_size, "SIZE", "limit of the recording",
		 NULL},
		SCRY_VIEW_SORT_OPT_ROW(&s.o.report.rows, SCRY_SORT_SYSCALLS),
		{0, "top", SCRY_OPT_U64, &s.o.report.rows.top, "N",
		 "show N rows, 0 all (default 30; all with -c and in JSON)", NULL},
		{0, "grep", SCRY_OPT_STRING, &s.o.report.rows.grep, "TEXT",
		 "only rows that contain TEXT, or match /REGEX/", NULL},
		SCRY_VIEW_FILTER_OPT_ROW(&s.o.report.rows, SCRY_FILTER_SYSCALLS),
		{0, "json", SCRY_OPT_FLAG, &s.o.report.json, NULL, "print JSON instead of text",
		 NULL},
		{'q', "quiet", SCRY_OPT_FLAG, &s.quiet, NULL, "no talk on stderr", NULL},
		{'v', "verbose", SCRY_OPT_COUNT, &s.verbose, NULL, "more talk", NULL},
		{'h', "help", SCRY_OPT_FLAG, &s.help, NULL, "this help", NULL},
	};
	const size_t count = sizeof(rows) / sizeof(rows[0]);
	int at, err = scry_opt_parse(rows, count, (struct scry_opt_args){argc, argv}, &at);

	if (!err && s.help) {
		printf("usage: %s\n\nWhich instructions of a program make its system calls, and "
		       "which calls are in vain.\n\n",
		       usage);
		scry_opt_help(rows, count, stdout);
		return 0;
	}
	if (!err)
		err = check(&s, argc, argv, at);
	if (err)
		return SCRY_EXIT_USAGE;
	scry_log_setup(s.quiet ? -1 : s.verbose, SCRY_LOG_COLOR_AUTO);
	if (s.counts == COUNT_AT_SITES)
		return run_at_sites(&s);
	scry_front_catch_signals();
	err = run(&s);
	if (!err && !s.o.child)
		err = scry_front_is_gone(s.is_gone && s.duration_ns);
	err = err ? err : s.first_err;
	if (s.o.child)
		return scry_outside_status(&s.o, err);
	return err && s.o.command ? SCRY_EXIT_OWN : scry_front_status(err);
}
