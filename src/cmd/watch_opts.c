/* Common options of the watching commands, and --dry-run. */
#include "cmd/watch_opts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "hook/enter_check.h"
#include "base/err.h"
#include "base/log.h"
#include "base/text.h"
#include "cmd/output.h"

static char command_line[4096] = "scry";

void scry_command_line_keep(int argc, char **argv)
{
	size_t at = strlen(command_line);

	for (int i = 1; i < argc && at < sizeof(command_line); i++)
		at += (size_t)snprintf(command_line + at, sizeof(command_line) - at, " %s",
				       argv[i]);
}

const char *scry_command_line(void)
{
	return command_line;
}

/* Names may come between options, also before the first: they are gathered behind argv[0], where
 * all has been read already. */
static int parse_names(const struct scry_watch_cli *cli, int argc, char **argv, int *ret_rest)
{
	int at = 0, rest, r;

	for (;;) {
		r = scry_opt_parse(cli->rows, cli->count,
				   (struct scry_opt_args){argc - at, argv + at}, &rest);
		if (r < 0)
			return r;
		at += rest;
		*ret_rest = at;
		if (at >= argc || !cli->name_count || !strcmp(argv[at - 1], "--"))
			return 0;
		argv[1 + (*cli->name_count)++] = argv[at];
	}
}

int scry_watch_parse(const struct scry_watch_cli *cli, int argc, char **argv)
{
	struct scry_watch_opts *o = cli->opts;
	int rest, r;

	o->max_pause_ns = SCRY_WATCH_PAUSE_NS;
	o->memory = SCRY_WATCH_MEMORY;
	r = parse_names(cli, argc, argv, &rest);
	if (r < 0)
		return r;
	scry_log_setup(cli->talk->quiet ? -1 : cli->talk->verbose ? 1 : 0, SCRY_LOG_COLOR_AUTO);
	if (cli->talk->help) {
		printf("usage: %s\n\n", cli->usage);
		scry_opt_help(cli->rows, cli->count, stdout);
		return 1;
	}
	o->command_line = command_line;
	if (rest < argc)
		o->command = argv + rest;
	if (!o->pids.count == !o->command)
		return scry_fail(-EINVAL, "%s; usage: %s",
				 o->pids.count ? "either -p PID or a command, not both"
					       : "say what to watch: -p PID, or -- CMD",
				 cli->usage);
	if (o->raw && (!o->output || strstr(o->output, ".json") || strstr(o->output, ".txt") ||
		       strstr(o->output, ".folded")))
		return scry_fail(-EINVAL,
				 "--raw keeps every event in a recording: give one, -o x.scry");
	r = scry_output_check_ending(o->output, cli->endings ? cli->endings : SCRY_OUTPUT_RECORDS);
	if (r < 0)
		return r;
	for (size_t i = 0; i < o->pids.count; i++)
		if (!o->pids.values[i] || o->pids.values[i] > 4194304) /* PID_MAX_LIMIT */
			return scry_fail(-EINVAL, "%llu is not a process id",
					 (unsigned long long)o->pids.values[i]);
	return 0;
}

static int dry_run_one(const struct scry_watch_opts *opts, const struct scry_instrument *instrument,
		       pid_t pid)
{
	struct scry_watch w = {
		.opts = opts, .instrument = instrument, .proc.pidfd = -1, .inj = &w.own};
	int r;

	r = scry_proc_open(&w.proc, pid);
	if (r == 0)
		r = scry_inject_check(&w.proc);
	if (r == 0)
		r = scry_inject_check_alone(&w.proc);
	if (r == 0)
		r = instrument->prepare(&w);
	if (r == 0) {
		printf("scry would enter process %d (%s, %d thread%s) to watch %s:\n", w.proc.pid,
		       scry_text_shown(w.proc.comm).text, w.proc.threads,
		       w.proc.threads == 1 ? "" : "s", instrument->name);
		printf("  memory      about 20 MiB mapped (an 8 MiB ring, tables, 50 KiB of "
		       "code)\n");
		printf("  pause       one thread for some 0.1 to 1 ms to map it; all threads "
		       "together at the\n"
		       "              end, some 0.05 ms each; given up when they do not stop "
		       "within %llu ms\n",
		       (unsigned long long)opts->max_pause_ns / 1000000);
		instrument->describe(&w, stdout);
		if (opts->follow)
			printf("  children    512 MiB of address space more, for what up to 64 "
			       "fork "
			       "children\n"
			       "              record; pages cost when they are used\n");
		printf("nothing was touched\n");
	}
	if (w.state)
		instrument->done(&w);
	scry_proc_close(&w.proc);
	return r;
}

int scry_dry_run(struct scry_watch_opts *opts, const struct scry_instrument *instrument)
{
	size_t count = opts->pids.count;
	int r = 0;

	if (opts->command)
		r = scry_fail(-EINVAL, "--dry-run looks at a live process: give -p PID");
	for (size_t i = 0; i < count && r == 0; i++) {
		struct scry_watch_opts also = *opts;

		r = dry_run_one(opts, instrument, (pid_t)opts->pids.values[i]);
		for (size_t k = 0; k < opts->also_count && r == 0; k++) {
			also.instrument_opts = opts->also[k].opts;
			r = dry_run_one(&also, opts->also[k].instrument,
					(pid_t)opts->pids.values[i]);
		}
	}
	return r == 0			     ? 0
	       : r == -EPERM || r == -EACCES ? 3
	       : r == -ESRCH		     ? 5
	       : r == -EINVAL		     ? 2
					     : 4;
}
