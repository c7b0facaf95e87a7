/* `scry malloc record`: options of the instrument (instrument/malloc). */
#include <errno.h>
#include <string.h>

#include "agent/walk.h"
#include "base/err.h"
#include "cmd/cmd.h"
#include "cmd/malloc.h"
#include "cmd/run.h"
#include "cmd/watch_opts.h"
#include "instrument/instruments.h"
#include "instrument/malloc/malloc.h"
#include "watch/preload.h"

#define DEPTH_DEFAULT 16

int scry_cmd_malloc_record(int argc, char **argv)
{
	struct scry_malloc_record_opts record = {0};
	struct scry_watch_opts opts = {.instrument_opts = &record};
	struct scry_talk_opts talk = {0};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	const struct scry_opt rows[] = {
		{'f', "follow", SCRY_OPT_FLAG, &opts.follow, NULL,
		 "record child processes too, each as a part of its own", NULL},
		{0, "json", SCRY_OPT_FLAG, &report.json, NULL, "print JSON instead of text", NULL},
		{0, "stack", SCRY_OPT_U64_MAYBE, &record.depth, "N",
		 "record the callers: stacks of native code, N frames at most (default 16)", NULL},
		{0, "preload", SCRY_OPT_FLAG, &opts.preload, NULL,
		 "do not enter a process: preload an object that records, where ptrace is denied",
		 NULL},
		{0, "prefix", SCRY_OPT_STRING, &record.prefix, "PREFIX",
		 "record PREFIXmalloc and the like, of an allocator that is built in (je_)", NULL},
		{0, "no-lines", SCRY_OPT_FLAG, &record.no_lines, NULL,
		 "of a Ruby: record native callers only, not its lines", NULL},
		SCRY_WATCH_ROWS(&opts, &talk, "x.json, x.txt; with --stack x.folded, x.html"),
	};
	const struct scry_watch_cli cli = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]),
		.opts = &opts,
		.talk = &talk,
		.usage = "scry malloc record [-o FILE] -- CMD... | -p PID [-d TIME]",
	};
	int r = scry_watch_parse(&cli, argc, argv);

	if (r == 1)
		return 0;
	if (record.depth == UINT64_MAX)
		record.depth = DEPTH_DEFAULT;
	if (r == 0)
		r = scry_report_opts_check(&report, opts.output);
	if (r == 0 && record.depth && opts.preload)
		r = scry_fail(-EINVAL,
			      "--stack needs unwind tables in the process, which --preload "
			      "does not bring; fix: without --preload");
	if (r == 0 && record.depth > SCRY_WALK_DEPTH_MAX)
		r = scry_fail(-EINVAL, "--stack=%llu: at most %u frames are recorded",
			      (unsigned long long)record.depth, SCRY_WALK_DEPTH_MAX);
	if (r == 0 && (report.folded || report.flame) && !record.depth)
		r = scry_fail(-EINVAL, "'%s': no stacks are recorded; fix: --stack", opts.output);
	if (r == 0 && opts.preload && !opts.command)
		r = scry_fail(-EINVAL,
			      "--preload starts a program: give -- CMD; a process that runs "
			      "can only be entered");
	if (r == 0 && record.prefix && (opts.preload || strlen(record.prefix) > 15))
		r = scry_fail(-EINVAL,
			      opts.preload ? "--prefix: such functions cannot be preloaded"
					   : "--prefix '%s' is longer than 15 letters",
			      record.prefix);
	if (r < 0)
		return SCRY_EXIT_USAGE;
	if (opts.preload && scry_preload_check(opts.command) < 0)
		return 125;
	return scry_run(&opts, &scry_instrument_malloc, &report);
}
