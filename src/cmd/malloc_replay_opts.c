/* `scry malloc replay` and `scry malloc compare`: their options. What they do is malloc_replay.c
 * and malloc_servers.c. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/malloc.h"
#include "cmd/malloc_compare.h"
#include "cmd/malloc_replay.h"
#include "cmd/output.h"
#include "cmd/report.h"
#include "replan/allocators.h"
#include "replan/rss.h"
#include "replan/work.h"
#include "view/malloc_replay.h"

static const char usage_replay[] = "scry malloc replay FILE [OPTIONS] [--check -- CMD...]";
static const char usage_compare[] =
	"scry malloc compare [OPTIONS] -- CMD... | scry malloc compare --start CMD --ready CMD "
	"--load CMD [OPTIONS]";

/* Nothing is recorded and nothing replayed with --start: it heeds these only. */
static const char *const server_takes[] = {
	"with",	 "runs",  "json",	  "output", "force", "verbose", "help",
	"start", "ready", "ready-within", "load",   "work",  "stop",
};

static bool server_has(const char *name)
{
	for (size_t i = 0; i < sizeof(server_takes) / sizeof(server_takes[0]); i++)
		if (!strcmp(server_takes[i], name))
			return true;
	return false;
}

/* Choices are -1 until one is given. */
static bool is_given(const struct scry_opt *row)
{
	switch (row->kind) {
	case SCRY_OPT_FLAG:
		return *(const bool *)row->target;
	case SCRY_OPT_CHOICE:
		return *(const int *)row->target >= 0;
	case SCRY_OPT_STRING:
		return *(const char *const *)row->target != NULL;
	case SCRY_OPT_U64:
	case SCRY_OPT_PID:
	case SCRY_OPT_SIZE:
	case SCRY_OPT_DURATION:
		return *(const uint64_t *)row->target != 0;
	default: /* no row that --start has not is of another kind */
		return false;
	}
}

/* What of a recording and its replay is asked for beside --start. */
static int refuse_with_server(const struct scry_opt *rows, size_t count)
{
	struct scry_buf names = {0};
	int err = 0;

	for (size_t i = 0; i < count; i++)
		if (!server_has(rows[i].long_name) && is_given(&rows[i]))
			scry_buf_printf(&names, "%s--%s", names.len ? ", " : "", rows[i].long_name);
	if (names.len)
		err = scry_fail(-EINVAL,
				"with --start nothing is recorded and nothing replayed: it has no "
				"%s; fix: without",
				scry_buf_str(&names));
	scry_buf_done(&names);
	return err;
}

static void settle(struct scry_replay_opts *opts)
{
	opts->threads = opts->threads < 0 ? 0 : opts->threads;
	opts->pace = opts->pace < 0 ? 0 : opts->pace;
	opts->touch = opts->touch < 0 ? SCRY_TOUCH_RECORDED : opts->touch;
}

static int check(struct scry_replay_opts *opts, const char *recording)
{
	const char *usage = opts->is_compare ? usage_compare : usage_replay;
	const bool is_server = scry_malloc_servers_are(&opts->servers);
	int err;

	err = is_server ? scry_malloc_servers_check(&opts->servers, opts->command != NULL) : 0;
	if (err)
		return err;
	if (is_server && recording)
		return scry_fail(
			-EINVAL,
			"'%s' is not an option, and with --start there are no other words; "
			"usage: %s",
			recording, usage);
	if (opts->is_compare && !is_server && (!opts->command || recording))
		return scry_fail(-EINVAL, "say which program to run; usage: %s", usage);
	if (!opts->is_compare && !recording)
		return scry_fail(-EINVAL, "say which recording; usage: %s", usage);
	opts->check |= opts->is_compare && !is_server;
	if (opts->check != (opts->command != NULL))
		return scry_fail(-EINVAL,
				 opts->check
					 ? "--check runs the program itself, and none is named; "
					   "fix: --check -- CMD; usage: %s"
					 : "only --check runs the program behind --; fix: --check "
					   "-- CMD; usage: %s",
				 usage);
	if (!opts->runs || opts->runs > SCRY_REPLAY_RUNS_MAX)
		return scry_fail(-EINVAL, "--runs is 1 to %d", SCRY_REPLAY_RUNS_MAX);
	if (!opts->with.count) {
		opts->with.count = 1;
		opts->with.values[0] = "glibc,jemalloc,tcmalloc,mimalloc";
	}
	if (!opts->memory)
		opts->memory = scry_malloc_rss_available() / 4 * 3;
	if (scry_output_check_ending(opts->keep, "scry") < 0)
		return -EINVAL;
	settle(opts);
	/* pictures are of a replay's memory over time */
	return scry_output_check_ending(opts->output, is_server ? "txt json" : "txt json svg html");
}

