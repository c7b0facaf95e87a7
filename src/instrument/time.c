/*
 * `scry patch time SYMBOL[@LIB]... -p PID`: how long calls of functions take, from entry to return.
 * Counted in the target (wire/shadow.h), read once at the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "hook/calling.h"
#include "hook/loads.h"
#include "hook/shadow.h"
#include "instrument/functions.h"
#include "instrument/instruments.h"
#include "instrument/patch.h"
#include "sys/ticks.h"
#include "watch/loading.h"

#define CALL_NS 25 /* what it adds to a call; bench/hooks.md */

struct times {
	struct scry_watch *watch;
	struct scry_hooks hooks;
	struct scry_patch_functions functions;
	uint32_t room;			       /* for which there are counters; 0: not yet */
	const struct scry_shadow_stats *stats; /* one each */
	uint64_t *pending;		       /* the same */
	size_t first;			       /* request that is the user's */
	uint64_t crowded;		       /* functions that found no counters */
	bool is_settled;
	struct scry_ticks clock;
	struct scry_loading_look look;
};

/* What the stubs give to the agent. */
static int number_all(struct times *t, struct scry_hooks *h)
{
	for (size_t i = 0; i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];
		int n;

		if (row->to.kind != SCRY_HOOK_CALL || !row->way || row->to.is_guard)
			continue;
		n = scry_patch_number(&t->functions, row,
				      t->room ? t->room : SCRY_SHADOW_HOOKS_MAX);
		if (n == -ENOSPC) {
			row->way = 0;
			row->why = "too many functions are timed";
			t->crowded++;
			continue;
		}
		if (n < 0)
			return n;
		row->to.cookie = (uint32_t)n | (row->spares_red_zone ? SCRY_SHADOW_RED_ZONE : 0);
	}
	return 0;
}

/* Libraries were loaded. */
static int renewed(struct scry_hooks *fresh, void *arg)
{
	struct times *t = arg;
	int r = scry_loading_refuse(t->watch, fresh);

	if (r == 0)
		r = number_all(t, fresh);
	return r < 0 ? r : scry_shadow_renew(t->watch->inj, &t->hooks, fresh);
}

static int want(struct scry_hooks *h, void *arg)
{
	struct times *t = arg;
	const struct scry_patch_opts *opts = t->watch->opts->instrument_opts;
	const struct scry_hook_to to = {
		.kind = SCRY_HOOK_CALL, .way = scry_patch_way(opts), .handler = "scry_agent_timed"};
	int r = scry_shadow_check(h);

	h->waits = !h->objects.is_static;
	h->renewed = renewed;
	h->renewed_arg = t;
	if (r == 0)
		r = scry_shadow_want(h);
	t->first = h->request_count;
	for (int i = 0; i < opts->spec_count && r == 0; i++)
		r = scry_hooks_want(h, opts->specs[i], &to);
	if (r == 0)
		r = scry_shadow_guard(h);
	return r == 0 && h->waits ? scry_calling_want(h) : r;
}

static int prepare(struct scry_watch *w)
{
	struct times *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	w->state = t;
	t->watch = w;
	r = scry_loading_plan(w, &t->hooks, want, t);
	if (r == 0)
		r = scry_shadow_refuse(&t->hooks);
	if (r == 0)
		r = number_all(t, &t->hooks);
	w->near = t->hooks.objects.brk;
	for (size_t i = t->hooks.count; i-- > 0;)
		if (t->hooks.rows[i].to.kind == SCRY_HOOK_CALL)
			w->near = t->hooks.rows[i].address;
	return r;
}

static void describe(struct scry_watch *w, FILE *out)
{
	const struct times *t = w->state;

	scry_loading_describe(&t->hooks, t->first, out);
	scry_patch_describe(&t->hooks, out);
	fprintf(out, "  change      the return addresses of these functions, while they run\n");
}

static void read_clocks(struct times *t)
{
	const struct scry_ticks_pair now = scry_ticks_look();

	scry_ticks_mark(&t->clock, &now);
}

