/*
 * `scry patch time SYMBOL[@LIB]... -p PID`: how long calls of functions take, from entry to return.
 * Counted in the target (wire/shadow.h), read once at the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#include "base/err.h"
#include "cmd/cmd.h"
#include "cmd/report.h"
#include "cmd/watch_opts.h"
#include "hook/shadow.h"

#define CALL_NS 25 /* what it adds to a call; bench/hooks.md */
#define LOOK_NS 100000000ull

struct time_opts {
	char **specs;
	int spec_count;
	int via; /* word of --via */
};

struct times {
	struct scry_hooks hooks;
	const struct scry_shadow_stats *stats; /* one a row */
	uint64_t *pending;		       /* the same */
	bool is_settled;
	uint64_t tsc0, ns0, look_ns;
};

static int want_unwinders(struct scry_hooks *h)
{
	const struct scry_hook_to to = {
		.kind = SCRY_HOOK_REPLACE, .way = SCRY_WAY_ENTRY, .handler = "scry_agent_find_fde"};
	int r = scry_hooks_want(h, "_Unwind_Find_FDE", &to);

	if (r == -ENOENT) { /* no unwinder is loaded */
		scry_error_clear();
		r = 0;
	}
	return r;
}

static int prepare(struct scry_watch *w)
{
	const struct time_opts *opts = w->opts->instrument_opts;
	static const enum scry_hook_way ways[] = {SCRY_WAY_AUTO, SCRY_WAY_ENTRY, SCRY_WAY_SITE,
						  SCRY_WAY_GOT};
	const struct scry_hook_to to = {
		.kind = SCRY_HOOK_CALL, .way = ways[opts->via], .handler = "scry_agent_timed"};
	struct times *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	w->state = t;
	r = scry_hooks_open(&t->hooks, &w->proc);
	if (r == 0)
		r = scry_shadow_check(&t->hooks);
	if (r == 0)
		r = want_unwinders(&t->hooks);
	for (int i = 0; i < opts->spec_count && r == 0; i++)
		r = scry_hooks_want(&t->hooks, opts->specs[i], &to);
	if (r == 0)
		r = scry_hooks_plan(&t->hooks);
	if (r == 0)
		r = scry_shadow_refuse(&t->hooks);
	for (uint32_t i = 0; i < t->hooks.count && r == 0; i++) {
		struct scry_hook *row = &t->hooks.rows[i];

		row->to.cookie = i | (row->spares_red_zone ? SCRY_SHADOW_RED_ZONE : 0);
		if (row->to.kind == SCRY_HOOK_CALL && !w->near)
			w->near = row->address;
	}
	return r;
}

static void describe(struct scry_watch *w, FILE *out)
{
	const struct times *t = w->state;

	for (size_t i = 0; i < t->hooks.count; i++) {
		const struct scry_hook *row = &t->hooks.rows[i];

		if (row->way == SCRY_WAY_ENTRY)
			fprintf(out, "  change      %u bytes at %#llx, the entry of %s in %s%s\n",
				row->jump, (unsigned long long)(row->address + row->window.endbr),
				row->symbol, row->module,
				row->pad ? ", and 5 of filler near by" : "");
		else if (row->way)
			fprintf(out, "  change      %zu calls and GOT slots of %s in %s\n",
				row->place_count, row->symbol, row->module);
		else
			fprintf(out, "  leave       %s in %s: %s\n", row->symbol, row->module,
				row->why);
	}
	fprintf(out, "  change      the return addresses of these functions, while they run\n");
}

static void tell_refused(struct scry_watch *w, const struct scry_hooks *h)
{
	if (h->refused > 2)
		scry_watch_note(w,
				"%zu of %zu functions cannot be followed and are not timed; "
				"--dry-run names them",
				h->refused, h->count);
	for (size_t i = 0; i < h->count && h->refused <= 2; i++)
		if (!h->rows[i].way)
			scry_watch_note(w, "%s in %s is not timed: %s", h->rows[i].symbol,
					h->rows[i].module, h->rows[i].why);
}

