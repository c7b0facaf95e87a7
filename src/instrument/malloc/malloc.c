/*
 * `scry malloc record`: every call of malloc functions, of all threads, in an order that a replay
 * can follow. The agent writes (agent/malloc.c), the keeper takes it (hook/thread_buffers) and
 * makes calls of it (name/malloc).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/err.h"
#include "base/text.h"
#include "hook/calling.h"
#include "hook/heartbeat.h"
#include "hook/threads.h"
#include "hook/unwind.h"
#include "instrument/instruments.h"
#include "instrument/malloc/children.h"
#include "instrument/patch.h"
#include "watch/loading.h"
#include "watch/preload.h"
#include "watch/ask.h"
#include "wire/malloc_ring.h"

#define CALL_NS 8	     /* what recording adds to a call; bench/malloc.md */
#define OWN_NOTED (1u << 20) /* bytes */
#define FLUSH_NS 500000000ull

static bool has_stacks(const struct scry_watch *w)
{
	return ((const struct scry_malloc_record_opts *)w->opts->instrument_opts)->depth != 0;
}

static void report_allocator(struct scry_watch *w, const struct scry_malloc_watch *m)
{
	const struct scry_malloc_functions *f = &m->functions;
	const struct scry_ev_allocator ev = {.older_blocks = m->older.blocks,
					     .older_bytes = m->older.bytes};

	scry_malloc_children_allocator(w, (uint32_t)w->proc.pid, &ev);
	if (f->spaces > 1)
		scry_watch_note(
			w,
			"%zu namespaces of the dynamic loader: what the others allocate from "
			"objects of their own is not recorded",
			f->spaces);
	if (*f->builtin.prefix)
		scry_watch_note(
			w,
			"%s has its own allocator, %smalloc: the blocks of that allocator are "
			"not in this recording; fix: --prefix %s",
			f->builtin.module, f->builtin.prefix, f->builtin.prefix);
	else if (*f->builtin.module)
		scry_watch_note(w,
				"%s has jemalloc built in, and its functions have no symbols: the "
				"blocks of that jemalloc are not in this recording",
				f->builtin.module);
	scry_watch_detail(w, "process %d: malloc is served by %s%s%s", w->proc.pid, f->module,
			  *f->name ? ", " : "", f->name);
}

/* It has joined by itself: which its allocator is, and what is not seen. */
static void report_preloaded(struct scry_watch *w)
{
	struct scry_malloc_watch *m = w->state;
	struct scry_elf *elf = NULL;
	char exe[32];

	if (scry_malloc_functions_at(&m->functions, w->proc.pid,
				     scry_account_of(w->inj->control)->malloc.preloaded) < 0) {
		scry_error_clear();
		return;
	}
	report_allocator(w, m);
	snprintf(exe, sizeof(exe), "/proc/%d/exe", w->proc.pid);
	if (scry_elf_open_path(exe, &elf) == 0 && scry_preload_has_malloc(elf))
		scry_watch_note(w,
				"%s has its own malloc: its calls of that malloc are not recorded",
				w->proc.exe);
	scry_elf_close(elf);
	scry_error_clear();
	if (m->functions.has_operators)
		scry_watch_note(w,
				"operators new and delete of %s are its own: they do not come "
				"through malloc, and --preload does not record them",
				m->functions.module);
}

static void identified(struct scry_watch *w)
{
	struct scry_malloc_watch *m = w->state;

	scry_thread_buffers_identify(m->buffers, w->proc.pid);
	if (!scry_preload_has(w) || !scry_account_of(w->inj->control)->malloc.preloaded)
		return;
	scry_malloc_children_next(w);
	if (scry_malloc_child_take_up(w) < 0) /* while it waits, and has names; else in its turn */
		scry_error_clear();
	report_preloaded(w);
}

