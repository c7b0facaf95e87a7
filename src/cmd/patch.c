/*
 * `scry patch`: count, time and log calls of native functions, which are instruments; apply puts in
 * a patch that lasts; `scry patch list -p PID` shows what is changed in a process, `scry patch undo
 * -p PID` puts back what a watch has left, `undo NAME` takes out a patch.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "cmd/cmd.h"
#include "cmd/patch_file.h"
#include "cmd/patch_lasting.h"
#include "cmd/run.h"
#include "cmd/watch_opts.h"
#include "instrument/instruments.h"
#include "instrument/patch.h"

struct verb {
	const char *name;
	const struct scry_instrument *instrument;
	bool has_args; /* --args */
};

static int check(const struct verb *verb, const struct scry_patch_opts *patch,
		 const struct scry_watch_opts *opts, struct scry_report_opts *report)
{
	int r;

	if (!patch->spec_count)
		return scry_fail(-EINVAL,
				 "name a function to %s: scry patch %s SYMBOL[@LIB] -p PID",
				 verb->name, verb->name);
	if (patch->args > 6)
		return scry_fail(-EINVAL, "--args %llu: six arguments come in registers",
				 (unsigned long long)patch->args);
	r = scry_report_opts_check(report, opts->output);
	if (r == 0 && report->folded)
		r = scry_fail(-EINVAL, "'%s': %ss have no stacks to fold", opts->output,
			      verb->name);
	return r;
}

/* The whole command; argv[0] is the verb. Returns the exit status. */
static int run_verb(int argc, char **argv, const struct verb *verb)
{
	struct scry_patch_opts patch = {.args = 3};
	struct scry_watch_opts opts = {.instrument_opts = &patch};
	struct scry_talk_opts talk = {0};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	const struct scry_opt rows[] = {
		{0, "via", SCRY_OPT_CHOICE, &patch.via, "WAY",
		 "how to reach the function (default auto)", "auto|entry|site|got"},
		{0, "json", SCRY_OPT_FLAG, &report.json, NULL, "print JSON instead of text", NULL},
		SCRY_WATCH_ROWS(&opts, &talk, "x.json, x.txt"),
		{0, "args", SCRY_OPT_U64, &patch.args, "N",
		 "record the first N argument registers, 0 to 6 (default 3)", NULL}, /* last */
	};
	char usage[128];
	const struct scry_watch_cli cli = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]) - !verb->has_args,
		.opts = &opts,
		.talk = &talk,
		.usage = usage,
		.name_count = &patch.spec_count,
	};
	int r;

	snprintf(usage, sizeof(usage),
		 "scry patch %s SYMBOL[@LIB]... -p PID | -- CMD [-d TIME] [--via=entry|site|got]",
		 verb->name);
	patch.specs = argv + 1;
	r = scry_watch_parse(&cli, argc, argv);
	if (r == 1)
		return 0;
	if (r == 0)
		r = check(verb, &patch, &opts, &report);
	if (r < 0)
		return SCRY_EXIT_USAGE;
	return scry_run(&opts, verb->instrument, &report);
}

static int run_count(int argc, char **argv)
{
	return run_verb(argc, argv,
			&(struct verb){"count", &scry_instrument_count, .has_args = false});
}

static int run_time(int argc, char **argv)
{
	return run_verb(argc, argv,
			&(struct verb){"time", &scry_instrument_time, .has_args = false});
}

static int run_log(int argc, char **argv)
{
	return run_verb(argc, argv, &(struct verb){"log", &scry_instrument_log, .has_args = true});
}

/* With a name, a patch that lasts; without, what a killed scry has left. */
static int run_undo(int argc, char **argv)
{
	return argc > 1 && argv[1][0] != '-' ? scry_cmd_patch_undo(argc, argv)
					     : scry_cmd_undo(argc, argv);
}

const struct scry_command scry_commands_patch[] = {
	{"count", run_count, "count calls of functions",
	 "scry patch count malloc free -p 4711 -d 1s", NULL},
	{"time", run_time, "time calls of functions",
	 "scry patch time 'mysql_*@libmariadb' -p 4711 -d 10s", NULL},
	{"log", run_log, "log calls of functions with their arguments",
	 "scry patch log write --args 3 -p 4711 -d 1s", NULL},
	{"apply", scry_cmd_patch_apply, "change a running program, to stay",
	 "scry patch apply ucontext -p 4711", NULL},
	{"read", scry_cmd_patch_read, "show what a patch logs",
	 "scry patch read slow_query -p 4711", NULL},
	{"list", scry_cmd_patch_list, "show what is changed in a process",
	 "scry patch list -p 4711", NULL},
	{"undo", run_undo, "take a patch out, or what a killed scry has left",
	 "scry patch undo ucontext -p 4711", NULL},
	{0},
};
