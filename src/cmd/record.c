/*
 * `scry record -e LIST`: several instruments on the same processes, in one recording with a section
 * for each. Which go together is decided here, by what each needs alone: see `table`.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/walk.h"
#include "base/err.h"
#include "cmd/calls_named.h"
#include "cmd/cmd.h"
#include "cmd/run.h"
#include "cmd/watch_opts.h"
#include "instrument/calls/protos.h"
#include "instrument/gvl/gvl.h"
#include "instrument/instruments.h"
#include "instrument/malloc/malloc.h"
#include "instrument/objects/objects.h"
#include "instrument/objects/source.h"
#include "instrument/patch.h"
#include "wire/call_format.h"

#define DEPTH_DEFAULT 16
#define STRING_SIZE_DEFAULT 256
#define NOT_GIVEN UINT64_MAX
#define LOG_ARGS 3 /* as `patch log` has without --args */

/* What there is once in a process. Two that need the same do not go together. */
enum needs {
	NEEDS_CHANNEL = 1, /* the core's: rows of threads, and their pages */
	NEEDS_LOADER = 2,  /* libraries that come later are hooked while their loader waits */
};
static const char *const needed_once[] = {
	"both record in one table of threads",
	"both hook what is loaded later, and a loader waits for one of them"};

enum { OBJECTS, MALLOC, GVL, LOCKS, CALLS, COUNT, LOG, TIME, INSTRUMENTS };

/* In the order in which they are entered: what calls the handlers of others comes behind them.
 * Objects are first, as theirs is the agent's own ring. */
static const struct row {
	const char *name;
	const struct scry_instrument *instrument;
	unsigned int needs;
} table[INSTRUMENTS] = {
	[OBJECTS] = {"objects", &scry_instrument_objects, 0},
	[MALLOC] = {"malloc", &scry_instrument_malloc, NEEDS_CHANNEL},
	[GVL] = {"gvl", &scry_instrument_gvl, 0},
	[LOCKS] = {"locks", &scry_instrument_locks, NEEDS_LOADER},
	[CALLS] = {"calls", &scry_instrument_calls, NEEDS_LOADER},
	[COUNT] = {"count", &scry_instrument_count, NEEDS_LOADER},
	[LOG] = {"log", &scry_instrument_log, NEEDS_LOADER | NEEDS_CHANNEL},
	[TIME] = {"time", &scry_instrument_time, NEEDS_LOADER},
};
#define ONE_OF "objects, malloc, gvl, and one of calls, locks, count, log and time"

struct record {
	const char *list;
	bool is_wanted[INSTRUMENTS];
	struct scry_malloc_record_opts malloc;
	struct scry_objects_opts objects;
	struct scry_gvl_opts gvl;
	struct scry_patch_opts patch; /* of count, log or time: they do not go together */
	struct scry_calls_cli calls;
	struct scry_calls_named named;
	uint64_t depth; /* -w: of calls and locks */
	const char *sample;
	bool stacks; /* of objects and gvl */
	int args;
	struct scry_also also[SCRY_SECTIONS_MAX];
};

static const char usage[] = "scry record -e LIST [OPTIONS] -p PID [-d TIME] | -- CMD...";

static int want(struct record *r, const char *name, size_t length)
{
	for (size_t i = 0; i < INSTRUMENTS; i++)
		if (strlen(table[i].name) == length && !strncmp(table[i].name, name, length)) {
			r->is_wanted[i] = true;
			return 0;
		}
	return scry_fail(
		-EINVAL,
		"-e: '%.*s' is not an instrument that can be recorded beside others; fix: " ONE_OF,
		(int)length, name);
}

static bool wants_patch(const struct record *r)
{
	return r->is_wanted[COUNT] || r->is_wanted[LOG] || r->is_wanted[TIME];
}

static int read_list(struct record *r)
{
	const char *at = r->list;
	int e = at ? 0 : scry_fail(-EINVAL, "say what to record: -e LIST; usage: %s", usage);

	while (e == 0 && *at) {
		size_t length = strcspn(at, ",");

		e = want(r, at, length);
		at += length + (at[length] == ',');
	}
	return e;
}

static int check_together(const struct record *r)
{
	for (size_t i = 0; i < INSTRUMENTS; i++)
		for (size_t k = i + 1; k < INSTRUMENTS; k++)
			for (size_t n = 0; n < sizeof(needed_once) / sizeof(needed_once[0]); n++)
				if (r->is_wanted[i] && r->is_wanted[k] &&
				    table[i].needs & table[k].needs & 1u << n)
					return scry_fail(-EINVAL,
							 "-e: %s and %s cannot be recorded "
							 "together: %s; fix: one after the other",
							 table[i].name, table[k].name,
							 needed_once[n]);
	return 0;
}