static int enter(struct scry_watch *w)
{
	struct times *t = w->state;
	int r;

	t->pending = calloc(t->hooks.count, sizeof(*t->pending));
	if (!t->pending)
		return scry_fail(-ENOMEM, "not enough memory for %zu hooks", t->hooks.count);
	r = scry_shadow_start(&w->inj, w->held, &t->hooks, &t->stats);
	if (r == 0)
		r = scry_hooks_on(&t->hooks, &w->inj, w->held);
	t->tsc0 = __rdtsc();
	t->ns0 = scry_now_ns();
	if (r == 0)
		r = scry_shadow_follow(&w->inj);
	if (r == 0)
		tell_refused(w, &t->hooks);
	return r;
}

/* What is loaded during the watch may bring an unwinder that knows nothing of us. */
static int drain(struct scry_watch *w)
{
	struct times *t = w->state;

	if (!t->is_settled && !w->enough && !w->target_gone && scry_now_ns() >= t->look_ns) {
		w->enough = scry_shadow_newcomer(&t->hooks);
		if (w->enough)
			scry_watch_note(w, "the watch ended before its time: %s", w->enough);
		t->look_ns = scry_now_ns() + LOOK_NS;
	}
	return 0;
}

static void leave(struct scry_watch *w)
{
	struct times *t = w->state;

	if (!t->stats || t->is_settled)
		return;
	t->is_settled = scry_shadow_settle(&w->inj) == 0 &&
			scry_shadow_pending(&w->inj, t->pending, (uint32_t)t->hooks.count) == 0;
}

static double ns_of_tick(const struct times *t)
{
	uint64_t ticks = __rdtsc() - t->tsc0;

	return ticks ? (double)(scry_now_ns() - t->ns0) / (double)ticks : 0;
}

/* The duration that `part` of a thousand calls do not exceed: somewhere in its step. */
static uint64_t quantile(const struct scry_shadow_stats *s, uint64_t returned, uint64_t part)
{
	uint64_t want = (returned * part + 999) / 1000, seen = 0;

	for (uint32_t i = 0; i < SCRY_SHADOW_STEPS; i++) {
		uint64_t n = s->histogram[i], begin = scry_shadow_step_begin(i);
		uint64_t width = scry_shadow_step_begin(i + 1) - begin, at;

		if (!n || seen + n < want) {
			seen += n;
			continue;
		}
		at = begin + (uint64_t)((double)width * ((double)(want - seen) - 0.5) / (double)n);
		return at < s->max_tsc ? at : s->max_tsc;
	}
	return s->max_tsc;
}

static void fill(struct scry_ev_time *ev, const struct scry_shadow_stats *s, double tick_ns)
{
	for (uint32_t i = 0; i < SCRY_SHADOW_STEPS; i++)
		ev->returned += s->histogram[i];
	ev->left = s->left;
	ev->missed = s->missed;
	ev->calls += ev->returned + ev->left + ev->missed;
	ev->total_ns = (uint64_t)((double)s->total_tsc * tick_ns);
	ev->max_ns = (uint64_t)((double)s->max_tsc * tick_ns);
	if (!ev->returned)
		return;
	ev->p50_ns = (uint64_t)((double)quantile(s, ev->returned, 500) * tick_ns);
	ev->p99_ns = (uint64_t)((double)quantile(s, ev->returned, 990) * tick_ns);
}

static void intern(struct scry_watch *w, const char *text, uint32_t *ret)
{
	scry_writer_string(w->writer, text, strlen(text), ret);
}

static int write_row(struct scry_watch *w, const struct scry_hook *row, struct scry_ev_time *ev)
{
	char name[32];

	snprintf(name, sizeof(name), "%#llx", (unsigned long long)row->address);
	intern(w, *row->symbol ? row->symbol : name, &ev->symbol_str);
	intern(w, row->module, &ev->module_str);
	intern(w, scry_hook_way_name(row->way), &ev->way_str);
	w->events += ev->calls;
	return scry_writer_payload(w->writer, &(struct scry_event){.type = SCRY_EVENT_TIME}, ev,
				   sizeof(*ev));
}

