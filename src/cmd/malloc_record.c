/*
 * `scry malloc record`: every call of the malloc family, of all threads, in an order that a replay
 * can follow. The agent writes (agent/malloc.c), the keeper takes it (hook/tracks) and makes calls
 * of it (name/malloc).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <x86intrin.h>

#include "base/err.h"
#include "cmd/cmd.h"
#include "cmd/loading.h"
#include "cmd/malloc.h"
#include "cmd/malloc_family.h"
#include "cmd/malloc_lines.h"
#include "cmd/malloc_older.h"
#include "cmd/patch_words.h"
#include "cmd/report.h"
#include "cmd/session.h"
#include "cmd/watch_opts.h"
#include "hook/threads.h"
#include "hook/tracks.h"
#include "name/malloc.h"
#include "wire/malloc_ring.h"

#define CALL_NS 8 /* what recording adds to a call; bench/malloc.md */
#define FLUSH_NS 500000000ull
#define KEEPER_NICE (-10)

struct record_opts {
	bool no_lines;
};

struct recording {
	struct scry_hooks hooks;
	struct scry_malloc_family family;
	struct scry_malloc_lines lines;
	struct scry_tracks *tracks;
	struct scry_malloc *calls;
	struct scry_malloc_older older;
	uint64_t end_tsc; /* nothing later is told; 0: no end yet */
	uint64_t flush_ns;
	bool is_full; /* no memory for more: what comes is not taken */
	/* children, of this process and of its children, that have not been seen to record */
	struct child *children;
	size_t child_count;
	uint64_t adopted_ns; /* of a child: since when its lane is taken */
};

static int drain(struct scry_watch *w);
static void end_forked(struct scry_watch *w);

struct child {
	uint32_t pid;
	uint32_t image;
	struct scry_malloc *calls; /* with its parent's blocks */
};

#define CHILDREN_MAX 256u /* the oldest have exec'ed or ended, most likely */
#define LATE_TRIES 1000
#define FORK_TRIES 10
#define CHILD_WAIT_NS 2000000000ull /* until its parent's fork is merged; then it is on its own */

/* Of a fork child that took a lane: as it says; 0: not yet. */
static uint32_t lane_pid(const struct scry_watch *w)
{
	return w->root && w->inj.control
		       ? (uint32_t)__atomic_load_n(&w->inj.control->lane_pid, __ATOMIC_ACQUIRE)
		       : 0;
}

/* What a fork child did ends: what follows with its pid is another program. */
static void end_part(struct scry_session *s, uint32_t pid)
{
	struct scry_ev_detach end = {.pid = pid, .verified = 1};

	end.reason_str = scry_session_string(s, "it ended, or ran another program");
	scry_session_event(s, SCRY_EVENT_DETACH, &end, sizeof(end));
}

static void drain_others(struct scry_watch *w)
{
	struct scry_session *s = w->session;

	for (size_t i = 0; i < s->count; i++)
		if (s->watches[i] != w && !s->watches[i]->is_over && drain(s->watches[i]) < 0)
			scry_error_clear();
}

/* A fork child that has not recorded, with its parent's blocks: NULL, it is not known. */
static struct child *child_of(struct scry_session *s, uint32_t pid)
{
	for (size_t i = 0; i < s->count; i++) {
		struct recording *m = s->watches[i]->root ? NULL : s->watches[i]->state;

		for (size_t k = 0; m && k < m->child_count; k++)
			if (m->children[k].pid == pid)
				return &m->children[k];
	}
	return NULL;
}

/* It may be a fork child's next program: then what that did is a part that ends before this one
 * begins, found or not, and whether it called malloc or not. */
static void end_forked(struct scry_watch *w)
{
	struct scry_session *s = w->session;
	const uint32_t pid = (uint32_t)w->proc.pid;
	struct child *child = NULL;

	for (int i = 0; s && i < FORK_TRIES && s->count > 1 && w->opts->follow && !child; i++) {
		if (i)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		for (size_t k = s->count; k-- > 0;) {
			struct scry_watch *other = s->watches[k];

			if (other == w || other->is_over || other->proc.pid ||
			    lane_pid(other) != pid)
				continue;
			other->target_gone = true;
			scry_watch_end(other, "it ran another program (exec)");
			return;
		}
		drain_others(w);
		child = child_of(s, pid);
	}
	if (!child)
		return;
	scry_malloc_free(child->calls);
	*child = (struct child){0};
	end_part(s, pid);
}

