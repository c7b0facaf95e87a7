/*
 * `scry patch log SYMBOL[@LIB]... -p PID | -- CMD`: each entry of the functions, in order, with the
 * time, the thread and the argument registers. All threads record at once (wire/tracks.h); what
 * they have written is put into one order by its stamps.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "hook/calling.h"
#include "hook/loads.h"
#include "hook/threads.h"
#include "hook/tracks.h"
#include "instrument/functions.h"
#include "instrument/instruments.h"
#include "instrument/patch.h"
#include "sys/ticks.h"
#include "watch/loading.h"
#include "wire/entry_ring.h"

#define CALL_NS 9 /* what it adds to a call; bench/hooks.md */

struct entry {
	uint64_t tsc, order;
	uint64_t cookie;
	uint64_t args[SCRY_ENTRY_ARGS_MAX];
	uint32_t tid;
};

struct log {
	const struct scry_patch_opts *opts;
	struct scry_hooks hooks;
	struct scry_patch_functions functions;
	uint32_t told; /* of them FUNCTION events are written */
	struct scry_tracks *tracks;
	struct entry *waiting; /* for the watermark */
	size_t count, room;
	uint64_t order, bad;
	struct scry_ticks clock;
	uint64_t last_ns; /* reported: the clock's rate is known better and better */
};

/* What the stubs tell the agent. */
static int number_all(struct log *l, struct scry_hooks *h)
{
	for (size_t i = 0; i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];
		int n;

		if (row->to.is_guard || !row->way)
			continue;
		n = scry_patch_number(&l->functions, row, 1u << SCRY_ENTRY_HOOK_BITS);
		if (n == -ENOSPC)
			return scry_fail(n, "too many functions to log; fix: name fewer");
		if (n < 0)
			return n;
		row->to.cookie = scry_entry_cookie((uint32_t)n, (uint32_t)l->opts->args);
	}
	return 0;
}

static int renewed(struct scry_hooks *fresh, void *arg)
{
	return number_all(arg, fresh);
}

static int want(struct scry_hooks *h, void *arg)
{
	struct log *l = arg;
	const struct scry_hook_to to = {.kind = SCRY_HOOK_CALL,
					.way = scry_patch_way(l->opts),
					.handler = "scry_agent_record"};
	int r = 0;

	h->waits = !h->objects.is_static;
	h->renewed = renewed;
	h->renewed_arg = l;
	for (int i = 0; i < l->opts->spec_count && r == 0; i++)
		r = scry_hooks_want(h, l->opts->specs[i], &to);
	return r == 0 ? scry_calling_want(h) : r;
}

static int prepare(struct scry_watch *w)
{
	struct log *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	w->state = l;
	l->opts = w->opts->instrument_opts;
	r = scry_loading_plan(w, &l->hooks, want, l);
	if (r == 0)
		r = number_all(l, &l->hooks);
	if (r == 0)
		w->near = l->hooks.count ? l->hooks.rows[0].address : l->hooks.objects.brk;
	return r;
}

static void describe(struct scry_watch *w, FILE *out)
{
	const struct log *l = w->state;

	scry_loading_describe(&l->hooks, 0, out);
	scry_patch_describe(&l->hooks, out);
}

static void read_clocks(struct log *l)
{
	const struct scry_ticks_pair now = scry_ticks_look();

	scry_ticks_mark(&l->clock, &now);
}

static int enter(struct scry_watch *w)
{
	struct log *l = w->state;
	int r = scry_threads_start(&w->inj, w->held, SCRY_ENTRY_TIME);

	if (r == 0)
		r = scry_tracks_new(w->inj.control, w->inj.ring, w->proc.pid, false, &l->tracks);
	if (r == 0)
		scry_tracks_ask(l->tracks, scry_threads_tid, &w->inj);
	if (r == 0)
		r = scry_threads_record(&w->inj, true);
	read_clocks(l);
	if (r == 0)
		r = scry_loading_put_on(w, &l->hooks);
	if (r < 0)
		return r;
	scry_patch_tell_refused(w, &l->hooks, "logged");
	scry_loading_tell_waiting(w, &l->hooks, 0);
	return 0;
}

static int keep(struct log *l, const struct entry *e)
{
	if (l->count == l->room) {
		size_t room = l->room ? 2 * l->room : 4096;
		struct entry *more = reallocarray(l->waiting, room, sizeof(*more));

		if (!more)
			return scry_fail(-ENOMEM, "no memory for %zu calls", room);
		l->waiting = more;
		l->room = room;
	}
	l->waiting[l->count++] = *e;
	return 0;
}

/* Records are whole in a run. */
static int give(void *arg, const struct scry_track_run *run)
{
	struct log *l = arg;
	int r = 0;

	for (size_t i = 0; i + 1 < run->count && r == 0;) {
		const uint64_t *words = run->words + i;
		uint32_t n = scry_entry_args(words[0]);
		struct entry e = {.tsc = words[1], .cookie = words[0], .tid = run->tid};

		i += 2;
		if (words[0] == SCRY_ENTRY_TIME)
			continue;
		if (words[0] >> 31 || n > SCRY_ENTRY_ARGS_MAX || n > run->count - i ||
		    scry_entry_hook(words[0]) >= l->functions.count) {
			l->bad++;
			break;
		}
		memcpy(e.args, words + 2, n * sizeof(*words));
		i += n;
		e.order = l->order++;
		r = keep(l, &e);
	}
	return r;
}

