/*
 * The instrument of `scry calls`: every call of the functions, with arguments, result and duration.
 * Entries and returns are followed as `patch time` does, and recorded one by one by all threads
 * (wire/call_ring.h); the keeper joins them (name/calls).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <x86intrin.h>

#include "base/demangle.h"
#include "base/err.h"
#include "base/text.h"
#include "hook/calling.h"
#include "hook/loads.h"
#include "hook/shadow.h"
#include "hook/threads.h"
#include "instrument/calls/children.h"
#include "instrument/calls/functions.h"
#include "instrument/calls/requests.h"
#include "instrument/calls/signals.h"
#include "instrument/patch.h"
#include "watch/loading.h"
#include "watch/ask.h"

#define CALL_NS 45	  /* what it adds to a call; bench/calls.md */
#define FETCH_NS 950	  /* where a system call reads a string, too */
#define RUBY_STACK_NS 100 /* the same, of 50 lines of Ruby below it */
#define BREAK_NS 25000
#define LIVE_NS 20000000ull
#define SIZE_NS 20000000ull
#define LAST_TURNS 50
#define FILL_MAX 1000
#define FILL_BUSY 100 /* above it the keeper does not sleep */
#define PIECE 8192    /* records, some 1 ms */

/* Before hooks are put on, or when a function that sets errno was seen for the first time. */
static int find_errno(struct scry_calls_watch *t)
{
	if (t->error.at || !t->error.location)
		return 0;
	scry_calls_errno_find(&t->error, &t->watch->inj->mem);
	return t->breaks ? 0 : scry_shadow_errno(t->watch->inj, t->error.at);
}

/* Libraries were loaded. */
static int renewed(struct scry_hooks *fresh, void *arg)
{
	struct scry_calls_watch *t = arg;
	int r;

	fresh->takes_entries = true;
	r = scry_loading_refuse(t->watch, fresh);
	if (r == 0)
		r = scry_calls_functions_fill(
			t, fresh, NULL); /* a thread waits: no time for debug information */
	if (r == 0)
		r = scry_call_plans_write(&t->plans, t->watch->inj);
	if (r == 0)
		r = find_errno(t);
	return r ? r : scry_shadow_renew(t->watch->inj, &t->hooks, fresh);
}

/* The unwinders come first, guards of Ruby's code last. */
static int want_all(struct scry_hooks *h, void *arg)
{
	struct scry_calls_watch *t = arg;
	const struct scry_calls_cli *cli = t->watch->opts->instrument_opts;
	int r = scry_shadow_check(h);

	t->guards = 0;
	h->waits = !h->objects.is_static || cli->is_default;
	h->takes_entries = true;
	h->renewed = renewed;
	h->renewed_arg = t;
	if (r == 0)
		r = scry_shadow_want(h);
	t->first = h->request_count;
	if (r == 0)
		r = scry_calls_requests_want(cli, h);
	if (r == 0)
		r = scry_shadow_guard(h);
	if (r == 0)
		r = scry_calling_want(h);
	if (r == 0)
		r = scry_calls_ruby_want(&t->ruby, h);
	t->guards += r > 0 ? (uint32_t)r : 0;
	return r < 0 ? r : 0;
}

static int plan_hooks(struct scry_watch *w, struct scry_calls_watch *t)
{
	struct scry_calls_debug debug = {.objects = &t->hooks.objects, .protos = t->debug};
	int r = scry_loading_plan(w, &t->hooks, want_all, t);

	if (r == 0)
		r = scry_shadow_refuse(&t->hooks);
	if (r == 0 && t->ruby.stacks)
		scry_calls_ruby_check(&t->ruby, &t->hooks);
	if (r == 0)
		r = scry_calls_functions_fill(t, &t->hooks, &debug);
	scry_calls_debug_done(&debug);
	return r;
}

/* Of functions that are traced by breakpoints. In the midst of loading there is no time for debug
 * information. */
static int number_met(struct scry_hooks *rows, bool is_loading, void *arg)
{
	struct scry_calls_watch *t = arg;
	struct scry_calls_debug debug = {.objects = &t->hooks.objects, .protos = t->debug};
	int r = scry_calls_functions_fill(t, rows, is_loading ? NULL : &debug);

	scry_calls_debug_done(&debug);
	return r;
}