/* A process has forked: what it has now, its child has too. */
static int on_fork(void *arg, struct scry_malloc *parent, uint32_t pid)
{
	struct scry_watch *w = arg;
	struct recording *root = w->root ? w->root->state : w->state;
	const struct child child = {.pid = pid, .image = scry_session_part(w->session, pid)};
	const struct scry_malloc_opts opts = {
		.producer = {.pid = pid,
			     .ring = child.image,
			     .start_ticks = scry_proc_start_ticks((pid_t)pid)},
		.writer = w->writer,
		.memory = w->opts->memory,
		.on_fork = on_fork,
		.on_fork_arg = w->root ? w->root : w,
	};
	struct child *more;
	int r;

	if (root->child_count == CHILDREN_MAX) {
		scry_malloc_free(root->children[0].calls);
		memmove(root->children, root->children + 1,
			--root->child_count * sizeof(*root->children));
	}
	more = reallocarray(root->children, root->child_count + 1, sizeof(*more));
	if (!more)
		return scry_fail(-ENOMEM, "not enough memory for the children");
	root->children = more;
	more[root->child_count] = child;
	r = scry_malloc_fork(parent, &opts, &more[root->child_count].calls);
	root->child_count += r == 0;
	return r;
}

/* The calls of the process that has this lane: as its parent left them, once that is known. */
static int take_up(struct scry_watch *w, struct recording *m)
{
	struct recording *root = w->root->state;
	uint32_t pid = lane_pid(w);
	struct scry_malloc_opts opts = {
		.producer = {.pid = pid, .start_ticks = scry_proc_start_ticks((pid_t)pid)},
		.writer = w->writer,
		.memory = w->opts->memory,
		.on_fork = on_fork,
		.on_fork_arg = w->root,
	};

	for (size_t i = root->child_count; i-- > 0 && pid;) {
		if (root->children[i].pid != pid)
			continue;
		m->calls = root->children[i].calls;
		w->image = root->children[i].image;
		root->children[i] = root->children[--root->child_count];
		return 0;
	}
	if (!pid || scry_now_ns() < m->adopted_ns + CHILD_WAIT_NS)
		return 0;
	opts.producer.ring = w->image = scry_session_part(w->session, pid);
	return scry_malloc_new(&opts, &m->calls);
}

/* A fork child that records in a lane already. */
static int adopt(struct scry_watch *w)
{
	struct recording *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	w->state = m;
	m->adopted_ns = scry_now_ns();
	return scry_tracks_new(w->inj.control, w->inj.ring, 0, false, &m->tracks);
}

static void identified(struct scry_watch *w)
{
	struct recording *m = w->state;

	scry_tracks_identify(m->tracks, w->proc.pid);
}

static int prepare(struct scry_watch *w)
{
	const struct record_opts *opts = w->opts->instrument_opts;
	struct recording *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	w->state = m;
	end_forked(w);
	m->lines.watch = w;
	if (!opts->no_lines)
		scry_malloc_lines_plan(&m->lines, w);
	r = scry_loading_open(w, &m->hooks);
	if (r == 0)
		r = scry_malloc_family_want(&m->family, &m->hooks, w->opts->follow);
	if (r == 0)
		r = scry_malloc_lines_want(&m->lines, &m->hooks);
	if (r == 0)
		r = scry_hooks_plan(&m->hooks);
	if (r == 0)
		r = scry_malloc_family_check(&m->family, &m->hooks);
	if (r == 0)
		scry_malloc_lines_check(&m->lines, &m->hooks);
	if (r == 0)
		w->near = m->hooks.rows[0].address;
	return r;
}

static void describe(struct scry_watch *w, FILE *out)
{
	const struct recording *m = w->state;

	fprintf(out, "  allocator   %s%s%s\n", m->family.module, *m->family.name ? ": " : "",
		m->family.name);
	scry_patch_describe(&m->hooks, out);
}