static int prepare(struct scry_watch *w)
{
	const struct scry_malloc_record_opts *opts = w->opts->instrument_opts;
	struct scry_malloc_watch *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	w->state = m;
	m->has_stacks = has_stacks(w);
	scry_malloc_children_next(w);
	m->lines.watch = w;
	m->lines.user = SCRY_USER_MALLOC;
	if (!opts->no_lines)
		scry_ruby_lines_plan(&m->lines, w);
	r = scry_loading_open(w, &m->hooks);
	if (r == 0)
		r = scry_malloc_functions_want(
			&m->functions, &m->hooks,
			&(const struct scry_malloc_functions_opts){opts->prefix, w->opts->follow});
	if (r == 0)
		r = scry_malloc_lines_want(&m->lines, &m->hooks);
	if (r == 0)
		r = scry_calling_want(&m->hooks);
	if (r == 0)
		r = scry_hooks_plan(&m->hooks);
	if (r == 0)
		r = scry_malloc_functions_check(&m->functions, &m->hooks);
	if (r == 0)
		scry_ruby_lines_check(&m->lines, &m->hooks);
	if (r == 0)
		w->near = m->hooks.rows[0].address;
	return r;
}

static void describe(struct scry_watch *w, FILE *out)
{
	const struct scry_malloc_watch *m = w->state;

	fprintf(out, "  allocator   %s%s%s\n", scry_text_shown(m->functions.module).text,
		*m->functions.name ? ": " : "", scry_text_shown(m->functions.name).text);
	scry_patch_describe(&m->hooks, out);
}

static int start_keeping(struct scry_watch *w, struct scry_malloc_watch *m)
{
	struct scry_malloc_opts opts =
		scry_malloc_children_opts(w, (uint32_t)w->proc.pid, w->proc.start_ticks);
	int r = scry_thread_buffers_new(w->channel.control, w->channel.ring, w->proc.pid, false,
					&m->buffers);

	opts.producer.ring = w->image;
	w->channel.control->buffer_over = 0; /* of an older watch */
	if (r == 0)
		scry_thread_buffers_ask(m->buffers, scry_threads_tid, w->inj);
	if (r == 0)
		r = scry_malloc_new(&opts, &m->calls);
	if (r == 0)
		scry_stream_look(scry_malloc_stream(m->calls));
	return r;
}

static int record(struct scry_watch *w)
{
	if (scry_watch_is_late(w))
		scry_watch_came_late(w);
	return scry_threads_record(w->inj, &w->channel, true);
}

static int enter(struct scry_watch *w)
{
	struct scry_malloc_watch *m = w->state;
	int r = scry_threads_start(w->inj, &w->channel, w->held, SCRY_MALLOC_OP_TIME);

	if (r == 0)
		r = start_keeping(w, m);
	m->unwinding.user = SCRY_USER_MALLOC;
	if (r == 0)
		m->unwinding.modules = scry_malloc_modules(m->calls);
	if (r == 0 && has_stacks(w))
		r = scry_unwind_start(
			&m->unwinding, w->inj, w->held,
			(uint32_t)((const struct scry_malloc_record_opts *)w->opts->instrument_opts)
				->depth);
	if (r == 0)
		r = scry_ruby_lines_report(&m->lines);
	if (r == 0)
		scry_malloc_lines_read(&m->lines, m->calls);
	if (r == 0)
		r = scry_malloc_functions_report(&m->functions, &m->hooks, w->inj, false);
	if (r == 0 && w->pool.head)
		r = scry_pool_announce(&w->pool, w->inj, &(struct scry_agent_frames){0});
	if (r == 0)
		r = scry_hooks_on(&m->hooks, w->inj, w->held);
	if (r == 0)
		r = scry_malloc_functions_report(&m->functions, &m->hooks, w->inj, true);
	if (r == 0) /* before the first call: what is older than the recording */
		r = scry_malloc_memory(m->calls, scry_now_ns(), true);
	if (r == 0)
		r = w->held || *m->functions.prefix
			    ? record(w)
			    : scry_malloc_older_find(w, m->calls, record, m->functions.is_glibc,
						     &m->older);
	if (r == 0 && !w->held && *m->functions.prefix)
		scry_malloc_older_foreign(w);
	if (r < 0)
		return r;
	scry_watch_hurry();
	report_allocator(w, m);
	scry_patch_report_refused(w, &m->hooks, "recorded");
	return 0;
}