static int plan_breaks(struct scry_watch *w, struct scry_calls_watch *t)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;
	const struct scry_calls_break_opts opts = {.watch = w,
						   .hooks = &t->hooks,
						   .calls = t->calls,
						   .stacks = t->stacks,
						   .modules = t->native,
						   .depth = (uint32_t)cli->depth,
						   .string_size = (uint32_t)cli->string_size,
						   .errno_at = &t->error.at,
						   .requests = cli->requests,
						   .request_count = (size_t)cli->request_count,
						   .number = number_met,
						   .arg = t};
	int r = scry_calls_break_new(&opts, &t->breaks);

	return r == 0 ? scry_calls_break_plan(t->breaks) : r;
}

static int plan_all(struct scry_watch *w, struct scry_calls_watch *t)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;
	struct scry_calls_opts opts = scry_calls_functions_opts(w, (uint32_t)w->proc.pid, w->image);
	int r;

	opts.stacks = t->stacks;
	opts.ruby = t->ruby.stacks;
	t->debug = scry_protos_new();
	r = t->debug ? scry_calls_new(&opts, &t->calls) : -ENOMEM;
	if (r == 0)
		r = cli->by_breakpoints ? plan_breaks(w, t) : plan_hooks(w, t);
	return r;
}

/* The rest is shown without them. */
static void note_strings(struct scry_watch *w, int error)
{
	if (error < 0)
		scry_watch_note(w, "strings of system calls are shown as addresses: %s",
				scry_error());
	scry_error_clear();
}

/* Of system calls. */
static void open_strings(struct scry_watch *w, struct scry_calls_watch *t)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;
	int r = scry_calls_kernel_strings(t->kernel, cli->protos, w->opts->follow,
					  (uint32_t)cli->string_size);

	note_strings(w, r);
}

static int prepare(struct scry_watch *w)
{
	struct scry_calls_cli *cli = w->opts->instrument_opts;
	struct scry_calls_watch *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	w->state = t;
	t->watch = w;
	w->image = scry_watch_next_part(w, (uint32_t)w->proc.pid);
	t->native = cli->depth ? scry_modules_new(w->proc.pid) : NULL;
	t->stacks = t->native ? scry_native_stacks_new(t->native) : NULL;
	if (cli->depth && !t->stacks)
		return -ENOMEM;
	r = cli->ruby_stacks ? scry_calls_ruby_plan(&t->ruby, w) : 0;
	if (r == 0)
		r = plan_all(w, t);
	if (r == 0 && t->is_unsure && !cli->reads_unsure) {
		cli->reads_unsure = true; /* the ways into seccomp are wanted too */
		scry_hooks_close(&t->hooks);
		scry_calls_functions_forget(t);
		r = plan_all(w, t);
	}
	if (r == 0 && cli->system_calls)
		r = scry_calls_kernel_open(w->proc.pid, w->opts->follow, &t->kernel);
	if (r == 0 && t->kernel && cli->args != SCRY_CALLS_NONE)
		open_strings(w, t);
	if (r == 0 && cli->signals)
		scry_calls_signals_open(t);
	w->near = r == 0 && t->hooks.count ? t->hooks.rows[0].address : t->hooks.objects.brk;
	return r;
}

static void describe(struct scry_watch *w, FILE *out)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;
	const struct scry_calls_watch *t = w->state;

	if (!cli->is_default)
		scry_loading_describe(&t->hooks, t->first, out);
	if (t->breaks) {
		scry_calls_break_describe(t->breaks, out);
		return;
	}
	scry_patch_describe(&t->hooks, out);
	fprintf(out, "  change      the return addresses of these functions, while they run\n");
}

