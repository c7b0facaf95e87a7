/*
 * `scry calls`: calls of library functions as they happen, in the manner of ltrace. This is its
 * command line; the instrument is cmd/calls_trace.c, what is shown view/calls.c.
 */
#include "cmd/calls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/opt.h"
#include "cmd/calls_protos.h"
#include "cmd/cmd.h"
#include "cmd/report.h"
#include "cmd/watch_opts.h"

static const char usage[] =
	"scry calls [-x SYMBOL[@LIB]]... [-l LIB]... -p PID [-d TIME] | -- CMD...";

/* "SYMBOL@LIB"; "@LIB" are all of its functions. Whether it is loaded yet does not matter. */
static int add(struct scry_calls_cli *cli, const char *symbol, const char *library)
{
	char **to = &cli->requests[cli->request_count];

	if (cli->request_count == SCRY_CALLS_REQUESTS_MAX)
		return scry_fail(-EINVAL, "more than %d functions are named", cli->request_count);
	if (asprintf(to, "%s@%s", symbol, library) < 0)
		return scry_fail(-ENOMEM, "no memory for '%s'", symbol);
	cli->request_count++;
	return 0;
}

static int add_function(struct scry_calls_cli *cli, const char *spec)
{
	const char *at = strchr(spec, '@');
	char symbol[256];

	if (*spec == '/')
		return scry_fail(-EINVAL,
				 "'%s': a regular expression; fix: a glob, 'SSL_*@libssl*'", spec);
	if (!at)
		return add(cli, spec, "*");
	if (!at[1])
		return scry_fail(-EINVAL, "'%s': no library is named behind the @", spec);
	if ((size_t)(at - spec) >= sizeof(symbol))
		return scry_fail(-EINVAL, "'%s': too long a name", spec);
	snprintf(symbol, sizeof(symbol), "%.*s", (int)(at - spec), spec);
	return add(cli, *symbol ? symbol : "*", at + 1);
}

static int add_all(struct scry_calls_cli *cli, const struct scry_opt_strings *functions,
		   const struct scry_opt_strings *libraries)
{
	const struct scry_proto *known;
	size_t next = 0;
	int r = 0;

	for (size_t i = 0; i < functions->count && r == 0; i++)
		r = add_function(cli, functions->values[i]);
	for (size_t i = 0; i < libraries->count && r == 0; i++)
		r = add(cli, "*", libraries->values[i]);
	cli->is_default = !cli->request_count;
	while (cli->is_default && r == 0 && (known = scry_calls_protos_default(cli->protos, &next)))
		r = add(cli, known->name, known->library);
	return r;
}

static int check(struct scry_calls_cli *cli, const struct scry_watch_opts *opts,
		 struct scry_report_opts *report)
{
	int r = scry_report_opts_check(report, opts->output);

	if (r < 0)
		return r;
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

/* What is kept holds no literals unless it is asked for. */
static enum scry_calls_args args_of(int choice, const char *output)
{
	static const enum scry_calls_args choices[] = {SCRY_CALLS_FULL, SCRY_CALLS_FULL,
						       SCRY_CALLS_DIGEST, SCRY_CALLS_NONE};

	return !choice && output ? SCRY_CALLS_DIGEST : choices[choice];
}

static int run(struct scry_calls_cli *cli, struct scry_watch_opts *opts,
	       struct scry_report_opts *report, bool sums)
{
	int status;

	opts->is_live = true;
	report->view = sums ? "calls-sums" : "calls";
	status = opts->dry_run ? scry_dry_run(opts, &scry_instrument_calls)
			       : scry_run(opts, &scry_instrument_calls, report);
	for (int i = 0; i < cli->request_count; i++)
		free(cli->requests[i]);
	scry_protos_free(cli->protos);
	return status;
}

int scry_cmd_calls(int argc, char **argv)
{
	static struct scry_calls_cli cli = {.string_size = 256};
	struct scry_opt_strings functions = {0}, libraries = {0}, files = {0};
	struct scry_watch_opts opts = {.instrument_opts = &cli};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	struct scry_talk_opts talk = {0};
	bool sums = false;
	int args = 0, engine = 0, rest, r;
	const struct scry_opt rows[] = {
		{'x', "function", SCRY_OPT_STRINGS, &functions, "SYMBOL[@LIB]",
		 "trace this function, or those that match a glob; may be repeated", NULL},
		{'l', "library", SCRY_OPT_STRINGS, &libraries, "LIB",
		 "trace all functions of this library; may be repeated", NULL},
		{'F', "prototypes", SCRY_OPT_STRINGS, &files, "FILE",
		 "read prototypes, as in ltrace.conf; may be repeated", NULL},
		{'c', "sums", SCRY_OPT_FLAG, &sums, NULL,
		 "no lines, a table: calls and times of each function", NULL},
		SCRY_VIEW_CALLS_OPT_ROWS(&report.rows),
		{'w', "where", SCRY_OPT_U64, &cli.depth, "N",
		 "show who called: up to N frames of native code below each call", NULL},
		{'s', "string-size", SCRY_OPT_U64, &cli.string_size, "N",
		 "show at most N bytes of a string (default 256)", NULL},
		{0, "args", SCRY_OPT_CHOICE, &args, NULL,
		 "show strings in full, without literals, or no arguments (default full; digest "
		 "with -o)",
		 "auto|full|digest|none"},
		{0, "engine", SCRY_OPT_CHOICE, &engine, NULL,
		 "how calls are met: by hooks (default), or by breakpoints and ptrace, which is "
		 "slow",
		 "hooks|breakpoint"},
		{0, "json", SCRY_OPT_FLAG, &report.json, NULL, "machine-readable output", NULL},
		SCRY_WATCH_ROWS(&opts, &talk),
	};
	const struct scry_watch_cli watch = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]),
		.opts = &opts,
		.talk = &talk,
		.usage = usage,
	};

	r = scry_watch_parse(&watch, argc, argv, &rest);
	if (r == 1)
		return 0;
	if (r == 0)
		r = check(&cli, &opts, &report);
	if (r == 0)
		r = scry_calls_protos_read(files.values, files.count, &cli.protos);
	if (r == 0)
		r = add_all(&cli, &functions, &libraries);
	if (r < 0)
		return SCRY_EXIT_USAGE;
	cli.args = args_of(args, opts.output);
	cli.by_breakpoints = engine == 1;
	if (cli.by_breakpoints && cli.depth) {
		scry_fail(-EINVAL, "-w: stacks are not read at breakpoints; fix: --engine=hooks");
		return SCRY_EXIT_USAGE;
	}
	/* the ways into seccomp are wanted: a walk may ask the kernel for pages */
	cli.reads_unsure = (files.count && cli.args != SCRY_CALLS_NONE) || cli.depth;
	return run(&cli, &opts, &report, sums);
}
