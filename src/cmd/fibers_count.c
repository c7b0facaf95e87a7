/*
 * `scry fibers --count`: what greenlets copy when they are switched. Their module calls memcpy for
 * it, so it is a log of these calls alone: the process is entered.
 */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "cmd/cmd.h"
#include "cmd/fibers.h"
#include "cmd/run.h"
#include "cmd/watch_opts.h"
#include "instrument/instruments.h"
#include "instrument/patch.h"

int scry_fibers_count(int argc, char **argv)
{
	static char spec[] = "+memcpy@_greenlet.*";
	char *specs[] = {spec};
	struct scry_patch_opts patch = {
		.specs = specs, .spec_count = 1, .args = 3, .of_callers = true};
	struct scry_watch_opts opts = {.instrument_opts = &patch};
	struct scry_talk_opts talk = {0};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	bool count = false;
	const struct scry_opt rows[] = {
		{0, "count", SCRY_OPT_FLAG, &count, NULL,
		 "what greenlets copy when they are switched; enters the process", NULL},
		{0, "top", SCRY_OPT_U64, &report.rows.top, "N",
		 "show N rows, 0 all (default 30; all in JSON)", NULL},
		{0, "json", SCRY_OPT_FLAG, &report.json, NULL, "print JSON instead of text", NULL},
		SCRY_WATCH_ROWS(&opts, &talk, "x.json, x.txt"),
	};
	const struct scry_watch_cli cli = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]),
		.opts = &opts,
		.talk = &talk,
		.usage = "scry fibers --count -p PID [-d TIME]",
	};
	int r = scry_watch_parse(&cli, argc, argv);

	if (r == 1)
		return 0;
	report.view = "greenlets";
	if (r == 0 && opts.command)
		r = scry_fail(-EINVAL, "--count is of a process that lives; usage: %s", cli.usage);
	if (r == 0)
		r = scry_report_opts_check(&report, opts.output);
	if (r == 0 && report.folded)
		r = scry_fail(-EINVAL, "'%s': copies have no stacks to fold", opts.output);
	return r < 0 ? SCRY_EXIT_USAGE : scry_run(&opts, &scry_instrument_log, &report);
}