static void note_full(struct scry_watch *w, const char *why)
{

	scry_watch_note(w, "the watch ended before its time: %s", why);
	scry_watch_say(w, "the recording of process %d ended before its time: %s", w->proc.pid,
		       why);
}

/* All that is there, up to its watermark. */
static int take(struct scry_watch *w, struct scry_malloc_watch *m)
{
	struct scry_thread_buffers_taken taken = {0};
	struct scry_writer_stats written;
	struct scry_stream *stream = scry_malloc_stream(m->calls);
	uint64_t now = scry_now_ns();
	int r;

	if (w->root)
		scry_malloc_child_lines(w);
	else
		scry_malloc_lines_turn(&m->lines, m->calls);
	if (!w->root && !w->target_gone)
		scry_unwind_turn(&m->unwinding);
	scry_thread_buffers_spare(m->buffers,
				  scry_malloc_waiting(m->calls) > SCRY_MALLOC_WAITING_MAX);
	r = scry_thread_buffers_take(m->buffers, scry_stream_add, stream, &taken);
	scry_stream_look(stream); /* later than what has just been copied */
	if (m->end_tsc && taken.watermark > m->end_tsc)
		taken.watermark = m->end_tsc;
	if (r == 0)
		r = scry_malloc_merge(m->calls, taken.watermark);
	if (r == 0)
		r = scry_malloc_memory(m->calls, scry_now_ns(), false);
	if (r == 0 && now >= m->flush_ns) {
		r = scry_malloc_flush(m->calls);
		m->flush_ns = now + FLUSH_NS;
		if (!w->root && !w->target_gone)
			scry_malloc_children_look(w);
	}
	if (r == 0 && !w->root && !w->target_gone && !scry_preload_has(w))
		scry_malloc_late_look(&m->late, w, &m->hooks, m->functions.module);
	scry_writer_stats(w->writer, &written);
	if ((r == -ENOSPC && !written.error) || r == -ENOMEM) { /* what was taken is whole */
		m->is_full = true;
		w->enough = "--memory is used up";
		note_full(w, *scry_error() ? scry_error() : "not enough memory");
		scry_error_clear();
		return 0;
	}
	return r < 0 ? r : taken.fill;
}

static int drain(struct scry_watch *w)
{
	struct scry_malloc_watch *m = w->state;
	int r = m && m->buffers && !m->calls && w->root ? scry_malloc_child_take_up(w) : 0;

	return r == 0 && m && m->calls && !m->is_full ? take(w, m) : r;
}

/*
 * First no thread comes in any more, then those inside come out, then all is taken. What they still
 * do is not recorded: others, which pass by already, may have freed the block that they get.
 */
static void leave(struct scry_watch *w)
{
	struct scry_malloc_watch *m = w->state;

	if (!m->end_tsc && m->buffers)
		m->end_tsc = scry_thread_buffers_stamp(m->buffers);
	if (scry_preload_has(w)) { /* it goes by at its next segment */
		w->inj->control->lease_end_tsc = 0;
		__atomic_store_n(&w->inj->control->lease_tsc, 0, __ATOMIC_RELEASE);
		return;
	}
	if (!w->root && scry_hooks_off(&m->hooks, w->inj) < 0) /* leaving tries again */
		scry_error_clear();
	scry_threads_record(w->inj, &w->channel, false);
	scry_threads_await(w->inj, &w->channel);
}