/* With a `folder` the recording is not another user's: it has no name any more as soon as it is
 * open, lest it stays when we are killed. */
static int replay_path(const struct scry_replay_opts *opts, const char *path, const char *folder)
{
	bool is_bad = false;
	int fd, err = scry_recording_open(path, &fd);

	if (folder) {
		unlink(path);
		rmdir(folder);
	}
	if (err)
		return SCRY_EXIT_FAILURE;
	err = scry_output_check(opts->output, fd);
	if (!err)
		err = scry_malloc_replay_file(opts, fd, &is_bad);
	close(fd);
	return err || is_bad ? SCRY_EXIT_FAILURE : 0;
}

/* Records, and replays what was recorded; the recording goes unless it is to be kept. */
static int record_and_replay(const struct scry_replay_opts *opts)
{
	const char *path = opts->keep, *place = getenv("TMPDIR");
	char folder[PATH_MAX], own[PATH_MAX + 32];
	struct scry_malloc_allocators list;
	int status = 0, err = scry_malloc_allocators_parse(&opts->with, &list);

	scry_malloc_allocators_done(&list);
	if (err)
		return SCRY_EXIT_FAILURE;
	snprintf(folder, sizeof(folder), "%s/scry-XXXXXX", place && *place ? place : "/tmp");
	if (!path && !mkdtemp(folder)) {
		scry_fail(-errno, "cannot make a folder '%s': %s", folder, strerror(errno));
		return SCRY_EXIT_FAILURE;
	}
	snprintf(own, sizeof(own), "%s/recording.scry", folder);
	path = path ? path : own;
	err = scry_malloc_record_to(path, opts->force, opts->keep != NULL, opts->command, &status);
	if (!err && status)
		fprintf(stderr, "scry: the program ended with status %d when it was recorded\n",
			status);
	if (!err)
		return replay_path(opts, path, opts->keep ? NULL : folder);
	if (!opts->keep) {
		unlink(own);
		rmdir(folder);
	}
	return SCRY_EXIT_FAILURE;
}

static void help(const struct scry_replay_opts *opts, const struct scry_opt *rows, size_t count)
{
	printf("usage: %s\n\n%s\n\n", opts->is_compare ? usage_compare : usage_replay,
	       opts->is_compare
		       ? "Records a program, makes its calls again under several allocators, runs "
			 "it under each,\nand says which suits."
		       : "Makes the calls of a recording again under several allocators, and says "
			 "which suits.");
	scry_opt_help(rows, count, stdout);
}

