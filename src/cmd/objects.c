/* `scry objects`: its options. What it does is objects.c. */
#include <errno.h>

#include "base/err.h"
#include "cmd/cmd.h"
#include "cmd/run.h"
#include "view/filter.h"
#include "cmd/watch_opts.h"
#include "instrument/instruments.h"
#include "instrument/objects/objects.h"
#include "instrument/objects/source.h"

int scry_cmd_objects(int argc, char **argv)
{
	struct scry_watch_opts opts = {0};
	struct scry_talk_opts talk = {0};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	struct scry_objects_opts objects = {0};
	const char *sample = NULL, *until = NULL;
	const struct scry_opt rows[] = {
		SCRY_WATCH_ROWS(&opts, &talk, "x.json, x.txt, x.folded"),
		{'f', "follow", SCRY_OPT_FLAG, &opts.follow, NULL, "watch child processes too",
		 NULL},
		{0, "sample", SCRY_OPT_STRING, &sample, "N|SIZE",
		 "take one object in N, or one in SIZE bytes of heap, and scale up", NULL},
		{0, "source", SCRY_OPT_CHOICE, &objects.source, "SOURCE",
		 "the VM's events, hooks on its functions, or hooks where they are proven (default "
		 "event)",
		 SCRY_SOURCES},
		{0, "every", SCRY_OPT_DURATION, &opts.every_ns, "TIME",
		 "record the counters each TIME, for scry diff", NULL},
		{0, "until", SCRY_OPT_STRING, &until, "EXPR",
		 "stop when 'rss>2G', 'live>1000000', 'allocated>5000000' or 'gcs>50' holds", NULL},
		{0, "force-gc", SCRY_OPT_FLAG, &objects.force_gc, NULL,
		 "make the program collect its garbage before the end (it is stopped meanwhile)",
		 NULL},
		{0, "gc-slices", SCRY_OPT_FLAG, &objects.gc_slices, NULL,
		 "with --every: the same before each slice, so that garbage does not hide a leak",
		 NULL},
		{0, "raw", SCRY_OPT_FLAG, &opts.raw, NULL,
		 "keep every event in the recording (with -o x.scry)", NULL},
		SCRY_REPORT_OPT_ROWS(&report),
	};
	const struct scry_watch_cli cli = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]),
		.opts = &opts,
		.talk = &talk,
		.usage = "scry objects -p PID... [-d TIME] | scry objects [OPTIONS] -- CMD...",
	};
	int r = scry_watch_parse(&cli, argc, argv);

	if (r == 0 && sample)
		r = scry_objects_read_sample(sample, &objects.sample);
	if (r == 0)
		r = scry_until_parse(until, &opts.until);
	if (r == 0 && objects.gc_slices && !opts.every_ns)
		r = scry_fail(-EINVAL, "--gc-slices collects before each slice, and there are "
				       "none; fix: --every TIME");
	if (r)
		return r == 1 ? 0 : SCRY_EXIT_USAGE;
	if (scry_report_opts_check(&report, opts.output) ||
	    scry_view_filter_check("objects", &report.rows.filter))
		return SCRY_EXIT_USAGE;
	objects.force_gc |= objects.gc_slices;
	objects.stacks = report.rows.stacks;
	opts.instrument_opts = &objects;
	return scry_run(&opts, &scry_instrument_objects, &report);
}
