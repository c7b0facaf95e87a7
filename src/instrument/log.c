/*
 * `scry patch log SYMBOL[@LIB]... -p PID | -- CMD`: each entry of the functions, in order, with the
 * time, the thread and the argument registers. All threads record at once (wire/thread_buffers.h);
 * what they have written is put into one order by its stamps.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "hook/calling.h"
#include "hook/loads.h"
#include "hook/threads.h"
#include "hook/thread_buffers.h"
#include "instrument/functions.h"
#include "instrument/instruments.h"
#include "instrument/patch.h"
#include "sys/stream.h"
#include "watch/loading.h"
#include "wire/entry_ring.h"

#define CALL_NS 9 /* what it adds to a call; bench/hooks.md */

struct log {
	struct scry_watch *watch;
	const struct scry_patch_opts *opts;
	struct scry_hooks hooks;
	struct scry_patch_functions functions;
	uint32_t written; /* of them FUNCTION events are written */
	struct scry_thread_buffers *buffers;
	struct scry_stream *stream;
	uint64_t bad;
};

/* What the stubs give to the agent. */
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

static void scan(void *arg, struct scry_stream_scan *scan)
{
	struct log *l = arg;

	for (size_t i = 0, size; i < scan->count; i += size) {
		const uint64_t *words = scan->words + i;

		size = 2 + scry_entry_args(words[0]);
		if (i + 2 <= scan->count && words[0] == SCRY_ENTRY_TIME)
			continue;
		if (words[0] >> 31 || size > 2 + SCRY_ENTRY_ARGS_MAX || i + size > scan->count ||
		    scry_entry_hook(words[0]) >= l->functions.count) {
			l->bad++;
			return;
		}
		scan->records[scan->found++] =
			(struct scry_stream_record){words[1], (uint32_t)i, (uint32_t)size};
	}
}

static int write_entry(struct log *l, const struct scry_stream_thread *thread,
		       const struct scry_stream_record *rec)
{
	struct scry_watch *w = l->watch;
	const uint64_t *words = scry_stream_words_of(thread, rec);
	struct scry_ev_entry ev = {.function = scry_entry_hook(words[0]),
				   .pid = (uint32_t)w->proc.pid,
				   .args = scry_entry_args(words[0])};
	const struct scry_event head = {.time_ns = scry_stream_time(l->stream, rec->tick),
					.tid = thread->tid,
					.type = SCRY_EVENT_ENTRY};

	memcpy(&ev.arg1, words + 2, ev.args * sizeof(*words));
	return scry_writer_payload(w->writer, &head, &ev,
				   offsetof(struct scry_ev_entry, arg1) + 8 * ev.args);
}

/* All are reported, whatever becomes of one. */
static ssize_t give(void *arg, struct scry_stream_thread *thread,
		    const struct scry_stream_record *records, size_t count)
{
	struct log *l = arg;
	int r = 0;

	for (size_t i = 0; i < count; i++) {
		int e = write_entry(l, thread, &records[i]);

		r = r ? r : e;
	}
	l->watch->events += count;
	return r < 0 ? r : (ssize_t)count;
}

static const struct scry_stream_kind kind = {
	.scan = scan,
	.give = give,
};

static int prepare(struct scry_watch *w)
{
	struct log *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	w->state = l;
	l->watch = w;
	l->opts = w->opts->instrument_opts;
	l->stream = scry_stream_new(&kind, l);
	r = l->stream ? scry_loading_plan(w, &l->hooks, want, l) : -ENOMEM;
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

static int enter(struct scry_watch *w)
{
	struct log *l = w->state;
	int r = scry_threads_start(w->inj, &w->channel, w->held, SCRY_ENTRY_TIME);

	if (r == 0)
		r = scry_thread_buffers_new(w->channel.control, w->channel.ring, w->proc.pid, false,
					    &l->buffers);
	if (r == 0)
		scry_thread_buffers_ask(l->buffers, scry_threads_tid, w->inj);
	if (r == 0)
		r = scry_threads_record(w->inj, &w->channel, true);
	if (r == 0)
		scry_stream_look(l->stream);
	if (r == 0)
		r = scry_loading_put_on(w, &l->hooks);
	if (r < 0)
		return r;
	scry_patch_report_refused(w, &l->hooks, "logged");
	scry_patch_report_aliases(w, &l->hooks);
	scry_loading_report_waiting(w, &l->hooks, 0);
	return 0;
}

static int write_functions(struct scry_watch *w, struct log *l)
{
	int r = 0;

	for (; l->written < l->functions.count && r == 0; l->written++) {
		const struct scry_hook *row = &l->functions.list[l->written].row;
		struct scry_patch_names names;
		struct scry_ev_function ev = {.function = l->written,
					      .pid = (uint32_t)w->proc.pid,
					      .address = row->address};

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

static int drain(struct scry_watch *w)
{
	struct log *l = w->state;
	struct scry_thread_buffers_taken taken;
	int r;

	if (!l->buffers)
		return 0;
	if (w->ended_ns)
		scry_thread_buffers_end(l->buffers);
	r = scry_thread_buffers_take(l->buffers, scry_stream_add, l->stream, &taken);
	scry_stream_look(l->stream);
	if (r == 0)
		r = write_functions(w, l);
	if (r == 0)
		r = scry_stream_merge(l->stream, taken.watermark, SIZE_MAX);
	return r < 0 ? r : taken.fill;
}

static void turn(struct scry_watch *w)
{
	struct log *l = w->state;

	if (scry_loads_turn(&l->hooks, w->inj) < 0) /* gone: the keeper sees it by itself */
		scry_error_clear();
}

static void leave(struct scry_watch *w)
{
	struct log *l = w->state;

	w->wake_fd = 0;
	scry_threads_record(w->inj, &w->channel, false);
	scry_loads_end(&l->hooks, w->inj);
}

static int finish(struct scry_watch *w)
{
	struct log *l = w->state;
	struct scry_thread_buffers_stats stats = {0};
	uint64_t bad;

	w->cost_ns = w->events * CALL_NS;
	if (!l->buffers)
		return 0;
	scry_thread_buffers_stats(l->buffers, &stats);
	bad = stats.bad + l->bad;
	w->errors += bad;
	scry_watch_lost(w, w->channel.control->lost,
			"calls that found no room, or no keeper that took them");
	scry_watch_lost(w, w->channel.control->busy,
			"calls from signal handlers that interrupted scry's own");
	scry_watch_lost(w, bad, "runs of records that made no sense");
	scry_watch_buffers(w, stats.waits);
	scry_loading_report(w, &l->hooks);
	scry_patch_report_kept(w, &l->hooks, "logged");
	return scry_loading_report_unmet(w, &l->hooks, 0, "logged");
}

static void done(struct scry_watch *w)
{
	struct log *l = w->state;

	if (l) {
		scry_thread_buffers_free(l->buffers);
		scry_hooks_close(&l->hooks);
		scry_patch_functions_done(&l->functions);
		scry_stream_free(l->stream);
	}
	free(l);
	w->state = NULL;
}

const struct scry_instrument scry_instrument_log = {
	.name = "log",
	.summary = "each call of functions",
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