static int start_recording(struct scry_watch *w, struct scry_calls_watch *t)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;
	int r = scry_threads_start(w->inj, &w->channel, w->held, SCRY_CALL_TIME);

	if (r == 0)
		r = scry_thread_buffers_new(w->channel.control, w->channel.ring, w->proc.pid, false,
					    &t->buffers);
	if (r == 0)
		scry_thread_buffers_ask(t->buffers, scry_threads_tid, w->inj);
	if (r == 0)
		r = scry_shadow_start(w->inj, w->held, &t->hooks, &t->stats);
	if (r == 0)
		r = scry_shadow_record(w->inj, (uint32_t)cli->string_size);
	t->unwinding.user = SCRY_USER_CALLS;
	t->unwinding.modules = t->native;
	if (r == 0 && cli->depth)
		r = scry_unwind_start(&t->unwinding, w->inj, w->held, (uint32_t)cli->depth);
	if (r == 0 && t->ruby.stacks)
		r = scry_calls_ruby_report(&t->ruby);
	if (r == 0)
		r = scry_call_plans_write(&t->plans, w->inj);
	if (r == 0)
		r = find_errno(t);
	if (r == 0)
		r = scry_threads_record(w->inj, &w->channel, true);
	return r;
}

static int enter_hooks(struct scry_watch *w, struct scry_calls_watch *t)
{
	int r = start_recording(w, t);

	if (r == 0 && w->pool.head)
		r = scry_pool_announce(&w->pool, w->inj, &(struct scry_agent_frames){0});
	if (r < 0)
		return r;
	if (scry_watch_is_late(w))
		scry_watch_came_late(w);
	r = scry_loading_put_on(w, &t->hooks);
	return r < 0 ? r : scry_shadow_follow(w->inj);
}

static int enter(struct scry_watch *w)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;
	struct scry_calls_watch *t = w->state;
	bool is_held = w->held;
	int r;

	scry_stream_look(scry_calls_stream(t->calls));
	if (t->breaks)
		find_errno(t);
	r = t->breaks ? scry_calls_break_enter(t->breaks) : enter_hooks(w, t);
	if (r == 0) {
		scry_patch_report_refused(w, &t->hooks, "traced");
		scry_patch_report_aliases(w, &t->hooks);
		scry_calls_requests_report_slots(w, &t->hooks);
		if (!cli->is_default && !is_held)
			scry_loading_report_waiting(w, &t->hooks, t->first);
		if (t->kernel)
			note_strings(w, scry_calls_kernel_switch(t->kernel, true));
	}
	return r;
}

/* Has what is to be shown grown beyond the limit of memory? Then nothing is taken until the front
 * has come after: threads that call wait, and what finds no room at last is counted. */
static bool is_ahead(const struct scry_watch *w, struct scry_calls_watch *t)
{
	if (!w->opts->gives_back || w->ended_ns || w->target_gone)
		return false;
	if (scry_now_ns() >= t->size_ns) {
		t->size_ns = scry_now_ns() + SIZE_NS;
		t->is_ahead = scry_watch_recorded(w) > w->opts->memory;
	}
	return t->is_ahead;
}

static void turn(struct scry_watch *w)
{
	struct scry_calls_watch *t = w->state;

	if (t->root)
		return;
	if (t->breaks) {
		scry_calls_break_turn(t->breaks, is_ahead(w, t));
		return;
	}
	if (scry_loads_turn(&t->hooks, w->inj) < 0 ||
	    scry_shadow_go_on(w->inj, &t->hooks) < 0) /* gone: the keeper sees it by itself */
		scry_error_clear();
	if (!w->target_gone && !t->is_left)
		scry_loading_look(w, &t->hooks, &t->look);
}

static int report_functions(struct scry_watch *w, struct scry_calls_watch *t)
{
	const struct scry_calls_opts opts =
		scry_calls_functions_opts(w, (uint32_t)w->proc.pid, w->image);
	int r = 0;

	for (; t->reported < t->count && r == 0; t->reported++)
		r = scry_calls_functions_report(w, &t->functions[t->reported], opts.pid,
						opts.first_function + t->reported);
	return r;
}

/* Of a fork child that took a child buffer: as it says; 0: not yet. */
static uint32_t child_pid(const struct scry_watch *w)
{
	return w->channel.control
		       ? (uint32_t)__atomic_load_n(&w->channel.control->child_pid, __ATOMIC_ACQUIRE)
		       : 0;
}