/* An option of an instrument that is not recorded. */
static int check_options(const struct record *r)
{
	const struct {
		bool is_given, is_right;
		const char *name, *of;
	} rows[] = {
		{r->named.functions.count > 0, r->is_wanted[CALLS] || wants_patch(r), "-x",
		 "calls, count, log and time"},
		{r->named.libraries.count > 0, r->is_wanted[CALLS], "-l", "calls"},
		{r->calls.ruby_stacks, r->is_wanted[CALLS], "-k", "calls"},
		{r->args, r->is_wanted[CALLS], "--args", "calls"},
		{r->depth != NOT_GIVEN, r->is_wanted[CALLS] || r->is_wanted[LOCKS], "-w",
		 "calls and locks"},
		{r->calls.string_size != NOT_GIVEN, r->is_wanted[CALLS], "-s", "calls"},
		{r->malloc.depth, r->is_wanted[MALLOC], "--stack", "malloc"},
		{r->malloc.no_lines, r->is_wanted[MALLOC], "--no-lines", "malloc"},
		{r->malloc.prefix, r->is_wanted[MALLOC], "--prefix", "malloc"},
		{r->sample, r->is_wanted[OBJECTS], "--sample", "objects"},
		{r->stacks, r->is_wanted[OBJECTS] || r->is_wanted[GVL], "--stacks",
		 "objects and gvl"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].is_given && !rows[i].is_right)
			return scry_fail(-EINVAL, "%s is an option of %s, which -e does not name",
					 rows[i].name, rows[i].of);
	return 0;
}

static int settle_depths(struct record *r)
{
	if (r->malloc.depth == UINT64_MAX)
		r->malloc.depth = DEPTH_DEFAULT;
	if (r->is_wanted[LOCKS] && !r->malloc.depth && r->depth == NOT_GIVEN)
		r->depth = DEPTH_DEFAULT; /* as scry locks has it: places are what it shows */
	if (r->depth == NOT_GIVEN)
		r->depth = 0;
	if (r->malloc.depth && r->depth)
		return scry_fail(-EINVAL,
				 "--stack and -w: one instrument's native stacks are recorded at a "
				 "time; fix: one of them");
	if (r->malloc.depth > SCRY_WALK_DEPTH_MAX || r->depth > SCRY_WALK_DEPTH_MAX)
		return scry_fail(-EINVAL, "at most %u frames of a stack are recorded",
				 SCRY_WALK_DEPTH_MAX);
	if (r->malloc.prefix && strlen(r->malloc.prefix) > 15)
		return scry_fail(-EINVAL, "--prefix '%s' is longer than 15 letters",
				 r->malloc.prefix);
	if (r->calls.string_size == NOT_GIVEN)
		r->calls.string_size = STRING_SIZE_DEFAULT;
	if (r->calls.string_size > SCRY_CALL_TEXT_MAX)
		return scry_fail(-EINVAL, "-s %llu: strings are read up to %u bytes",
				 (unsigned long long)r->calls.string_size, SCRY_CALL_TEXT_MAX);
	return 0;
}

static int settle_calls(struct record *r, const char *output)
{
	int e = scry_calls_protos_read(NULL, 0, &r->calls.protos);

	if (e == 0)
		e = scry_calls_named_add(&r->calls, &r->named);
	r->calls.args = scry_calls_args_of(r->args, output);
	r->calls.depth = r->depth;
	r->calls.reads_unsure = r->calls.depth || r->calls.ruby_stacks;
	return e;
}

static int check_children(const struct record *r, const struct scry_watch_opts *opts)
{
	for (size_t i = 0; opts->follow && i < INSTRUMENTS; i++)
		if (r->is_wanted[i] && !table[i].instrument->adopt)
			return scry_fail(-EINVAL,
					 "-f: %s does not follow children; fix: -e without it",
					 table[i].name);
	return 0;
}

static int settle_patch(struct record *r)
{
	if (!r->named.functions.count)
		return scry_fail(-EINVAL, "count, log and time need names of functions; fix: -x "
					  "SYMBOL[@LIB]");
	r->patch = (struct scry_patch_opts){.specs = (char **)r->named.functions.values,
					    .spec_count = (int)r->named.functions.count,
					    .args = LOG_ARGS};
	return 0;
}

static int check(struct record *r, const struct scry_watch_opts *opts)
{
	int e = read_list(r);

	if (e == 0)
		e = check_together(r);
	if (e == 0)
		e = check_options(r);
	if (e == 0)
		e = check_children(r, opts);
	if (e == 0)
		e = settle_depths(r);
	if (e == 0 && r->sample)
		e = scry_objects_read_sample(r->sample, &r->objects.sample);
	if (e == 0 && r->is_wanted[CALLS])
		e = settle_calls(r, opts->output);
	if (e == 0 && wants_patch(r))
		e = settle_patch(r);
	r->objects.stacks = r->gvl.stacks = r->stacks;
	return e;
}