static int compare(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;

	if (a->tsc != b->tsc)
		return a->tsc < b->tsc ? -1 : 1;
	return a->order < b->order ? -1 : a->order > b->order;
}

static int tell_functions(struct scry_watch *w, struct log *l)
{
	int r = 0;

	for (; l->told < l->functions.count && r == 0; l->told++) {
		const struct scry_hook *row = &l->functions.list[l->told].row;
		struct scry_patch_names names;
		struct scry_ev_function ev = {
			.function = l->told, .pid = (uint32_t)w->proc.pid, .address = row->address};

		names = scry_patch_names(w, row);
		ev.symbol_str = names.symbol;
		ev.module_str = names.module;
		ev.way_str = names.way;
		r = scry_writer_payload(w->writer,
					&(struct scry_event){.type = SCRY_EVENT_FUNCTION}, &ev,
					sizeof(ev));
	}
	return r;
}

static uint64_t time_of(struct log *l, uint64_t tsc)
{
	uint64_t at = scry_ticks_time(&l->clock, tsc);

	if (at > l->last_ns)
		l->last_ns = at;
	return l->last_ns;
}

static int write_entry(struct scry_watch *w, struct log *l, const struct entry *e)
{
	struct scry_ev_entry ev = {.function = scry_entry_hook(e->cookie),
				   .pid = (uint32_t)w->proc.pid,
				   .args = scry_entry_args(e->cookie)};
	const struct scry_event head = {
		.time_ns = time_of(l, e->tsc), .tid = e->tid, .type = SCRY_EVENT_ENTRY};

	memcpy(&ev.arg1, e->args, sizeof(e->args));
	return scry_writer_payload(w->writer, &head, &ev,
				   offsetof(struct scry_ev_entry, arg1) + 8 * ev.args);
}

/* All that is stamped up to the watermark, in order. */
static int write_until(struct scry_watch *w, struct log *l, uint64_t watermark)
{
	size_t n = 0;
	int r;

	r = tell_functions(w, l);
	if (l->count)
		qsort(l->waiting, l->count, sizeof(*l->waiting), compare);
	read_clocks(l);
	while (n < l->count && l->waiting[n].tsc <= watermark) {
		int e = write_entry(w, l, &l->waiting[n++]);

		r = r ? r : e;
		w->events++;
	}
	l->count -= n;
	memmove(l->waiting, l->waiting + n, l->count * sizeof(*l->waiting));
	return r;
}

static int drain(struct scry_watch *w)
{
	struct log *l = w->state;
	struct scry_tracks_taken taken;
	int r;

	if (!l->tracks)
		return 0;
	if (w->ended_ns)
		scry_tracks_end(l->tracks);
	r = scry_tracks_take(l->tracks, give, l, &taken);
	if (r == 0)
		r = write_until(w, l, taken.watermark);
	return r < 0 ? r : taken.fill;
}

static void turn(struct scry_watch *w)
{
	struct log *l = w->state;

	if (scry_loads_turn(&l->hooks, &w->inj) < 0) /* gone: the keeper sees it by itself */
		scry_error_clear();
}

static void leave(struct scry_watch *w)
{
	struct log *l = w->state;

	w->wake_fd = 0;
	scry_threads_record(&w->inj, false);
	scry_loads_end(&l->hooks, &w->inj);
}

static int finish(struct scry_watch *w)
{
	struct log *l = w->state;
	struct scry_tracks_stats stats = {0};
	uint64_t bad;

	w->cost_ns = w->events * CALL_NS;
	if (!l->tracks)
		return 0;
	scry_tracks_stats(l->tracks, &stats);
	bad = stats.bad + l->bad;
	w->errors += bad;
	scry_watch_lost(w, w->inj.control->lost,
			"calls that found no room, or no keeper that took them");
	scry_watch_lost(w, w->inj.control->busy,
			"calls from signal handlers that interrupted scry's own");
	scry_watch_lost(w, bad, "runs of records that made no sense");
	scry_watch_waited(w, stats.waits);
	scry_loading_tell(w, &l->hooks);
	return scry_loading_tell_unmet(w, &l->hooks, 0, "logged");
}

static void done(struct scry_watch *w)
{
	struct log *l = w->state;

	if (l) {
		scry_tracks_free(l->tracks);
		scry_hooks_close(&l->hooks);
		scry_patch_functions_done(&l->functions);
		free(l->waiting);
	}
	free(l);
	w->state = NULL;
}

const struct scry_instrument scry_instrument_log = {
	.name = "log",
	.summary = "each call of functions",
	.prepare = prepare,
	.describe = describe,
	.enter = enter,
	.turn = turn,
	.drain = drain,
	.leave = leave,
	.finish = finish,
	.done = done,
};