/* It records in a child buffer already, the functions of its root. */
static int adopt(struct scry_watch *w)
{
	struct scry_calls_watch *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->watch = w;
	t->root = w->root->state;
	w->state = t;
	r = scry_thread_buffers_new(w->channel.control, w->channel.ring, 0, false, &t->buffers);
	if (r == 0)
		scry_thread_buffers_ask(t->buffers, scry_threads_tid, w->inj);
	return r;
}

/* Any process of the family can write in a child buffer: whose it is its memory says, which was
 * asked. */
static void identified(struct scry_watch *w)
{
	struct scry_calls_watch *t = w->state;
	const uint32_t pid = (uint32_t)w->proc.pid;

	if (t->child_pid && t->child_pid != pid &&
	    t->child_pid != (uint32_t)scry_proc_tid_inside(w->proc.pid, w->proc.pid))
		scry_watch_note(w,
				"process %u records in the name of process %u: what is shown of "
				"that one may be either's",
				pid, t->child_pid);
	scry_thread_buffers_identify(t->buffers, w->proc.pid);
	t->is_identified = true;
}

/* Names of its stacks: a fork child's code lies where its parent's does, until it loads its own. */
static void look_at_stacks(const struct scry_watch *w, struct scry_calls_watch *t)
{
	if (!t->stacks || !scry_native_stacks_is_new(t->stacks))
		return;
	if (t->root && !t->native && t->is_identified) {
		t->native = scry_modules_new(w->proc.pid);
		if (t->native && scry_modules_maps(t->native)->count)
			scry_native_stacks_by(t->stacks, t->native);
	}
	scry_modules_see(!t->root || (t->native && scry_modules_maps(t->native)->count)
				 ? t->native
				 : t->root->native);
	scry_native_stacks_look(t->stacks);
}

/* What `turn` has seen is whole and in order: it may be written up to now. */
static int drain_breaks(struct scry_watch *w, struct scry_calls_watch *t)
{
	uint64_t now = scry_stream_look(scry_calls_stream(t->calls));
	int r, e;

	scry_calls_signals_take(t, t->is_left || w->target_gone, &now);
	look_at_stacks(w, t);
	r = report_functions(w, t);
	e = scry_calls_merge(t->calls, now);
	r = r ? r : e;
	return r < 0 ? r : FILL_MAX; /* `turn` waits, and no other shall */
}

/* Of a child: those that it calls. */
static int meet(void *arg, uint32_t function)
{
	struct scry_watch *w = arg;
	const struct scry_calls_watch *t = w->state;
	const struct scry_calls_opts opts = scry_calls_functions_opts(w, t->child_pid, w->image);

	return function < t->root->count
		       ? scry_calls_functions_report(w, &t->root->functions[function], opts.pid,
						     opts.first_function + function)
		       : 0;
}

/* A fork child has taken a child buffer, and says which it is before its first word. */
static int take_up(struct scry_watch *w, struct scry_calls_watch *t)
{
	struct scry_calls_opts opts;
	int r;

	t->child_pid = child_pid(w); /* once: others may write there */
	if (!t->child_pid)
		return 0;
	if (t->root->ruby.lines.ruby) {
		t->ruby.stacks = scry_ruby_stacks_new();
		if (t->ruby.stacks)
			scry_ruby_stacks_ruby(t->ruby.stacks, t->root->ruby.lines.ruby);
	}
	t->stacks = t->root->native ? scry_native_stacks_new(t->root->native) : NULL;
	if (t->root->kernel && !scry_calls_children_has_buffer(t->root, t->child_pid)) {
		t->calls = scry_calls_children_of(t->root, t->child_pid);
		t->is_of_root = t->calls != NULL;
	}
	if (t->is_of_root) {
		scry_calls_stacks(t->calls, t->stacks, t->ruby.stacks);
		scry_calls_children_buffer(t->root, t->calls, true);
		return t->root->count ? scry_calls_functions_upto(t->calls, t->root->count - 1) : 0;
	}
	w->image = scry_watch_part(w, t->child_pid);
	opts = scry_calls_functions_opts(w, t->child_pid, w->image);
	opts.ruby = t->ruby.stacks;
	opts.stacks = t->stacks;
	opts.is_child = true;
	opts.meet = meet;
	opts.meet_arg = w;
	r = scry_calls_new(&opts, &t->calls);
	for (uint32_t i = 0; i < t->root->count && r == 0; i++)
		r = scry_calls_function(t->calls);
	if (r == 0)
		scry_stream_clock_of(scry_calls_stream(t->calls),
				     scry_calls_stream(t->root->calls));
	return r;
}