static int finish(struct scry_watch *w)
{
	const struct times *t = w->state;
	double tick_ns = ns_of_tick(t);
	size_t silent = 0;
	uint64_t missed = 0;
	int r = 0;

	for (size_t i = 0; i < t->hooks.count && t->stats; i++) {
		const struct scry_hook *row = &t->hooks.rows[i];
		struct scry_ev_time ev = {.pid = (uint32_t)w->proc.pid,
					  .calls = t->pending[i],
					  .address = row->address};
		int e;

		if (!row->way || row->to.kind != SCRY_HOOK_CALL)
			continue;
		fill(&ev, &t->stats[i], tick_ns);
		missed += ev.missed;
		if (!ev.calls && strpbrk(t->hooks.requests[row->request], "*?[")) {
			silent++;
			continue;
		}
		e = write_row(w, row, &ev);
		r = r ? r : e;
	}
	w->cost_ns = w->events * CALL_NS;
	scry_watch_lost(w, missed, "calls whose return could not be followed");
	if (!t->is_settled)
		scry_watch_note(w, "calls that had not returned when process %d ended are missing",
				w->proc.pid);
	if (silent)
		scry_watch_note(w, "%zu more functions were watched and not called", silent);
	return r;
}

static void done(struct scry_watch *w)
{
	struct times *t = w->state;

	if (t) {
		scry_hooks_close(&t->hooks);
		free(t->pending);
	}
	free(t);
	w->state = NULL;
}

const struct scry_instrument scry_instrument_time = {
	.name = "time",
	.summary = "how long calls of functions take",
	.prepare = prepare,
	.describe = describe,
	.enter = enter,
	.drain = drain,
	.leave = leave,
	.finish = finish,
	.done = done,
};

int scry_cmd_patch_time(int argc, char **argv)
{
	struct time_opts time = {0};
	struct scry_watch_opts opts = {.instrument_opts = &time};
	struct scry_talk_opts talk = {0};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	const struct scry_opt rows[] = {
		{0, "via", SCRY_OPT_CHOICE, &time.via, "WAY",
		 "how to reach the function (default auto)", "auto|entry|site|got"},
		{0, "json", SCRY_OPT_FLAG, &report.json, NULL, "machine-readable output", NULL},
		SCRY_WATCH_ROWS(&opts, &talk),
	};
	const struct scry_watch_cli cli = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]),
		.opts = &opts,
		.talk = &talk,
		.usage = "scry patch time SYMBOL[@LIB]... -p PID [-d TIME] [--via=entry|site|got]",
		.wants_words = true,
	};
	int words = 1, rest, r;

	/* Names first, then options: getopt stops at the first word. */
	while (words < argc && argv[words][0] != '-')
		words++;
	time.specs = argv + 1;
	time.spec_count = words - 1;
	r = scry_watch_parse(&cli, argc - words + 1, argv + words - 1, &rest);
	if (r == 1)
		return 0;
	if (r == 0 && !time.spec_count)
		r = scry_fail(-EINVAL,
			      "name a function to time: scry patch time SYMBOL[@LIB] -p PID");
	if (r == 0 && opts.command)
		r = scry_fail(-EINVAL, "patch time wants a live process: -p PID");
	if (r == 0)
		r = scry_report_opts_check(&report, opts.output);
	if (r == 0 && report.folded)
		r = scry_fail(-EINVAL, "'%s': times have no stacks to fold", opts.output);
	if (r < 0)
		return SCRY_EXIT_USAGE;
	return opts.dry_run ? scry_dry_run(&opts, &scry_instrument_time)
			    : scry_run(&opts, &scry_instrument_time, &report);
}
