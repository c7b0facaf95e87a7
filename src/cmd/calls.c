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
#include "view/takes.h"

static const char usage[] =
	"scry calls [-x FILTER]... [-e FILTER]... [-l LIB]... -p PID [-d TIME] | -- CMD...";

static int check(struct scry_calls_cli *cli, const struct scry_watch_opts *opts,
		 struct scry_report_opts *report, bool sums)
{
	int r = scry_report_opts_check(report, opts->output);

	if (r < 0)
		return r;
	if (scry_view_refuse(scry_view_find(sums ? "calls-sums" : "calls"), &report->rows) < 0)
		return -EINVAL;
	if (report->folded)
		return scry_fail(-EINVAL, "'%s': calls have no stacks to fold", opts->output);
	if (cli->depth > SCRY_CALL_STACK_FRAMES)
		return scry_fail(-EINVAL, "-w %llu: at most %u frames are recorded",
				 (unsigned long long)cli->depth, SCRY_CALL_STACK_FRAMES);
	if (cli->string_size > SCRY_CALL_TEXT_MAX)
		return scry_fail(-EINVAL, "-s %llu: strings are read up to %u bytes",
				 (unsigned long long)cli->string_size, SCRY_CALL_TEXT_MAX);
	return 0;
}

/* What one engine alone does, and one process. */
static int check_engine(const struct scry_calls_cli *cli, const struct scry_watch_opts *opts,
			const struct scry_calls_named *named)
{
	if (!cli->by_breakpoints)
		return 0;
	if (cli->ruby_stacks)
		return scry_fail(-EINVAL,
				 "-k: stacks are not read at breakpoints; fix: --engine=hooks");
	if (opts->follow)
		return scry_fail(-EINVAL,
				 "-f: breakpoints work in one process only; fix: --engine=hooks");
	if (cli->system_calls)
		return scry_fail(-EINVAL,
				 "-S: breakpoints do not see system calls; fix: --engine=hooks");
	if (named->callers.count)
		return scry_fail(
			-EINVAL,
			"-e: breakpoints do not know the caller; fix: -x, or --engine=hooks");
	return 0;
}

static int run(struct scry_calls_cli *cli, struct scry_watch_opts *opts,
	       struct scry_report_opts *report, bool sums)
{
	const struct scry_instrument *how =
		cli->by_breakpoints ? &scry_instrument_calls_stopped : &scry_instrument_calls;
	int status;

	opts->is_live = true;
	report->view = sums ? "calls-sums" : "calls";
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
	bool sums = false;
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
		{'L', "no-default", SCRY_OPT_FLAG, &named.no_default, NULL,
		 "trace nothing that is not named", NULL},
		{'g', "only-named", SCRY_OPT_FLAG, &named.no_default, NULL, "the same", NULL},
		{'f', "follow", SCRY_OPT_FLAG, &opts.follow, NULL,
		 "trace child processes too, and what they run", NULL},
		{'S', "system-calls", SCRY_OPT_FLAG, &cli.system_calls, NULL,
		 "trace system calls too, by the kernel's tracepoints", NULL},
		{'F', "prototypes", SCRY_OPT_STRINGS, &files, "FILE",
		 "read prototypes, as in ltrace.conf; may be repeated", NULL},
		{'c', "sums", SCRY_OPT_FLAG, &sums, NULL,
		 "no lines, a table: calls and times of each function", NULL},
		{0, "top", SCRY_OPT_U64, &report.rows.top, "N", "with -c: show N functions", NULL},
		SCRY_VIEW_CALLS_OPT_ROWS(&report.rows),
		{'w', "where", SCRY_OPT_U64, &cli.depth, "N",
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
	if (r == 0)
		r = check(&cli, &opts, &report, sums);
	if (r == 0)
		r = scry_calls_protos_read(files.values, files.count, &cli.protos);
	if (r == 0)
		r = scry_calls_named_add(&cli, &named);
	if (r < 0)
		return SCRY_EXIT_USAGE;
	cli.args = scry_calls_args_of(args, opts.output);
	cli.by_breakpoints = engine == 1;
	if (check_engine(&cli, &opts, &named) < 0)
		return SCRY_EXIT_USAGE;
	/* the ways into seccomp are wanted: stacks may be read by system calls */
	cli.reads_unsure =
		(files.count && cli.args != SCRY_CALLS_NONE) || cli.depth || cli.ruby_stacks;
	return run(&cli, &opts, &report, sums);
}