static void tell_allocator(struct scry_watch *w, const struct recording *m)
{
	const struct scry_malloc_family *f = &m->family;
	struct scry_ev_allocator ev = {.pid = (uint32_t)w->proc.pid,
				       .older_blocks = m->older.blocks,
				       .older_bytes = m->older.bytes};
	char text[768];

	ev.module_str = scry_session_string(w->session, f->module);
	if (*f->name)
		ev.name_str = scry_session_string(w->session, f->name);
	scry_session_event(w->session, SCRY_EVENT_ALLOCATOR, &ev, sizeof(ev));
	if (f->spaces > 1)
		scry_watch_note(
			w,
			"%zu namespaces of the dynamic loader: what the others allocate from "
			"objects of their own is not recorded",
			f->spaces);
	snprintf(text, sizeof(text), "process %d: malloc is served by %s%s%s", w->proc.pid,
		 f->module, *f->name ? ", " : "", f->name);
	scry_tell(w->session, SCRY_NEWS_DETAIL, 0, text);
}

static int start_keeping(struct scry_watch *w, struct recording *m)
{
	const struct scry_malloc_opts opts = {
		.producer = {.pid = (uint32_t)w->proc.pid,
			     .ring = w->image,
			     .start_ticks = w->proc.start_ticks},
		.writer = w->writer,
		.memory = w->opts->memory,
		.on_fork = w->pool.head ? on_fork : NULL,
		.on_fork_arg = w,
	};
	int r = scry_tracks_new(w->inj.control, w->inj.ring, w->proc.pid, false, &m->tracks);

	if (r == 0)
		r = scry_malloc_new(&opts, &m->calls);
	if (r == 0)
		scry_malloc_clock(m->calls, __rdtsc(), scry_now_ns());
	return r;
}

/* Was it named by -p? Else it is a child that was found. */
static bool is_asked_for(const struct scry_watch *w)
{
	for (size_t i = 0; i < w->opts->pids.count; i++)
		if (w->opts->pids.values[i] == (uint64_t)w->proc.pid)
			return true;
	return false;
}

static int record(struct scry_watch *w)
{
	w->session->late += w->is_caught || (!w->held && !is_asked_for(w));
	return scry_threads_record(&w->inj, true);
}

static int enter(struct scry_watch *w)
{
	struct recording *m = w->state;
	int r = scry_threads_start(&w->inj, w->held, SCRY_MALLOC_OP_TIME);

	if (r == 0)
		r = start_keeping(w, m);
	if (r == 0)
		r = scry_malloc_lines_tell(&m->lines);
	if (r == 0)
		scry_malloc_lines_read(&m->lines, m->calls);
	m->family.with_lines = m->lines.ruby != NULL;
	m->family.lines_depth = m->lines.depth;
	m->family.frames = m->lines.frames;
	if (r == 0)
		r = scry_malloc_family_tell(&m->family, &m->hooks, &w->inj, false);
	if (r == 0 && w->pool.head)
		r = scry_pool_tell(&w->pool, &w->inj, &(struct scry_agent_frames){0});
	if (r == 0)
		r = scry_hooks_on(&m->hooks, &w->inj, w->held);
	if (r == 0)
		r = scry_malloc_family_tell(&m->family, &m->hooks, &w->inj, true);
	if (r == 0)
		r = w->held ? record(w) : scry_malloc_older_find(w, m->calls, record, &m->older);
	if (r < 0)
		return r;
	setpriority(PRIO_PROCESS, 0, KEEPER_NICE); /* hundreds of threads wait for it: if it may */
	tell_allocator(w, m);
	scry_patch_tell_refused(w, &m->hooks, "recorded");
	return 0;
}

static int give(void *arg, const struct scry_track_run *run)
{
	const struct scry_malloc_run words = {.thread = run->id,
					      .tid = run->tid,
					      .has_ended = run->has_ended,
					      .begin_tsc = run->begin_tsc,
					      .words = run->words,
					      .count = run->count};

	return scry_malloc_words(arg, &words);
}

