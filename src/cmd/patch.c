/*
 * `scry patch count SYMBOL[@LIB]... -p PID`: how often functions are called; the patching engine's
 * own front. `scry patch list -p PID` shows what stands changed in a process, `scry patch undo -p
 * PID` puts it back.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cmd/cmd.h"
#include "cmd/report.h"
#include "cmd/watch_opts.h"
#include "hook/count.h"

struct count_opts {
	char **specs;
	int spec_count;
	int way; /* enum scry_hook_way */
};

struct count {
	struct scry_count_hook hooks[SCRY_COUNT_HOOKS_MAX];
	size_t hook_count;
};

static bool is_near(uint64_t a, uint64_t b)
{
	return (a > b ? a - b : b - a) < 1u << 30;
}

/* One agent, one neighbourhood: what lies too far for a jump is reached through the GOT. */
static int plan_far(struct scry_watch *w, const struct count_opts *opts, int i,
		    struct scry_count_hook *hook)
{
	const struct count *c = w->state;
	char symbol[sizeof(hook->symbol)];
	int r = -ENOTSUP;

	memcpy(symbol, hook->symbol, sizeof(symbol));
	if (opts->way != SCRY_WAY_ENTRY)
		r = scry_count_plan(&w->proc, opts->specs[i], SCRY_WAY_GOT, hook);
	return r == 0 ? 0
		      : scry_fail(
				r,
				"'%s' lies more than 1 GiB from '%s', too far for the jumps of one "
				"agent, and "
				"no bound GOT slot leads to it; fix: count it in a run of its own",
				symbol, c->hooks[0].symbol);
}

static int prepare(struct scry_watch *w)
{
	const struct count_opts *opts = w->opts->instrument_opts;
	struct count *c = calloc(1, sizeof(*c));
	int r = 0;

	if (!c)
		return -ENOMEM;
	w->state = c;
	for (int i = 0; i < opts->spec_count && r == 0; i++) {
		struct scry_count_hook *hook = &c->hooks[c->hook_count];

		r = scry_count_plan(&w->proc, opts->specs[i], (enum scry_hook_way)opts->way, hook);
		/* One agent, one neighbourhood: what lies too far for a jump is reached through the
		 * GOT. */
		if (r == 0 && hook->way == SCRY_WAY_ENTRY && w->near &&
		    !is_near(w->near, hook->address))
			r = plan_far(w, opts, i, hook);
		if (r == 0 && hook->way == SCRY_WAY_ENTRY && !w->near)
			w->near = hook->address;
		if (r == 0)
			c->hook_count++;
	}
	return r;
}

static void describe(struct scry_watch *w, FILE *out)
{
	const struct count *c = w->state;

	for (size_t i = 0; i < c->hook_count; i++) {
		const struct scry_count_hook *h = &c->hooks[i];

		if (h->way == SCRY_WAY_ENTRY)
			fprintf(out, "  change      5 bytes at %#llx, the entry of %s in %s\n",
				(unsigned long long)h->address, h->symbol, h->module);
		else
			fprintf(out, "  change      %u GOT slots of %s in %s, 8 bytes each\n",
				h->slot_count, h->symbol, h->module);
	}
}

static int enter(struct scry_watch *w)
{
	struct count *c = w->state;

	return scry_count_apply(&w->inj, c->hooks, c->hook_count);
}

static int drain(struct scry_watch *w)
{
	(void)w;
	return 0;
}

static void leave(struct scry_watch *w)
{
	(void)w;
}

static int finish(struct scry_watch *w)
{
	struct count *c = w->state;
	int r = 0;

	for (size_t i = 0; i < c->hook_count; i++) {
		const struct scry_count_hook *h = &c->hooks[i];
		const char *way = h->way == SCRY_WAY_ENTRY ? "entry" : "got";
		struct scry_ev_count ev = {.pid = (uint32_t)w->proc.pid,
					   .calls = w->inj.control->counters[h->counter],
					   .address = h->address};
		int e;

		w->events += ev.calls;
		scry_writer_string(w->writer, h->symbol, strlen(h->symbol), &ev.symbol_str);
		scry_writer_string(w->writer, h->module, strlen(h->module), &ev.module_str);
		scry_writer_string(w->writer, way, strlen(way), &ev.way_str);
		e = scry_writer_payload(w->writer, &(struct scry_event){.type = SCRY_EVENT_COUNT},
					&ev, sizeof(ev));
		r = r ? r : e;
	}
	return r;
}

static void done(struct scry_watch *w)
{
	free(w->state);
	w->state = NULL;
}

const struct scry_instrument scry_instrument_count = {
	.name = "count",
	.summary = "how often functions are called",
	.prepare = prepare,
	.describe = describe,
	.enter = enter,
	.drain = drain,
	.leave = leave,
	.finish = finish,
	.done = done,
};

static int cmd_count(int argc, char **argv)
{
	struct count_opts count = {0};
	struct scry_watch_opts opts = {.instrument_opts = &count};
	struct scry_talk_opts talk = {0};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	const struct scry_opt rows[] = {
		{0, "via", SCRY_OPT_CHOICE, &count.way, "WAY",
		 "how to reach the function (default auto)", "auto|entry|got"},
		{0, "json", SCRY_OPT_FLAG, &report.json, NULL, "machine-readable output", NULL},
		SCRY_WATCH_ROWS(&opts, &talk),
	};
	const struct scry_watch_cli cli = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]),
		.opts = &opts,
		.talk = &talk,
		.usage = "scry patch count SYMBOL[@LIB]... -p PID [-d TIME] [--via=entry|got]",
		.wants_words = true,
	};
	int words = 1, rest, r;

	/* Names first, then options: getopt stops at the first word. */
	while (words < argc && argv[words][0] != '-')
		words++;
	count.specs = argv + 1;
	count.spec_count = words - 1;
	r = scry_watch_parse(&cli, argc - words + 1, argv + words - 1, &rest);
	if (r == 1)
		return 0;
	if (r == 0 && !count.spec_count)
		r = scry_fail(-EINVAL,
			      "name a function to count: scry patch count SYMBOL[@LIB] -p PID");
	if (r == 0 && count.spec_count > SCRY_COUNT_HOOKS_MAX)
		r = scry_fail(-EINVAL, "at most %d functions at once", SCRY_COUNT_HOOKS_MAX);
	if (r == 0 && opts.command)
		r = scry_fail(-EINVAL, "patch count wants a live process: -p PID");
	if (r == 0)
		r = scry_report_opts_check(&report, opts.output);
	if (r == 0 && report.folded)
		r = scry_fail(-EINVAL, "'%s': counts have no stacks to fold", opts.output);
	if (r < 0)
		return SCRY_EXIT_USAGE;
	return opts.dry_run ? scry_dry_run(&opts, &scry_instrument_count)
			    : scry_run(&opts, &scry_instrument_count, &report);
}

int scry_cmd_patch(int argc, char **argv)
{
	static const char usage[] =
		"usage: scry patch count SYMBOL[@LIB]... -p PID [-d TIME] [--via=entry|got]\n"
		"       scry patch list -p PID\n"
		"       scry patch undo -p PID\n";

	if (argc > 1 && !strcmp(argv[1], "count"))
		return cmd_count(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "list"))
		return scry_cmd_patch_list(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "undo"))
		return scry_cmd_undo(argc - 1, argv + 1);
	if (argc > 1 && (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))) {
		fputs(usage, stdout);
		return 0;
	}
	fputs(usage, stderr);
	return 2;
}