static int finish_calls(struct scry_watch *w, struct scry_malloc_watch *m)
{
	int r;

	scry_thread_buffers_end(m->buffers);
	scry_malloc_end(m->calls);
	r = drain(w);
	if (r >= 0)
		r = scry_malloc_finish(m->calls);
	return r;
}

/* The target has given us up, and we came back: its losses are counted no more. */
static void note_over(struct scry_watch *w, uint64_t lost)
{
	const double gap_s = (double)scry_watch_gap_ns(w) / 1e9;
	char text[256];

	snprintf(text, sizeof(text),
		 "process %d: scry was held up for %.0f s, and nothing was recorded from then on",
		 w->proc.pid, gap_s);
	scry_watch_lost_some(w, text);
	scry_watch_say(
		w,
		"process %d: scry was held up for %.0f s, and nothing was recorded from then on: "
		"%llu calls are missing at least",
		w->proc.pid, gap_s, (unsigned long long)lost);
}

/* A thread that had no room has waited for us; what was lost all the same must not be replayed
 * unawares. */
static void note_held_up(struct scry_watch *w, const struct scry_malloc_stats *calls,
			 const struct scry_thread_buffers_stats *buffers)
{
	const uint64_t lost = w->channel.control->lost, gap_ns = scry_watch_gap_ns(w);
	const bool is_over = w->channel.control->buffer_over;

	if (gap_ns > SCRY_LEASE_NS && buffers->waits)
		scry_watch_note(w,
				"scry was held up for up to %.1f s (a slow disk, or more work than "
				"processors): threads that found no room waited for it",
				(double)gap_ns / 1e9);
	if (is_over) {
		note_over(w, lost);
		return;
	}
	if (!lost)
		return;
	scry_watch_say(
		w,
		"process %d: %llu calls are missing from the recording, which has %llu: a replay "
		"will differ from what the program did",
		w->proc.pid, (unsigned long long)lost, (unsigned long long)calls->calls);
}

/* Blocks may then end before they begin in it. */
static void note_disorder(struct scry_watch *w, const struct scry_malloc_stats *calls,
			  const struct scry_thread_buffers_stats *buffers)
{
	const uint64_t late = calls->late + buffers->overdue;

	if (late)
		scry_watch_note(
			w,
			"%llu calls were recorded too late for their place: the order of calls "
			"may be wrong there",
			(unsigned long long)late);
	if (calls->mended)
		scry_watch_note(w,
				"%llu times an address was reused without a recorded free, or "
				"before it; one was inserted",
				(unsigned long long)calls->mended);
}

static void note_rest(struct scry_watch *w, const struct scry_malloc_stats *calls,
		      const struct scry_thread_buffers_stats *buffers)
{
	const struct scry_control *c = w->channel.control;
	char text[512];

	scry_watch_lost(w, c->lost,
			"the keeper did not come in time, or there were too many threads");
	scry_watch_lost(w, c->busy, "made by signal handlers that interrupted malloc");
	if (w->target_gone)
		scry_watch_lost(w, calls->unreturned, "reallocs that had not returned at the end");
	scry_watch_lost(w, buffers->unfinished, "being written when their thread ended");
	w->errors += calls->bad + buffers->bad;
	if (calls->own_memory >= OWN_NOTED)
		scry_watch_note_of(w, true,
				   "up to %.1f MiB of resident memory were scry's own, and are "
				   "not counted as the program's",
				   (double)calls->own_memory / (1 << 20));
	if (scry_unwind_lacks(&((struct scry_malloc_watch *)w->state)->unwinding, text,
			      sizeof(text)))
		scry_watch_note(w, "%s", text);
	scry_watch_detail(
		w,
		"process %d: %llu calls, %llu blocks at most, %llu threads, %llu callers; %llu "
		"ends of unknown blocks, %llu frees inserted, %llu calls recorded too late; %llu "
		"waits for the keeper, which was away for %llu ms at most, and whose tables take "
		"%llu KiB; %llu calls lost, %llu of them without a lease; %llu calls not "
		"written; up to %llu KiB of resident memory were scry's, and are not in the "
		"recording",
		w->proc.pid, (unsigned long long)calls->calls,
		(unsigned long long)calls->blocks_max, (unsigned long long)calls->threads,
		(unsigned long long)calls->callers, (unsigned long long)calls->unknown,
		(unsigned long long)calls->mended, (unsigned long long)calls->late,
		(unsigned long long)buffers->waits,
		(unsigned long long)scry_watch_gap_ns(w) / 1000000,
		(unsigned long long)calls->memory / 1024, (unsigned long long)c->lost,
		(unsigned long long)c->lost_lease, (unsigned long long)calls->unwritten,
		(unsigned long long)calls->own_memory / 1024);
}

