/* `scry gvl`: its options. What it does is instrument/gvl/, what it shows view/gvl.c. */
#include <errno.h>

#include "base/err.h"
#include "cmd/cmd.h"
#include "cmd/output.h"
#include "cmd/run.h"
#include "cmd/watch_opts.h"
#include "instrument/gvl/gvl.h"
#include "instrument/instruments.h"
#include "view/filter.h"
#include "view/sort.h"

enum { BY_LINE, BY_METHOD, BY_GEM, BY_THREAD, BY_HOLDER };

static const int rows_by[] = {
	[BY_LINE] = SCRY_VIEW_BY_LINE,	   [BY_METHOD] = SCRY_VIEW_BY_METHOD,
	[BY_GEM] = SCRY_VIEW_BY_GEM,	   [BY_THREAD] = SCRY_VIEW_BY_THREAD,
	[BY_HOLDER] = SCRY_VIEW_BY_HOLDER,
};

int scry_cmd_gvl(int argc, char **argv)
{
	struct scry_watch_opts opts = {0};
	struct scry_talk_opts talk = {0};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	struct scry_gvl_opts gvl = {0};
	int by = BY_LINE;
	const struct scry_opt rows[] = {
		{'f', "follow", SCRY_OPT_FLAG, &opts.follow, NULL, "watch child processes too",
		 NULL},
		{0, "by", SCRY_OPT_CHOICE, &by, NULL,
		 "what made threads wait: a row for each line, method or gem that ran, or thread "
		 "that held the lock; thread: a row for each thread that waited",
		 "line|method|gem|thread|holder"},
		{0, "stacks", SCRY_OPT_FLAG, &gvl.stacks, NULL,
		 "take the stack of each wait that ends, instead of samples; costs some 1 us a "
		 "wait",
		 NULL},
		{0, "threshold", SCRY_OPT_DURATION, &gvl.threshold_ns, "TIME",
		 "with --stacks: of shorter waits take no stack; they are counted all the same",
		 NULL},
		SCRY_VIEW_SORT_OPT_ROW(&report.rows, SCRY_SORT_GVL),
		{0, "top", SCRY_OPT_U64, &report.rows.top, "N",
		 "show N rows of each table, 0 all (default 30; all in JSON)", NULL},
		{0, "grep", SCRY_OPT_STRING, &report.rows.grep, "TEXT",
		 "only rows whose threads or lines contain TEXT, or match /REGEX/", NULL},
		SCRY_VIEW_FILTER_OPT_ROW(&report.rows, SCRY_FILTER_GVL),
		{0, "json", SCRY_OPT_FLAG, &report.json, NULL, "print JSON instead of text", NULL},
		SCRY_WATCH_ROWS(&opts, &talk, "x.json, x.txt, x.folded"),
	};
	const struct scry_watch_cli cli = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]),
		.opts = &opts,
		.talk = &talk,
		.endings = "scry json txt folded", /* flamegraph.pl draws the last */
		.usage = "scry gvl -p PID [-d TIME] | -- CMD...",
	};
	int r = scry_watch_parse(&cli, argc, argv);

	report.rows.by = rows_by[by];
	report.by_given = true;
	if (r == 0 && by != BY_LINE && scry_output_is(opts.output, ".folded"))
		r = scry_fail(-EINVAL,
			      "'%s': folded stacks are by line; fix: without --by, or -o x.txt",
			      opts.output);
	if (r == 0 && gvl.threshold_ns && !gvl.stacks)
		r = scry_fail(-EINVAL, "--threshold is for the stacks of single waits, which are "
				       "taken only with --stacks; fix: --stacks, or without "
				       "--threshold");
	if (r == 0)
		r = scry_report_opts_check(&report, opts.output);
	if (r == 0)
		r = scry_view_sort_check("gvl", report.rows.sort_key);
	if (r == 0)
		r = scry_view_filter_check("gvl", &report.rows.filter);
	if (r)
		return r == 1 ? 0 : SCRY_EXIT_USAGE;
	opts.instrument_opts = &gvl;
	return scry_run(&opts, &scry_instrument_gvl, &report);
}
