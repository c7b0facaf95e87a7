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
#include "cmd/patch_words.h"
#include "hook/shadow.h"

#define CALL_NS 25 /* what it adds to a call; bench/hooks.md */
#define LOOK_NS 100000000ull

struct times {
	struct scry_hooks hooks;
	const struct scry_shadow_stats *stats; /* one a row */
	uint64_t *pending;		       /* the same */
	bool is_settled;
	uint64_t tsc0, ns0, look_ns;
};

static int prepare(struct scry_watch *w)
{
	const struct scry_patch_opts *opts = w->opts->instrument_opts;
	const struct scry_hook_to to = {
		.kind = SCRY_HOOK_CALL, .way = scry_patch_way(opts), .handler = "scry_agent_timed"};
	struct times *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	w->state = t;
	r = scry_hooks_open(&t->hooks, &w->proc);
	if (r == 0)
		r = scry_shadow_check(&t->hooks);
	if (r == 0)
		r = scry_shadow_want(&t->hooks);
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

	scry_patch_describe(&t->hooks, out);
	fprintf(out, "  change      the return addresses of these functions, while they run\n");
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
		scry_patch_tell_refused(w, &t->hooks, "timed");
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

static int write_row(struct scry_watch *w, const struct scry_hook *row, struct scry_ev_time *ev)
{
	struct scry_patch_names names = scry_patch_names(w, row);

	ev->symbol_str = names.symbol;
	ev->module_str = names.module;
	ev->way_str = names.way;
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
		if (scry_patch_is_silent(&t->hooks, row, ev.calls)) {
			silent++;
			continue;
		}
		e = write_row(w, row, &ev);
		r = r ? r : e;
	}
	w->cost_ns = w->events * CALL_NS;
	scry_watch_lost(w, missed, "calls whose return could not be followed");
	if (!t->is_settled)
		scry_watch_note(w,
				"calls that had not returned when the watch of process %d ended "
				"are missing",
				w->proc.pid);
	scry_patch_tell_silent(w, silent);
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
	static const struct scry_patch_verb time = {.name = "time",
						    .instrument = &scry_instrument_time};

	return scry_patch_verb(argc, argv, &time);
}