static struct scry_calls_kernel_take of_kernel(const struct scry_watch *w,
					       struct scry_calls_watch *t)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;

	return (struct scry_calls_kernel_take){.calls = t->calls,
					       .number = scry_calls_functions_syscall,
					       .of = w->opts->follow ? scry_calls_children_of
								     : NULL,
					       .arg = t,
					       .has_args = cli->args != SCRY_CALLS_NONE};
}

/* When all that are known have ended, what they said of children is there to be read. */
static bool look_for_children(const struct scry_watch *w, struct scry_calls_watch *t)
{
	const struct scry_calls_kernel_take how = of_kernel(w, t);
	uint32_t known;

	do {
		if (scry_calls_children_live(t))
			return true;
		known = scry_calls_children_known(t);
	} while (scry_calls_kernel_look(t->kernel, &how) == 0 &&
		 scry_calls_children_known(t) > known);
	scry_error_clear();
	return false;
}

/* Of a process that has ended while children live, whose system calls come by its tap. */
static bool must_wait(const struct scry_watch *w)
{
	struct scry_calls_watch *t = w->state;

	if (!t || t->root || !t->kernel || t->is_left || w->is_over)
		return false;
	if (scry_now_ns() >= t->live_ns) {
		t->live_ns = scry_now_ns() + LIVE_NS;
		t->has_children = look_for_children(w, t);
	}
	return t->has_children;
}

/* Will nothing come any more? */
static bool is_last(const struct scry_watch *w, const struct scry_calls_watch *t)
{
	return t->is_left || (w->target_gone && !must_wait(w));
}

/* Those without a child buffer, up to when no process had one that is not known yet. */
static int write_children(const struct scry_watch *w, struct scry_calls_watch *t)
{
	struct scry_watch *other;
	uint64_t now = __rdtsc();

	if (!w->is_over && !t->is_leaving)
		scry_watch_take_up_child_buffers(w);
	for (size_t i = 0; (other = scry_watch_beside(w, i)); i++) {
		struct scry_calls_watch *child = other->state;

		if (child && child->root == t && !child->calls && !other->is_over)
			take_up(other, child);
	}
	return scry_calls_children_merge(t, is_last(w, t) || t->kernel_until < now ? t->kernel_until
										   : now);
}

static int take_syscalls(const struct scry_watch *w, struct scry_calls_watch *t,
			 uint64_t *watermark)
{
	struct scry_calls_kernel_take how = of_kernel(w, t);
	int r, e;

	how.is_last = is_last(w, t);
	r = scry_calls_kernel_take(t->kernel, &how, &t->kernel_until);
	if (t->kernel_until < *watermark)
		*watermark = t->kernel_until;
	e = w->opts->follow ? write_children(w, t) : 0;
	return r ? r : e;
}

/* What was taken is written in pieces, between which more is taken, lest the program waits for the
 * writing: as long as memory lasts. */
static int write_calls(const struct scry_watch *w, struct scry_calls_watch *t, uint64_t watermark)
{
	const struct scry_stream *stream = scry_calls_stream(t->calls);
	bool last = is_last(w, t);
	size_t most =
		last || 8 * scry_stream_waiting(stream) > w->opts->memory / 2 ? SIZE_MAX : PIECE;
	int r;

	t->is_behind = false;
	if (!scry_calls_ruby_turn(&t->ruby, last))
		return 0;
	if (t->is_leaving && !last)
		most = 0;
	r = scry_calls_merge_some(t->calls, watermark, most);
	t->is_behind = scry_stream_is_behind(stream) && !t->is_leaving;
	return r;
}