static int finish(struct scry_watch *w)
{
	struct scry_malloc_watch *m = w->state;
	struct scry_ruby_lines child = {0};
	struct scry_malloc_stats calls;
	struct scry_thread_buffers_stats buffers;
	int r = 0;

	if (m && m->buffers && !m->calls && w->root)
		r = scry_malloc_child_take_late(w);
	if (r < 0 || !m || !m->calls)
		return r;
	r = finish_calls(w, m);
	scry_malloc_stats(m->calls, &calls);
	scry_thread_buffers_stats(m->buffers, &buffers);
	w->events = calls.calls;
	w->cost_ns = w->events * CALL_NS;
	w->frees_older = calls.unknown;
	note_held_up(w, &calls, &buffers);
	note_disorder(w, &calls, &buffers);
	note_rest(w, &calls, &buffers);
	scry_watch_buffers(w, buffers.waits);
	if (calls.had_children && !w->opts->follow)
		scry_watch_note(w, "it had child processes, which are not in this recording; fix: "
				   "-f");
	if (w->root)
		child.watch = w;
	scry_malloc_lines_note(w->root ? &child : &m->lines, &calls);
	return r;
}

/* A child that was not found, or is one of too many: its calls are written, its numbers summed. */
static int merge(struct scry_watch *into, struct scry_watch *w)
{
	int r = finish(w);

	scry_malloc_child_end(w);
	into->events += w->events;
	into->lost += w->lost;
	into->errors += w->errors;
	into->cost_ns += w->cost_ns;
	into->frees_older += w->frees_older;
	return r;
}

static void done(struct scry_watch *w)
{
	struct scry_malloc_watch *m = w->state;

	if (m) {
		if (!w->root)
			scry_hooks_close(&m->hooks);
		scry_unwind_done(&m->unwinding);
		scry_malloc_children_done(w);
		scry_malloc_free(m->calls);
		if (!w->root)
			scry_ruby_lines_done(&m->lines);
		scry_thread_buffers_free(m->buffers);
	}
	free(m);
	w->state = NULL;
}

/* The processor time of scry itself is not part of the program's. */
static int note_own_time(struct scry_watch *speaker)
{
	struct rusage own;

	if (getrusage(RUSAGE_SELF, &own) == 0)
		scry_watch_note_of(
			speaker, true,
			"scry itself took %.2f s of processor time, beside the program's",
			(double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
				(double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6);
	return 0;
}

const struct scry_instrument scry_instrument_malloc = {
	.name = "malloc",
	.summary = "every call of malloc functions",
	.beside[SCRY_MEASURES_TIMES] =
		"malloc is recorded beside: how long malloc, free and their like take, and what "
		"calls them, includes what that costs (some 20 ns a call)",
	.parts = SCRY_PART_MALLOC,
	.follows_exec = true,
	.waits = true,
	.preloads = true,
	.prepare = prepare,
	.describe = describe,
	.enter = enter,
	.adopt = scry_malloc_child_adopt,
	.identified = identified,
	.merge = merge,
	.drain = drain,
	.leave = leave,
	.must_wait = scry_malloc_child_must_wait,
	.finish = finish,
	.close = note_own_time,
	.done = done,
};