static int enter(struct scry_watch *w)
{
	struct times *t = w->state;
	int r;

	t->room = scry_shadow_room(&t->hooks);
	t->pending = calloc(t->room, sizeof(*t->pending));
	if (!t->pending)
		return scry_no_memory("%u hooks", t->room);
	r = scry_shadow_start(w->inj, w->held, &t->hooks, &t->stats);
	if (r == 0)
		r = scry_loading_put_on(w, &t->hooks);
	read_clocks(t);
	if (r == 0)
		r = scry_shadow_follow(w->inj);
	if (r == 0) {
		scry_patch_report_refused(w, &t->hooks, "timed");
		scry_patch_report_aliases(w, &t->hooks);
		scry_loading_report_waiting(w, &t->hooks, t->first);
	}
	return r;
}

static void turn(struct scry_watch *w)
{
	struct times *t = w->state;

	if (scry_loads_turn(&t->hooks, w->inj) < 0 ||
	    scry_shadow_go_on(w->inj, &t->hooks) < 0) /* gone: the keeper sees it by itself */
		scry_error_clear();
	if (!t->is_settled)
		scry_loading_look(w, &t->hooks, &t->look);
}

static int drain(struct scry_watch *w)
{
	(void)w;
	return 0;
}

static void leave(struct scry_watch *w)
{
	struct times *t = w->state;

	w->wake_fd = 0;
	if (!t->stats || t->is_settled)
		return;
	scry_shadow_pause(w->inj);
	scry_loads_end(&t->hooks, w->inj);
	t->is_settled = scry_shadow_leave(w->inj) == 0 &&
			scry_shadow_pending(w->inj, t->pending, t->functions.count) == 0;
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

static void fill(struct scry_ev_time *ev, const struct scry_shadow_stats *s,
		 const struct scry_ticks *clock)
{
	for (uint32_t i = 0; i < SCRY_SHADOW_STEPS; i++)
		ev->returned += s->histogram[i];
	ev->left = s->left;
	ev->missed = s->missed;
	ev->calls += ev->returned + ev->left + ev->missed;
	ev->total_ns = scry_ticks_length(clock, s->total_tsc);
	ev->max_ns = scry_ticks_length(clock, s->max_tsc);
	if (!ev->returned)
		return;
	ev->p50_ns = scry_ticks_length(clock, quantile(s, ev->returned, 500));
	ev->p99_ns = scry_ticks_length(clock, quantile(s, ev->returned, 990));
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
	struct times *t = w->state;
	size_t silent = 0;
	uint64_t missed = 0;
	int r = 0;

	read_clocks(t);
	for (size_t i = 0; i < t->functions.count && t->stats; i++) {
		const struct scry_hook *row = &t->functions.list[i].row;
		struct scry_ev_time ev = {.pid = (uint32_t)w->proc.pid,
					  .calls = t->pending[i],
					  .address = row->address};
		int e;

		fill(&ev, &t->stats[i], &t->clock);
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
	if (t->crowded)
		scry_watch_note(w,
				"not timed, of libraries that were loaded later: %llu function%s; "
				"there are too many; fix: name fewer",
				(unsigned long long)t->crowded, scry_text_s(t->crowded));
	scry_loading_report(w, &t->hooks);
	scry_patch_report_kept(w, &t->hooks, "timed");
	if (r == 0)
		r = scry_loading_report_unmet(w, &t->hooks, t->first, "timed");
	scry_patch_report_silent(w, silent);
	return r;
}

static void done(struct scry_watch *w)
{
	struct times *t = w->state;

	if (t) {
		scry_hooks_close(&t->hooks);
		scry_patch_functions_done(&t->functions);
		free(t->pending);
	}
	free(t);
	w->state = NULL;
}

const struct scry_instrument scry_instrument_time = {
	.name = "time",
	.summary = "how long calls of functions take",
	.measures = 1u << SCRY_MEASURES_CALLS | 1u << SCRY_MEASURES_TIMES,
	.parts = SCRY_PART_CALLS,
	.prepare = prepare,
	.describe = describe,
	.enter = enter,
	.turn = turn,
	.drain = drain,
	.leave = leave,
	.finish = finish,
	.done = done,
};
