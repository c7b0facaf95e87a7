/*
 * `scry patch count`: how often functions are called. Each has a counter that the stub behind its
 * change adds to; there is nothing to drain.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/text.h"
#include "hook/calling.h"
#include "hook/loads.h"
#include "instrument/instruments.h"
#include "instrument/patch.h"
#include "watch/loading.h"
#include "watch/ask.h"

#define CALL_NS 4 /* what counting adds to a call; bench/hooks.md */

static int want(struct scry_hooks *h, void *arg)
{
	const struct scry_patch_opts *opts = arg;
	const struct scry_hook_to to = {.kind = SCRY_HOOK_COUNT, .way = scry_patch_way(opts)};
	int r = 0;

	h->waits = !h->objects.is_static;
	for (int i = 0; i < opts->spec_count && r == 0; i++)
		r = scry_hooks_want(h, opts->specs[i], &to);
	return r == 0 && h->waits ? scry_calling_want(h) : r;
}

static int prepare(struct scry_watch *w)
{
	struct scry_hooks *h = calloc(1, sizeof(*h));
	int r;

	if (!h)
		return -ENOMEM;
	w->state = h;
	r = scry_loading_plan(w, h, want, w->opts->instrument_opts);
	if (r == 0)
		w->near = h->count ? h->rows[0].address : h->objects.brk;
	return r;
}

static void describe(struct scry_watch *w, FILE *out)
{
	const struct scry_hooks *h = w->state;

	scry_loading_describe(h, 0, out);
	scry_patch_describe(h, out);
}

/* With -v: by which ways, and how many places. */
static void report_ways(struct scry_watch *w, const struct scry_hooks *h)
{
	size_t entries = 0, callers = 0, sites = 0, slots = 0, unseen = 0;

	for (size_t i = 0; i < h->count; i++) {
		const struct scry_hook *row = &h->rows[i];
		size_t its = scry_hook_slots(h, row);

		entries += row->way == SCRY_WAY_ENTRY;
		if (!row->way || row->way == SCRY_WAY_ENTRY)
			continue;
		callers++;
		slots += its;
		sites += row->place_count - its;
		unseen += row->unseen;
	}
	scry_watch_detail(
		w,
		"%zu function%s by the entry, %zu by %zu call%s and %zu GOT slot%s (ways to them "
		"that are not covered: %zu), %zu not at all; %zu thread%s %s moved out of the way",
		entries, scry_text_s(entries), callers, sites, scry_text_s(sites), slots,
		scry_text_s(slots), unseen, h->refused, h->moved, scry_text_s(h->moved),
		scry_text_were(h->moved));
}

static int enter(struct scry_watch *w)
{
	struct scry_hooks *h = w->state;
	int r = scry_loading_put_on(w, h);

	if (r < 0)
		return r;
	report_ways(w, h);
	scry_patch_report_refused(w, h, "counted");
	scry_patch_report_aliases(w, h);
	scry_loading_report_waiting(w, h, 0);
	return 0;
}

static void turn(struct scry_watch *w)
{
	if (scry_loads_turn(w->state, w->inj) < 0) /* gone: the keeper sees it by itself */
		scry_error_clear();
}

static int drain(struct scry_watch *w)
{
	(void)w;
	return 0;
}

static void leave(struct scry_watch *w)
{
	w->wake_fd = 0;
	if (w->state)
		scry_loads_end(w->state, w->inj);
}

static int finish(struct scry_watch *w)
{
	const struct scry_hooks *h = w->state;
	size_t silent = 0;
	int r = 0;

	for (size_t i = 0; i < h->count; i++) {
		const struct scry_hook *row = &h->rows[i];
		struct scry_ev_count ev = {.pid = (uint32_t)w->proc.pid,
					   .calls = scry_hook_calls(row, w->inj),
					   .address = row->address};
		struct scry_patch_names names;
		int e;

		if (!row->way || row->to.is_guard)
			continue;
		if (scry_patch_is_silent(h, row, ev.calls)) {
			silent++;
			continue;
		}
		w->events += ev.calls;
		names = scry_patch_names(w, row);
		ev.symbol_str = names.symbol;
		ev.module_str = names.module;
		ev.way_str = names.way;
		e = scry_writer_payload(w->writer, &(struct scry_event){.type = SCRY_EVENT_COUNT},
					&ev, sizeof(ev));
		r = r ? r : e;
	}
	w->cost_ns = w->events * CALL_NS;
	scry_loading_report(w, h);
	scry_patch_report_kept(w, h, "counted");
	if (r == 0)
		r = scry_loading_report_unmet(w, h, 0, "counted");
	scry_patch_report_silent(w, silent);
	return r;
}

static void done(struct scry_watch *w)
{
	if (w->state)
		scry_hooks_close(w->state);
	free(w->state);
	w->state = NULL;
}

const struct scry_instrument scry_instrument_count = {
	.name = "count",
	.summary = "how often functions are called",
	.measures = 1u << SCRY_MEASURES_CALLS,
	.prepare = prepare,
	.describe = describe,
	.enter = enter,
	.turn = turn,
	.drain = drain,
	.leave = leave,
	.finish = finish,
	.done = done,
};