/* x.json and x.folded are of one instrument. */
static int check_form(const struct record *r, const struct scry_watch_opts *opts,
		      struct scry_report_opts *report)
{
	size_t wanted = 0;
	int e = scry_report_opts_check(report, opts->output);

	for (size_t i = 0; i < INSTRUMENTS; i++)
		wanted += r->is_wanted[i];
	if (e == 0 && wanted > 1 &&
	    (report->json || report->folded || report->flame || report->speedscope))
		e = scry_fail(-EINVAL,
			      "'%s' is a form of one instrument's report; fix: -o x.scry, and scry "
			      "report --section for each",
			      opts->output);
	return e;
}

static int run(struct record *r, struct scry_watch_opts *opts,
	       const struct scry_report_opts *report)
{
	void *const own[INSTRUMENTS] = {
		[OBJECTS] = &r->objects, [MALLOC] = &r->malloc, [GVL] = &r->gvl,
		[LOCKS] = &r->depth,	 [CALLS] = &r->calls,	[COUNT] = &r->patch,
		[LOG] = &r->patch,	 [TIME] = &r->patch};
	const struct scry_instrument *first = NULL;
	int status;

	opts->also = r->also;
	for (size_t i = 0; i < INSTRUMENTS; i++) {
		if (!r->is_wanted[i])
			continue;
		if (first)
			r->also[opts->also_count++] =
				(struct scry_also){table[i].instrument, own[i]};
		else
			opts->instrument_opts = own[i];
		first = first ? first : table[i].instrument;
	}
	status = scry_run(opts, first, report);
	for (int i = 0; i < r->calls.request_count; i++)
		free(r->calls.requests[i].text);
	scry_protos_free(r->calls.protos);
	return status;
}

int scry_cmd_record(int argc, char **argv)
{
	static struct record record = {.calls.string_size = NOT_GIVEN, .depth = NOT_GIVEN};
	struct scry_watch_opts opts = {0};
	struct scry_talk_opts talk = {0};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	const struct scry_opt rows[] = {
		{'e', "record", SCRY_OPT_STRING, &record.list, "LIST",
		 "what is recorded, by commas: " ONE_OF,
		 "objects|malloc|gvl|calls|locks|count|log|time"},
		{'f', "follow", SCRY_OPT_FLAG, &opts.follow, NULL,
		 "watch child processes too: objects, malloc, gvl, calls", NULL},
		SCRY_WATCH_ROWS(&opts, &talk, "x.txt; of one instrument also x.json, x.folded"),
		{'x', "function", SCRY_OPT_STRINGS, &record.named.functions, "FILTER",
		 "calls, count, log, time: these functions, SYMBOL[@LIB]; may be repeated", NULL},
		{'l', "library", SCRY_OPT_STRINGS, &record.named.libraries, "LIB",
		 "calls: trace all functions that this library exports; may be repeated", NULL},
		{'k', "ruby-stack", SCRY_OPT_FLAG, &record.calls.ruby_stacks, NULL,
		 "calls: with the lines of Ruby below each", NULL},
		{'w', "where", SCRY_OPT_U64, &record.depth, "N",
		 "calls, locks: with N frames of native code at most (locks: default 16)", NULL},
		{'s', "string-size", SCRY_OPT_U64, &record.calls.string_size, "N",
		 "calls: at most N bytes of a string (default 256)", NULL},
		{0, "args", SCRY_OPT_CHOICE, &record.args, NULL,
		 "calls: strings in full, without literals, or no arguments (default full; digest "
		 "with -o)",
		 SCRY_CALLS_ARGS_CHOICES},
		{0, "stack", SCRY_OPT_U64_MAYBE, &record.malloc.depth, "N",
		 "malloc: with N frames of native code at most (default 16)", NULL},
		{0, "prefix", SCRY_OPT_STRING, &record.malloc.prefix, "PREFIX",
		 "malloc: of an allocator that is built in (je_)", NULL},
		{0, "no-lines", SCRY_OPT_FLAG, &record.malloc.no_lines, NULL,
		 "malloc: callers are native code only, not lines of Ruby", NULL},
		{0, "sample", SCRY_OPT_STRING, &record.sample, "N|SIZE",
		 "objects: one in N, or one in SIZE bytes of heap, scaled up", NULL},
		{0, "stacks", SCRY_OPT_FLAG, &record.stacks, NULL,
		 "objects: with the stacks that made them; gvl: of each wait that ends", NULL},
	};
	const struct scry_watch_cli cli = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]),
		.opts = &opts,
		.talk = &talk,
		.usage = usage,
	};
	int r = scry_watch_parse(&cli, argc, argv);

	if (r == 1)
		return 0;
	if (r == 0)
		r = check(&record, &opts);
	if (r == 0)
		r = check_form(&record, &opts, &report);
	return r < 0 ? SCRY_EXIT_USAGE : run(&record, &opts, &report);
}
