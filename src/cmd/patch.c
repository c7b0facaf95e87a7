/*
 * `scry patch`: count, time and log calls of native functions, which are instruments; apply puts in
 * a patch that lasts; `scry patch list -p PID` shows what stands changed in a process, `scry patch
 * undo -p PID` puts back what a watch has left, `undo NAME` takes out a patch.
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

static const struct verb verbs[] = {
	{"count", &scry_instrument_count, false},
	{"time", &scry_instrument_time, false},
	{"log", &scry_instrument_log, true},
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

int scry_cmd_patch(int argc, char **argv)
{
	static const char usage[] =
		"usage: scry patch count SYMBOL[@LIB]... -p PID | -- CMD [-d TIME] "
		"[--via=entry|site|got]\n"
		"       scry patch time SYMBOL[@LIB]... -p PID | -- CMD [-d TIME] "
		"[--via=entry|site|got]\n"
		"       scry patch log SYMBOL[@LIB]... -p PID | -- CMD [-d TIME] [--args N]\n"
		"       scry patch apply ucontext -p PID | -- CMD\n"
		"       scry patch apply FILE.so -p PID\n"
		"       scry patch read NAME -p PID [-d TIME]\n"
		"       scry patch list -p PID\n"
		"       scry patch undo [NAME] -p PID\n";

	for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(argv[1], verbs[i].name))
			return run_verb(argc - 1, argv + 1, &verbs[i]);
	if (argc > 1 && !strcmp(argv[1], "list"))
		return scry_cmd_patch_list(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "apply"))
		return scry_cmd_patch_apply(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "read"))
		return scry_cmd_patch_read(argc - 1, argv + 1);
	if (argc > 2 && !strcmp(argv[1], "undo") && argv[2][0] != '-')
		return scry_cmd_patch_undo(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "undo"))
		return scry_cmd_undo(argc - 1, argv + 1);
	if (argc > 1 && (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))) {
		fputs(usage, stdout);
		return 0;
	}
	fputs(usage, stderr);
	return 2;
}