/* All that is there, up to its watermark. */
static int take(struct scry_watch *w, struct recording *m)
{
	struct scry_tracks_taken taken = {0};
	uint64_t now = scry_now_ns(), tsc;
	int r;

	if (!w->root) /* of a child's code nothing is read */
		scry_malloc_lines_turn(&m->lines, m->calls);
	r = scry_tracks_take(m->tracks, give, m->calls, &taken);
	tsc = __rdtsc(); /* later than what has just been copied */
	scry_malloc_clock(m->calls, tsc, scry_now_ns());
	if (m->end_tsc && taken.watermark > m->end_tsc)
		taken.watermark = m->end_tsc;
	if (r == 0)
		r = scry_malloc_merge(m->calls, taken.watermark, tsc);
	if (r == 0)
		r = scry_malloc_memory(m->calls, now, false);
	if (r == 0 && now >= m->flush_ns) {
		r = scry_malloc_flush(m->calls);
		m->flush_ns = now + FLUSH_NS;
	}
	if (r == -ENOSPC || r == -ENOMEM) { /* what was taken so far is whole */
		m->is_full = true;
		w->enough = "--memory is used up";
		scry_watch_note(w, "the watch ended before its time: %s", scry_error());
		scry_error_clear();
		return 0;
	}
	return r < 0 ? r : taken.fill;
}

static int drain(struct scry_watch *w)
{
	struct recording *m = w->state;
	int r = m && m->tracks && !m->calls && w->root ? take_up(w, m) : 0;

	return r == 0 && m && m->calls && !m->is_full ? take(w, m) : r;
}

/*
 * First nobody comes in any more, then those inside come out, then all is taken. What they still
 * do is not told: others, who pass by already, may have freed the block that they get.
 */
static void leave(struct scry_watch *w)
{
	struct recording *m = w->state;

	if (!m->end_tsc)
		m->end_tsc = __rdtsc();
	if (!w->root && scry_hooks_off(&m->hooks, &w->inj) < 0) /* leaving tries again */
		scry_error_clear();
	scry_threads_record(&w->inj, false);
	scry_threads_await(&w->inj);
}

static int finish_calls(struct scry_watch *w, struct recording *m)
{
	int r;

	scry_tracks_end(m->tracks);
	r = drain(w);
	if (r >= 0)
		r = scry_malloc_finish(m->calls);
	return r;
}

static void tell_rest(struct scry_watch *w, const struct scry_malloc_stats *calls,
		      const struct scry_tracks_stats *tracks)
{
	const struct scry_control *c = w->inj.control;
	char text[512];

	scry_watch_lost(w, c->lost,
			"the keeper did not come in time, or there were too many threads");
	scry_watch_lost(w, c->busy, "made by signal handlers that interrupted malloc");
	if (w->target_gone)
		scry_watch_lost(w, calls->unreturned, "reallocs that had not returned at the end");
	scry_watch_lost(w, tracks->unfinished, "being written when their thread ended");
	w->errors += calls->bad + tracks->bad;
	snprintf(text, sizeof(text),
		 "process %d: %llu calls, %llu blocks at most, %llu threads, %llu callers; %llu "
		 "ends of "
		 "unknown blocks, %llu beginnings where one lived, %llu told too late; %llu waits "
		 "for "
		 "the keeper, whose tables take %llu KiB",
		 w->proc.pid, (unsigned long long)calls->calls,
		 (unsigned long long)calls->blocks_max, (unsigned long long)calls->threads,
		 (unsigned long long)calls->callers, (unsigned long long)calls->unknown,
		 (unsigned long long)calls->mended, (unsigned long long)calls->late,
		 (unsigned long long)tracks->waits, (unsigned long long)calls->memory / 1024);
	scry_tell(w->session, SCRY_NEWS_DETAIL, 0, text);
}

/* A child that ended before its parent's fork was merged: that is soon. */
static int find_late(struct scry_watch *w, struct recording *m)
{
	int r = 0;

	for (int i = 0; i < LATE_TRIES && r == 0 && !m->calls; i++) {
		if (i == LATE_TRIES - 1)
			m->adopted_ns = 0; /* on its own, then */
		else if (i)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		drain_others(w);
		r = take_up(w, m);
	}
	return r;
}

