/* `scry locks`: its options. What it does is instrument/locks.c, what it shows view/locks.c. */
#include <errno.h>

#include "agent/walk.h"
#include "base/err.h"
#include "cmd/cmd.h"
#include "cmd/run.h"
#include "cmd/watch_opts.h"
#include "instrument/instruments.h"
#include "view/filter.h"
#include "view/sort.h"

int scry_cmd_locks(int argc, char **argv)
{
	uint64_t depth = 16;
	struct scry_watch_opts opts = {.instrument_opts = &depth};
	struct scry_talk_opts talk = {0};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	const struct scry_opt rows[] = {
		{'w', "where", SCRY_OPT_U64, &depth, "N",
		 "record the stacks that wait: N frames of native code at most, 0 none (default "
		 "16)",
		 NULL},
		SCRY_VIEW_SORT_OPT_ROW(&report.rows, SCRY_SORT_LOCKS),
		{0, "top", SCRY_OPT_U64, &report.rows.top, "N",
		 "show N rows of each table, 0 all (default 30; all in JSON)", NULL},
		{0, "grep", SCRY_OPT_STRING, &report.rows.grep, "TEXT",
		 "only rows whose lock or frames contain TEXT, or match /REGEX/", NULL},
		SCRY_VIEW_FILTER_OPT_ROW(&report.rows, SCRY_FILTER_LOCKS),
		{0, "json", SCRY_OPT_FLAG, &report.json, NULL, "print JSON instead of text", NULL},
		SCRY_WATCH_ROWS(&opts, &talk, "x.json, x.txt"),
	};
	const struct scry_watch_cli cli = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]),
		.opts = &opts,
		.talk = &talk,
		.usage = "scry locks -p PID [-d TIME] | -- CMD...",
	};
	int r = scry_watch_parse(&cli, argc, argv);

	if (r == 0)
		r = scry_report_opts_check(&report, opts.output);
	if (r == 0)
		r = scry_view_sort_check("locks", report.rows.sort_key);
	if (r == 0)
		r = scry_view_filter_check("locks", &report.rows.filter);
	if (r == 0 && report.folded)
		r = scry_fail(-EINVAL, "'%s': waits are not folded", opts.output);
	if (r == 0 && depth > SCRY_WALK_DEPTH_MAX)
		r = scry_fail(-EINVAL, "-w %llu: at most %u frames are recorded",
			      (unsigned long long)depth, SCRY_WALK_DEPTH_MAX);
	if (r)
		return r == 1 ? 0 : SCRY_EXIT_USAGE;
	return scry_run(&opts, &scry_instrument_locks, &report);
}