static int drain(struct scry_watch *w)
{
	struct scry_calls_watch *t = w->state;
	struct scry_thread_buffers_taken taken = {0};
	int r = 0, e;

	if (t->breaks)
		return drain_breaks(w, t);
	if (t->root && !t->calls)
		r = take_up(w, t);
	if (r < 0 || !t->buffers || !t->calls || is_ahead(w, t))
		return r;
	if (t->is_left || w->target_gone)
		scry_thread_buffers_end(t->buffers);
	if (!w->target_gone && !t->root && !t->is_left)
		scry_unwind_turn(&t->unwinding);
	r = scry_thread_buffers_take(t->buffers, scry_stream_add, scry_calls_stream(t->calls),
				     &taken);
	e = t->kernel ? take_syscalls(w, t, &taken.watermark) : 0;
	r = r ? r : e;
	scry_calls_signals_take(t, is_last(w, t), &taken.watermark);
	if (t->is_of_root && !t->is_left && t->root->kernel_until < taken.watermark)
		taken.watermark = t->root->kernel_until;
	look_at_stacks(w, t);
	scry_stream_look(scry_calls_stream(t->calls));
	e = t->root ? 0 : report_functions(w, t);
	r = r ? r : e;
	e = write_calls(w, t, taken.watermark);
	r = r ? r : e;
	if (r >= 0 && t->is_behind && taken.fill <= FILL_BUSY)
		return FILL_BUSY + 1;
	return r < 0 ? r : taken.fill;
}

/* No process follows calls while others are left, which may take longer than their lease. */
static void conclude(struct scry_watch *w)
{
	const struct scry_calls_watch *t = w->state;

	if (t->buffers)
		scry_shadow_pause(w->inj);
}

/* No new calls; those that wait for us go on; then returns lead home again. */
static void leave(struct scry_watch *w)
{
	struct scry_calls_watch *t = w->state;

	w->wake_fd = 0;
	if (t->kernel)
		scry_calls_kernel_switch(t->kernel, false);
	if (t->breaks)
		scry_calls_break_leave(t->breaks);
	if (!t->buffers)
		return;
	scry_shadow_pause(w->inj);
	t->is_leaving = true;
	for (int i = 0; i < LAST_TURNS; i++) {
		if (drain(w) < 100)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	scry_threads_record(w->inj, &w->channel, false);
	scry_loads_end(&t->hooks, w->inj);
	if (t->stats || t->root)
		scry_shadow_leave(w->inj); /* not now: leaving tries again */
	scry_error_clear();
	t->is_left = true;
}

/* What the agent has lost. */
static void finish_hooks(struct scry_watch *w, struct scry_calls_watch *t, uint64_t fetched)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;
	struct scry_thread_buffers_stats buffers;
	uint64_t refused;
	char lacks[512];

	scry_thread_buffers_stats(t->buffers, &buffers);
	w->cost_ns = w->events * (CALL_NS + (cli->ruby_stacks ? RUBY_STACK_NS : 0)) +
		     (t->is_unsure ? fetched * FETCH_NS : 0);
	w->errors += buffers.bad;
	scry_watch_lost(w, w->channel.control->lost,
			"entries and returns that found no room, or no keeper that took them");
	scry_watch_lost(w, w->channel.control->busy,
			"entries and returns in signal handlers that interrupted scry's own");
	scry_watch_lost(w, t->stats ? t->stats->missed : 0,
			"calls whose return could not be followed");
	if (t->kernel)
		scry_calls_kernel_note(t->kernel, w);
	w->events += scry_calls_children_count(t, &refused);
	if (t->kernel && w->target_gone && scry_calls_children_live(t))
		scry_watch_note(w,
				"process %d became another program: system calls of its living "
				"children are no longer recorded",
				w->proc.pid);
	scry_watch_lost(w, refused, "system calls of more children than there is room for");
	scry_watch_buffers(w, buffers.waits);
	if (scry_unwind_lacks(&t->unwinding, lacks, sizeof(lacks)))
		scry_watch_note(w, "%s", lacks);
	scry_calls_ruby_note(&t->ruby);
	if (!t->root)
		scry_loading_report(w, &t->hooks);
}