static int finish(struct scry_watch *w)
{
	struct recording *m = w->state;
	struct scry_malloc_stats calls;
	struct scry_tracks_stats tracks;
	int r = 0;

	if (m && m->tracks && !m->calls && w->root)
		r = find_late(w, m);
	if (r < 0 || !m || !m->calls)
		return r;
	r = finish_calls(w, m);
	scry_malloc_stats(m->calls, &calls);
	scry_tracks_stats(m->tracks, &tracks);
	w->events = calls.calls;
	w->cost_ns = w->events * CALL_NS;
	w->frees_older = calls.unknown;
	tell_rest(w, &calls, &tracks);
	if (calls.had_children && !w->opts->follow)
		scry_watch_note(w, "it had child processes, which are not in this recording; fix: "
				   "-f");
	if (!w->root)
		scry_malloc_lines_note(&m->lines, &calls);
	return r;
}

/* A child that was not found, or is one of too many: its calls are written, its numbers summed. */
static int merge(struct scry_watch *into, struct scry_watch *w)
{
	uint32_t pid = lane_pid(w);
	int r = finish(w);

	if (pid)
		end_part(w->session, pid);

	into->events += w->events;
	into->lost += w->lost;
	into->errors += w->errors;
	into->cost_ns += w->cost_ns;
	into->frees_older += w->frees_older;
	return r;
}

static void done(struct scry_watch *w)
{
	struct recording *m = w->state;

	if (m) {
		if (!w->root)
			scry_hooks_close(&m->hooks);
		for (size_t i = 0; i < m->child_count; i++)
			scry_malloc_free(m->children[i].calls);
		free(m->children);
		scry_malloc_free(m->calls);
		if (!w->root)
			scry_malloc_lines_done(&m->lines);
		scry_tracks_free(m->tracks);
	}
	free(m);
	w->state = NULL;
}

const struct scry_instrument scry_instrument_malloc = {
	.name = "malloc",
	.summary = "every call of the malloc family",
	.follows_exec = true,
	.prepare = prepare,
	.describe = describe,
	.enter = enter,
	.adopt = adopt,
	.identified = identified,
	.merge = merge,
	.drain = drain,
	.leave = leave,
	.finish = finish,
	.done = done,
};

int scry_cmd_malloc_record(int argc, char **argv)
{
	struct record_opts record = {0};
	struct scry_watch_opts opts = {.instrument_opts = &record};
	struct scry_talk_opts talk = {0};
	struct scry_report_opts report = SCRY_REPORT_OPTS_DEFAULT;
	const struct scry_opt rows[] = {
		{'f', "follow", SCRY_OPT_FLAG, &opts.follow, NULL,
		 "record child processes too, each as a part of its own", NULL},
		{0, "json", SCRY_OPT_FLAG, &report.json, NULL, "machine-readable output", NULL},
		{0, "no-lines", SCRY_OPT_FLAG, &record.no_lines, NULL,
		 "of a Ruby: callers are native code only, not its lines", NULL},
		SCRY_WATCH_ROWS(&opts, &talk),
	};
	const struct scry_watch_cli cli = {
		.rows = rows,
		.count = sizeof(rows) / sizeof(rows[0]),
		.opts = &opts,
		.talk = &talk,
		.usage = "scry malloc record [-o FILE] -- CMD... | -p PID [-d TIME]",
	};
	int rest, r = scry_watch_parse(&cli, argc, argv, &rest);

	if (r == 1)
		return 0;
	if (r == 0)
		r = scry_report_opts_check(&report, opts.output);
	if (r == 0 && report.folded)
		r = scry_fail(-EINVAL, "'%s': a recording of malloc has no stacks to fold",
			      opts.output);
	if (r < 0)
		return SCRY_EXIT_USAGE;
	return opts.dry_run ? scry_dry_run(&opts, &scry_instrument_malloc)
			    : scry_run(&opts, &scry_instrument_malloc, &report);
}
