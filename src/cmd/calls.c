/*
 * `scry calls`: calls of library functions as they happen, in the manner of ltrace. This is its
 * command line; the instrument is instrument/calls, what is shown view/calls.c.
 */
#include "instrument/calls/calls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/opt.h"
#include "cmd/calls_named.h"
#include "cmd/cmd.h"
#include "cmd/run.h"
#include "cmd/watch_opts.h"
#include "instrument/calls/protos.h"
#include "sys/become.h"
#include "sys/proc.h"
#include "view/takes.h"
#include "view/sort.h"

#define ELEMENTS_MAX 256u

static const char usage[] =
	"scry calls [-x FILTER]... [-e FILTER]... [-l LIB]... -p PID [-d TIME] | -- CMD...";

static int check(struct scry_calls_cli *cli, const struct scry_watch_opts *opts,
		 struct scry_report_opts *report)
{
	int r = scry_report_opts_check(report, opts->output);

	if (r == 0 && opts->user && !opts->command)
		r = scry_fail(-EINVAL, "-u is for a command that is started; fix: without -p");
	if (r == 0 && opts->user)
		r = scry_user_check(opts->user);
	if (r < 0)
		return r;
	if (scry_view_refuse(scry_view_find(report->view), &report->rows) < 0 ||
	    scry_view_sort_check(report->view, report->rows.sort_key) < 0)
		return -EINVAL;
	if (report->folded)
		return scry_fail(-EINVAL, "'%s': calls have no stacks to fold", opts->output);
	if (cli->depth > SCRY_CALL_STACK_FRAMES)
		return scry_fail(-EINVAL, "-w %llu: at most %u frames are recorded",
				 (unsigned long long)cli->depth, SCRY_CALL_STACK_FRAMES);
	if (report->rows.calls.elements > ELEMENTS_MAX)
		return scry_fail(-EINVAL, "-A %llu: at most %u elements are recorded",
				 (unsigned long long)report->rows.calls.elements, ELEMENTS_MAX);
	if (cli->string_size > SCRY_CALL_TEXT_MAX)
		return scry_fail(-EINVAL, "-s %llu: strings are read up to %u bytes",
				 (unsigned long long)cli->string_size, SCRY_CALL_TEXT_MAX);
	return 0;
}

/* -p of a thread: its process is watched, and of its calls those of the thread are shown. */
static int take_threads(struct scry_calls_cli *cli, struct scry_opt_list *pids)
{
	size_t count = 0, of_threads = 0;

	for (size_t i = 0; i < pids->count; i++) {
		const pid_t tid = (pid_t)pids->values[i], pid = scry_proc_of_thread(tid);
		size_t k = 0;

		if (pid && pid != tid) {
			const pid_t inside = scry_proc_tid_inside(pid, tid); /* of its namespace */

			cli->tids.tids[cli->tids.count++] = (uint32_t)tid;
			if (inside != tid)
				cli->tids.tids[cli->tids.count++] = (uint32_t)inside;
			of_threads++;
		}
		pids->values[count] = pid ? (uint64_t)pid : pids->values[i];
		while (pids->values[k] != pids->values[count])
			k++;
		count += k == count;
	}
	if (of_threads && (of_threads != pids->count || count > 1))
		return scry_fail(-EINVAL, "-p names threads beside processes, or of several; fix: "
					  "threads of one process, or processes");
	pids->count = count;
	return 0;
}

/* --where is ltrace's name for -w, too: a bare number means that. */
static int take_depth(struct scry_calls_cli *cli, struct scry_report_opts *report)
{
	const char *where = report->rows.calls.where;

	if (!where || !*where || strspn(where, "0123456789") != strlen(where))
		return 0;
	report->rows.calls.where = NULL;
	return scry_opt_read_u64(where, &cli->depth);
}

/* What one engine alone does, and one process. */
static int check_engine(const struct scry_calls_cli *cli, const struct scry_watch_opts *opts)
{
	bool of_slots = false;

	if (!cli->by_breakpoints)
		return 0;
	for (int i = 0; i < cli->request_count; i++)
		of_slots |= cli->requests[i].of_slots;
	if (cli->ruby_stacks)
		return scry_fail(-EINVAL,
				 "-k: stacks are not read at breakpoints; fix: --engine=hooks");
	if (opts->follow)
		return scry_fail(-EINVAL,
				 "-f: breakpoints work in one process only; fix: --engine=hooks");
	if (cli->system_calls)
		return scry_fail(-EINVAL,
				 "-S: breakpoints do not see system calls; fix: --engine=hooks");
	if (of_slots)
		return scry_fail(-EINVAL,
				 "-e, or no filter: breakpoints do not know the caller; fix: -x, "
				 "or --engine=hooks");
	return 0;
}

static int run(struct scry_calls_cli *cli, struct scry_watch_opts *opts,
	       struct scry_report_opts *report)
{
	const struct scry_instrument *how =
		cli->by_breakpoints ? &scry_instrument_calls_stopped : &scry_instrument_calls;
	int status;

	opts->is_live = true;
	status = scry_run(opts, how, report);
	for (int i = 0; i < cli->request_count; i++)
		free(cli->requests[i].text);
	scry_protos_free(cli->protos);
	return status;
}