static int finish(struct scry_watch *w)
{
	struct scry_calls_watch *t = w->state;
	struct scry_calls_stats calls;
	uint64_t until = 0;
	size_t kept = 0;
	int r;

	if (!t || (!t->buffers && !t->breaks)) /* the sum of others */
		return 0;
	if (t->is_of_root && !t->root->is_left) /* what it did last */
		take_syscalls(t->root->watch, t->root, &until);
	t->is_left = true;
	if (t->kernel && w->start_ns)
		scry_watch_lost_some(w, "system calls that the program made until its loader was "
					"done, when -S began");
	r = drain(w);
	if (!t->calls) /* it took a child buffer and did nothing more */
		return r;
	scry_calls_stats(t->calls, &calls);
	w->events = calls.calls;
	w->errors += calls.bad + calls.strange;
	if (t->breaks) {
		w->cost_ns = w->events * BREAK_NS;
		scry_calls_break_report(t->breaks);
	} else {
		finish_hooks(w, t, calls.fetched);
	}
	if (!t->root && !t->breaks)
		kept = scry_patch_report_kept(w, &t->hooks, "traced");
	if (!t->root && !w->events && t->count && !w->opts->follow && !kept)
		scry_watch_note(
			w,
			t->count == 1 ? "%u function was watched, and not called: %s"
				      : "%u functions were watched, and none was called; the first "
					"of them: %s",
			t->count, scry_demangle_shown(t->functions[0].symbol).text);
	scry_calls_signals_note(t);
	if (!t->root)
		scry_calls_requests_note(w->opts->instrument_opts, &t->hooks, t->first);
	return r < 0 ? r : 0;
}

/* A child that was not found, or is one of too many: its calls are written, its numbers summed. */
static int merge(struct scry_watch *into, struct scry_watch *w)
{
	int r = finish(w);

	into->events += w->events;
	into->lost += w->lost;
	into->errors += w->errors;
	into->cost_ns += w->cost_ns;
	return r;
}

static void done(struct scry_watch *w)
{
	struct scry_calls_watch *t = w->state;

	if (!t)
		return;
	scry_thread_buffers_free(t->buffers);
	scry_calls_kernel_close(t->kernel);
	scry_calls_signals_close(t);
	scry_calls_break_free(t->breaks);
	if (!t->root)
		scry_hooks_close(&t->hooks);
	scry_unwind_done(&t->unwinding);
	scry_native_stacks_free(t->stacks);
	scry_modules_free(t->native);
	scry_calls_ruby_done(&t->ruby);
	if (t->is_of_root) {
		scry_calls_stacks(t->calls, NULL, NULL);
		scry_calls_children_buffer(t->root, t->calls, false);
		t->calls = NULL;
	}
	scry_calls_children_free(t);
	scry_calls_functions_forget(t);
	free(t->functions);
	free(t);
	w->state = NULL;
}

const struct scry_instrument scry_instrument_calls = {
	.name = "calls",
	.summary = "calls of library functions",
	.measures = 1u << SCRY_MEASURES_CALLS | 1u << SCRY_MEASURES_TIMES,
	.parts = SCRY_PART_CALLS,
	.channel = SCRY_CHANNEL_CALLS,
	.follows_exec = true,
	.prepare = prepare,
	.describe = describe,
	.enter = enter,
	.adopt = adopt,
	.identified = identified,
	.turn = turn,
	.drain = drain,
	.conclude = conclude,
	.leave = leave,
	.must_wait = must_wait,
	.finish = finish,
	.merge = merge,
	.done = done,
	.close = scry_calls_requests_end,
};

const struct scry_instrument scry_instrument_calls_stopped = {
	.name = "calls",
	.summary = "calls of library functions",
	.prepare = prepare,
	.describe = describe,
	.enter = enter,
	.turn = turn,
	.drain = drain,
	.leave = leave,
	.finish = finish,
	.done = done,
	.close = scry_calls_requests_end,
};