static int command(int argc, char **argv, bool is_compare)
{
	struct scry_replay_opts opts = {
		.runs = 5, .threads = -1, .touch = -1, .pace = -1, .is_compare = is_compare};
	const struct scry_opt rows[] = {
		{0, "with", SCRY_OPT_STRINGS, &opts.with, "LIST",
		 "allocators: glibc, jemalloc, tcmalloc, mimalloc, a path, each with :NAME=VALUE "
		 "for its environment; the first is what others are compared with (default: "
		 "these four)",
		 "glibc|jemalloc|tcmalloc|mimalloc"},
		{0, "runs", SCRY_OPT_U64, &opts.runs, "N", "replays of each (default 5)", NULL},
		{0, "threads", SCRY_OPT_CHOICE, &opts.threads, NULL,
		 "as many as recorded, or one that makes all calls", "recorded|1"},
		{0, "touch", SCRY_OPT_CHOICE, &opts.touch, NULL,
		 "what of a block is written to: nothing, 16 bytes, all, or those and each page "
		 "that the program touched (default)",
		 "none|first|all|recorded"},
		{0, "pace", SCRY_OPT_CHOICE, &opts.pace, NULL,
		 "think (default): threads do between their calls what they did when recorded, "
		 "where there are several; none: one call after the other; recorded: each at the "
		 "time at which it was recorded: takes as long as the program did, for each run",
		 "think|none|recorded"},
		{0, "rss-every", SCRY_OPT_DURATION, &opts.rss_every_ns, "TIME",
		 "how often memory is measured (default: 200 times a run, at least every 10ms)",
		 NULL},
		{0, "verify", SCRY_OPT_FLAG, &opts.verify, NULL,
		 "check each once more: its blocks are aligned, zeroed, kept, and do not overlap",
		 NULL},
		{0, "memory", SCRY_OPT_SIZE, &opts.memory, "SIZE",
		 "the most memory to use (default: three quarters of the available memory)", NULL},
		{0, "pid", SCRY_OPT_PID, &opts.pid, "PID", "this process of several", NULL},
		{0, "json", SCRY_OPT_FLAG, &opts.json, NULL, "print JSON instead of text", NULL},
		{'o', "output", SCRY_OPT_STRING, &opts.output, "FILE",
		 "write to FILE: x.txt, x.json; x.svg and x.html are pictures of memory over time",
		 NULL},
		{0, "force", SCRY_OPT_FLAG, &opts.force, NULL, "replace FILE if it exists", NULL},
		{'v', "verbose", SCRY_OPT_FLAG, &opts.verbose, NULL, "all totals, one a line",
		 NULL},
		{'h', "help", SCRY_OPT_FLAG, &opts.help, NULL, "this help", NULL},
		/* this row, and whether others follow, depend on the verb */
		is_compare ? (struct scry_opt){0, "keep", SCRY_OPT_STRING, &opts.keep, "FILE",
					       "keep the recording there", NULL}
			   : (struct scry_opt){0, "check", SCRY_OPT_FLAG, &opts.check, NULL,
					       "run the program itself under each, as often, and "
					       "show the prediction next to it",
					       NULL},
		SCRY_MALLOC_SERVERS_ROWS(&opts.servers),
	};
	const size_t count =
		sizeof(rows) / sizeof(rows[0]) - (is_compare ? 0 : SCRY_MALLOC_SERVERS_ROW_COUNT);
	const char *recording = NULL;
	int err, own = 1;

	signal(SIGCHLD, SIG_DFL); /* what started us may have ignored it */
	while (own < argc && strcmp(argv[own], "--"))
		own++;
	if (own + 1 < argc)
		opts.command = argv + own + 1;
	err = scry_opt_parse_one(rows, count, (struct scry_opt_args){own, argv}, &recording);
	if (!err && opts.help) {
		help(&opts, rows, count);
		return 0;
	}
	if (!err && scry_malloc_servers_are(&opts.servers))
		err = refuse_with_server(rows, count);
	if (!err)
		err = check(&opts, recording);
	if (err)
		return SCRY_EXIT_USAGE;
	scry_log_setup(opts.verbose, SCRY_LOG_COLOR_AUTO);
	if (scry_output_try(opts.output, opts.force))
		return SCRY_EXIT_FAILURE;
	if (scry_malloc_servers_are(&opts.servers))
		return scry_malloc_servers(&opts);
	return is_compare ? record_and_replay(&opts) : replay_path(&opts, recording, NULL);
}

int scry_cmd_malloc_replay(int argc, char **argv)
{
	return command(argc, argv, false);
}

int scry_cmd_malloc_compare(int argc, char **argv)
{
	return command(argc, argv, true);
}