int scry_cmd_calls(int argc, char **argv)
{
	static struct scry_calls_cli cli = {.string_size = 256};
	struct scry_opt_strings files = {0};
	struct scry_calls_named named = {0};
	struct scry_watch_opts opts = {.instrument_opts = &cli};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	struct scry_talk_opts talk = {0};
	bool sums = false, hist = false, tree = false, demangles = false;
	int args = 0, engine = 0, r;
	const struct scry_opt rows[] = {
		{'x', "function", SCRY_OPT_STRINGS, &named.functions, "FILTER",
		 "trace these functions, SYMBOL[@LIB], whoever calls them; may be repeated", NULL},
		{'e', "plt", SCRY_OPT_STRINGS, &named.callers, "FILTER",
		 "trace calls of SYMBOL through the PLT or GOT of [@LIB], @MAIN for the program; "
		 "may be repeated",
		 NULL},
		{'l', "library", SCRY_OPT_STRINGS, &named.libraries, "LIB",
		 "trace all functions that this library exports; may be repeated", NULL},
		{0, "clients", SCRY_OPT_FLAG, &named.clients, NULL,
		 "trace what client libraries do for a program: queries, requests, TLS, zlib",
		 NULL},
		{'L', "no-default", SCRY_OPT_FLAG, &named.no_default, NULL,
		 "trace nothing that is not named", NULL},
		{'g', "only-named", SCRY_OPT_FLAG, &named.no_default, NULL, "the same", NULL},
		{'f', "follow", SCRY_OPT_FLAG, &opts.follow, NULL,
		 "trace child processes too, and what they run", NULL},
		{'S', "system-calls", SCRY_OPT_FLAG, &cli.system_calls, NULL,
		 "trace system calls too, by the kernel's tracepoints", NULL},
		{'F', "prototypes", SCRY_OPT_STRINGS, &files, "FILE",
		 "read prototypes, as in ltrace.conf, from a file, the .conf files of a directory, "
		 "or several with colons between; may be repeated",
		 NULL},
		{'c', "sums", SCRY_OPT_FLAG, &sums, NULL,
		 "no lines, a table: calls and times of each function", NULL},
		SCRY_VIEW_SORT_OPT_ROW(&report.rows, SCRY_SORT_CALLS),
		{0, "top", SCRY_OPT_U64, &report.rows.top, "N", "with -c: show N functions", NULL},
		SCRY_VIEW_CALLS_OPT_ROWS(&report.rows),
		{0, "hist", SCRY_OPT_FLAG, &hist, NULL,
		 "no lines, a histogram of each function's times", NULL},
		{0, "tree", SCRY_OPT_FLAG, &tree, NULL,
		 "no lines, a tree: which functions called which, and their times", NULL},
		{'w', "callers", SCRY_OPT_U64, &cli.depth, "N",
		 "show the callers: up to N frames of native code below each call", NULL},
		{'k', "ruby-stack", SCRY_OPT_FLAG, &cli.ruby_stacks, NULL,
		 "show the callers: the lines of Ruby below each call", NULL},
		{'s', "string-size", SCRY_OPT_U64, &cli.string_size, "N",
		 "show at most N bytes of a string (default 256)", NULL},
		{0, "args", SCRY_OPT_CHOICE, &args, NULL,
		 "show strings in full, without literals, or no arguments (default full; digest "
		 "with -o)",
		 SCRY_CALLS_ARGS_CHOICES},
		{0, "engine", SCRY_OPT_CHOICE, &engine, NULL,
		 "how calls are traced: by hooks (default), or by breakpoints and ptrace, which is "
		 "slow",
		 "hooks|breakpoint"},
		{'C', "demangle", SCRY_OPT_FLAG, &demangles, NULL,
		 "show C++ and Rust names as they are written: always so", NULL},
		{'u', "user", SCRY_OPT_STRING, &opts.user, "USER",
		 "with a command: run it as this user", NULL},
		{0, "json", SCRY_OPT_FLAG, &report.json, NULL, "print JSON instead of text", NULL},
		SCRY_WATCH_ROWS(&opts, &talk, "x.json, x.txt"),
	};
	const struct scry_watch_cli watch = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]),
		.opts = &opts,
		.talk = &talk,
		.usage = usage,
	};

	r = scry_watch_parse(&watch, argc, argv);
	if (r == 1)
		return 0;
	if (r == 0 && sums + hist + tree > 1)
		r = scry_fail(-EINVAL, "-c, --hist and --tree are three reports; fix: one");
	report.view = sums ? "calls-sums" : hist ? "calls-hist" : tree ? "calls-tree" : "calls";
	if (r == 0)
		r = take_depth(&cli, &report);
	if (r == 0)
		r = take_threads(&cli, &opts.pids);
	if (r == 0)
		r = check(&cli, &opts, &report);
	if (r == 0)
		r = scry_calls_protos_read(files.values, files.count, &cli.protos);
	if (r == 0)
		r = scry_calls_named_add(&cli, &named);
	if (r < 0)
		return SCRY_EXIT_USAGE;
	cli.elements = report.rows.calls.elements;
	report.rows.calls.no_stacks = report.rows.calls.pointer && !cli.depth;
	if (report.rows.calls.no_stacks)
		cli.depth = 1;
	cli.signals = !sums && !hist && !tree && !report.json &&
		      (opts.output || (!report.rows.calls.where && !report.rows.calls.slow_ns));
	cli.args = scry_calls_args_of(args, opts.output);
	if (args == 0 && !opts.output && (sums || hist || tree) && !report.rows.calls.where)
		cli.args = SCRY_CALLS_NONE; /* these reports show no arguments */
	cli.by_breakpoints = engine == 1;
	if (check_engine(&cli, &opts) < 0)
		return SCRY_EXIT_USAGE;
	/* the ways into seccomp are wanted: stacks may be read by system calls */
	cli.reads_unsure =
		(files.count && cli.args != SCRY_CALLS_NONE) || cli.depth || cli.ruby_stacks;
	return run(&cli, &opts, &report);
}
