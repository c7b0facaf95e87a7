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

#include "base/err.h"
#include "cmd/calls.h"
#include "cmd/calls_break.h"
#include "cmd/loading.h"
#include "cmd/patch_words.h"
#include "cmd/session.h"
#include "hook/call_plans.h"
#include "hook/loads.h"
#include "hook/shadow.h"
#include "hook/threads.h"
#include "hook/tracks.h"
#include "hook/unwind.h"
#include "name/debug_proto.h"
#include "proto/plan.h"

#define CALL_NS 45 /* what it adds to a call; bench/calls.md */
#define BREAK_NS 25000
#define LOOK_NS 100000000ull
#define SIZE_NS 20000000ull
#define UNWINDERS "_Unwind_Find_FDE@libgcc_s.so*"
#define LAST_TURNS 50
#define FILL_MAX 1000
#define DEBUG_LOOKS_MAX 1000u /* functions; each may be a search of all units */

struct traced { /* a function, by the number in its hook's cookie */
	char *symbol, *module;
	uint64_t address;
	const struct scry_proto *proto;
	uint32_t args; /* registers that are told */
	bool has_plan;
	uint32_t way;
	bool is_told;
};

/* Debug information of the object that was asked last. */
struct debug {
	const struct scry_linkmap *objects;
	const struct scry_elf *elf;
	struct scry_debug_info *info;
	uint32_t looked;
};

struct trace {
	struct scry_watch *watch;
	struct scry_hooks hooks;
	struct scry_tracks *tracks;
	struct scry_calls *calls;
	struct scry_calls_break *breaks; /* the engine; NULL: hooks */
	struct scry_call_plans plans;
	struct scry_protos *debug; /* prototypes from debug information */
	struct traced *functions;
	uint32_t count, room, told;
	const struct scry_shadow_stats *stats; /* one, the sum */
	uint64_t look_ns;
	uint64_t size_ns;
	bool is_suspicious, is_left, is_ahead;
	/* -w */
	struct scry_unwinding unwinding;
	struct scry_native *native;
	struct scry_native_stacks *stacks;
	uint32_t guards; /* requests at the end: ways into seccomp */
	bool is_forbidden, is_unsure;
};

/* What debug information says of a function, or what is said of those that nothing is known of. */
static const struct scry_proto *debug_proto(struct trace *t, struct debug *d,
					    const struct scry_hook *row)
{
	const struct scry_proto *proto = NULL;
	struct scry_buf text = {0};
	char name[24];

	if (!d || d->looked == DEBUG_LOOKS_MAX)
		return &scry_proto_unknown;
	for (size_t i = 0; i < d->objects->count; i++) {
		struct scry_object *o = &d->objects->objects[i];

		if (row->address < o->start || row->address >= o->end || !o->elf)
			continue;
		if (o->elf != d->elf) { /* rows come by address */
			scry_debug_info_close(d->info);
			d->info = scry_debug_info_open(o->elf);
			d->elf = o->elf;
		}
		snprintf(name, sizeof(name), "f%u", t->count);
		if (d->info && d->looked++ < DEBUG_LOOKS_MAX &&
		    scry_debug_proto(d->info, row->address - o->bias, name, &text) &&
		    scry_protos_read(t->debug, "debug information", text.data, text.len) == 0)
			proto = scry_protos_find(t->debug, name, "");
	}
	scry_buf_done(&text);
	scry_error_clear();
	return proto ? proto : &scry_proto_unknown;
}

/* What is fetched of its calls. Before the ways into seccomp are seen, nothing by system calls. 0
 * or -ENOMEM, -E2BIG. */
static int plan_calls(struct trace *t, struct traced *f)
{
	const struct scry_calls_cli *cli = t->watch->opts->instrument_opts;
	struct scry_plan_opts opts = {.string_max = (uint32_t)cli->string_size};
	struct scry_plan plan = {0};
	int r;

	if (cli->args != SCRY_CALLS_NONE)
		scry_plan_make(f->proto, &opts, &plan);
	if (t->breaks) { /* they read from outside */
		f->args = plan.args;
		r = scry_calls_break_plans(t->breaks, t->count, &plan);
		return r < 0 ? r : scry_calls_function(t->calls);
	}
	t->is_unsure |= plan.is_unsure;
	if (plan.is_unsure && !cli->reads_unsure) {
		opts.is_sure_only = true;
		scry_plan_make(f->proto, &opts, &plan);
	}
	r = scry_call_plans_add(&t->plans, plan.is_needed ? &plan.head : NULL, plan.ops);
	f->args = plan.args;
	f->has_plan = r > 0;
	return r < 0 ? r : scry_calls_function(t->calls);
}

/* The number of a row's function; one that comes back with its library keeps it. -errno. */
static int number_of(struct trace *t, struct debug *d, const struct scry_hook *row)
{
	const struct scry_calls_cli *cli = t->watch->opts->instrument_opts;
	const struct scry_proto *proto = scry_protos_find(cli->protos, row->symbol, row->module);
	struct traced *f;
	int r;

	for (uint32_t i = 0; i < t->count; i++) {
		f = &t->functions[i];
		if (!strcmp(f->symbol, row->symbol) && !strcmp(f->module, row->module) &&
		    (*f->symbol || f->address == row->address))
			return (int)i;
	}
	if (t->count == SCRY_SHADOW_HOOKS_MAX)
		return scry_fail(-E2BIG, "more than %u functions", SCRY_SHADOW_HOOKS_MAX);
	if (t->count == t->room) {
		uint32_t room = t->room ? 2 * t->room : 64;
		struct traced *more = reallocarray(t->functions, room, sizeof(*more));

		if (!more)
			return scry_fail(-ENOMEM, "no memory for %u functions", room);
		t->functions = more;
		t->room = room;
	}
	f = &t->functions[t->count];
	*f = (struct traced){.symbol = strdup(row->symbol),
			     .module = strdup(row->module),
			     .address = row->address,
			     .proto = proto ? proto : debug_proto(t, d, row),
			     .way = row->way};
	r = f->symbol && f->module ? plan_calls(t, f)
				   : scry_fail(-ENOMEM, "no memory for %u functions", t->count);
	if (r < 0) {
		free(f->symbol);
		free(f->module);
		return r;
	}
	return (int)t->count++;
}

/* A program that puts itself under seccomp may be ended by system calls of ours: it is seen first.
 */
static uint32_t guard_of(const struct trace *t, const struct scry_hook *row)
{
	uint32_t flags = !strcmp(row->symbol, "prctl")	   ? SCRY_CALL_IS_PRCTL
			 : !strcmp(row->symbol, "syscall") ? SCRY_CALL_IS_SYSCALL
							   : 0;

	if (!t->guards || !flags)
		return 0;
	return flags |
	       (row->request + t->guards >= t->hooks.request_count ? SCRY_CALL_IS_GUARD : 0);
}

/* What the stubs tell the agent. */
static int fill_cookies(struct trace *t, struct scry_hooks *h, struct debug *d)
{
	for (size_t i = 0; i < h->count; i++) {
		struct scry_hook *row = &h->rows[i];
		const struct traced *f;
		int n;

		if (row->to.kind != SCRY_HOOK_CALL || !row->way)
			continue;
		row->to.cookie = guard_of(t, row);
		if (row->to.cookie & SCRY_CALL_IS_GUARD)
			continue;
		n = number_of(t, d, row);
		if (n < 0)
			return n;
		f = &t->functions[n];
		row->to.cookie |= scry_call_cookie((uint32_t)n, f->args, f->has_plan) |
				  (row->spares_red_zone ? SCRY_SHADOW_RED_ZONE : 0);
	}
	return 0;
}

/* Libraries were loaded. An unwinder that cannot be hooked must not meet a followed call. */
static int renewed(struct scry_hooks *fresh, void *arg)
{
	struct trace *t = arg;
	int r = scry_shadow_refuse(fresh);

	if (r == -ENOTSUP) {
		bool has_unwinder = false;

		for (size_t i = 0; i < fresh->count; i++)
			has_unwinder |= fresh->rows[i].to.kind == SCRY_HOOK_REPLACE &&
					fresh->rows[i].way != SCRY_WAY_ENTRY;
		if (has_unwinder) {
			scry_shadow_pause(&t->watch->inj);
			t->watch->enough = "an unwinder was loaded that cannot be hooked";
			scry_watch_note(t->watch, "the watch ended before its time: %s",
					t->watch->enough);
			return r;
		}
		scry_error_clear(); /* none of them can be followed: they have no way now */
		r = 0;
	}
	if (r == 0)
		r = fill_cookies(t, fresh,
				 NULL); /* a thread waits: no time for debug information */
	if (r == 0)
		r = scry_call_plans_write(&t->plans, &t->watch->inj);
	return r ? r : scry_shadow_renew(&t->watch->inj, &t->hooks, fresh);
}

/* The unwinders come first: request 0. */
static int want_all(struct scry_hooks *h, void *arg)
{
	const struct scry_hook_to unwinder = {
		.kind = SCRY_HOOK_REPLACE, .way = SCRY_WAY_ENTRY, .handler = "scry_agent_find_fde"};
	const struct scry_hook_to to = {.kind = SCRY_HOOK_CALL, .handler = "scry_agent_timed"};
	static const char *const guards[] = {"prctl@*", "syscall@*"};
	struct trace *t = arg;
	const struct scry_calls_cli *cli = t->watch->opts->instrument_opts;
	int r = scry_shadow_check(h);

	h->waits = true;
	h->renewed = renewed;
	h->renewed_arg = t;
	if (r == 0)
		r = scry_hooks_want(h, UNWINDERS, &unwinder);
	for (int i = 0; i < cli->request_count && r == 0; i++)
		r = scry_hooks_want(h, cli->requests[i], &to);
	t->guards = 0;
	for (size_t i = 0; i < sizeof(guards) / sizeof(guards[0]) && cli->reads_unsure && r == 0;
	     i++) {
		r = scry_hooks_want(h, guards[i], &to);
		t->guards += r == 0;
	}
	return r;
}

static void forget_functions(struct trace *t)
{
	for (uint32_t i = 0; i < t->count; i++) {
		free(t->functions[i].symbol);
		free(t->functions[i].module);
	}
	t->count = 0;
	scry_call_plans_done(&t->plans);
	scry_calls_free(t->calls);
	t->calls = NULL;
	scry_protos_free(t->debug);
	t->debug = NULL;
}

static int plan_hooks(struct scry_watch *w, struct trace *t)
{
	struct debug debug = {.objects = &t->hooks.objects};
	int r = scry_loading_plan(w, &t->hooks, want_all, t);

	if (r == 0)
		r = scry_shadow_refuse(&t->hooks);
	if (r == 0)
		r = fill_cookies(t, &t->hooks, &debug);
	scry_debug_info_close(debug.info);
	return r;
}

/* Of those that are met by breakpoints. In the midst of loading there is no time for debug
 * information. */
static int number_met(struct scry_hooks *rows, bool is_loading, void *arg)
{
	struct trace *t = arg;
	struct debug debug = {.objects = &t->hooks.objects};
	int r = fill_cookies(t, rows, is_loading ? NULL : &debug);

	scry_debug_info_close(debug.info);
	return r;
}

static int plan_breaks(struct scry_watch *w, struct trace *t)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;
	const struct scry_calls_break_opts opts = {.watch = w,
						   .hooks = &t->hooks,
						   .calls = t->calls,
						   .string_size = (uint32_t)cli->string_size,
						   .requests = cli->requests,
						   .request_count = (size_t)cli->request_count,
						   .number = number_met,
						   .arg = t};
	int r = scry_calls_break_new(&opts, &t->breaks);

	return r == 0 ? scry_calls_break_plan(t->breaks) : r;
}

static int plan_all(struct scry_watch *w, struct trace *t)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;
	const struct scry_calls_opts opts = {.writer = w->writer,
					     .pid = (uint32_t)w->proc.pid,
					     .args = cli->args,
					     .stacks = t->stacks};
	int r;

	t->debug = scry_protos_new();
	r = t->debug ? scry_calls_new(&opts, &t->calls) : -ENOMEM;
	if (r == 0)
		r = cli->by_breakpoints ? plan_breaks(w, t) : plan_hooks(w, t);
	return r;
}

static int prepare(struct scry_watch *w)
{
	struct scry_calls_cli *cli = w->opts->instrument_opts;
	struct trace *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	w->state = t;
	t->watch = w;
	t->native = cli->depth ? scry_native_new(w->proc.pid) : NULL;
	t->stacks = t->native ? scry_native_stacks_new(t->native) : NULL;
	if (cli->depth && !t->stacks)
		return -ENOMEM;
	r = plan_all(w, t);
	if (r == 0 && t->is_unsure && !cli->reads_unsure) {
		cli->reads_unsure = true; /* the ways into seccomp are wanted too */
		scry_hooks_close(&t->hooks);
		forget_functions(t);
		r = plan_all(w, t);
	}
	w->near = r == 0 && t->hooks.count ? t->hooks.rows[0].address : t->hooks.objects.brk;
	return r;
}

/* Of those that the user asked for. */
static size_t first_request(const struct trace *t)
{
	return t->breaks ? 0 : 1; /* the unwinders' */
}

static void describe(struct scry_watch *w, FILE *out)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;
	const struct trace *t = w->state;

	for (size_t q = first_request(t); q < t->hooks.request_count && !cli->is_default; q++)
		if (!scry_loading_is_met(&t->hooks, q))
			fprintf(out, "  wait        for an object that defines %s\n",
				t->hooks.requests[q]);
	if (t->breaks) {
		scry_calls_break_describe(t->breaks, out);
		return;
	}
	scry_patch_describe(&t->hooks, out);
	fprintf(out, "  change      the return addresses of these functions, while they run\n");
}

static int start_recording(struct scry_watch *w, struct trace *t)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;
	int r = scry_threads_start(&w->inj, w->held, SCRY_CALL_TIME);

	if (r == 0)
		r = scry_tracks_new(w->inj.control, w->inj.ring, w->proc.pid, false, &t->tracks);
	if (r == 0)
		r = scry_shadow_start(&w->inj, w->held, &t->hooks, &t->stats);
	if (r == 0)
		r = scry_shadow_record(&w->inj, (uint32_t)cli->string_size);
	if (r == 0 && cli->depth)
		r = scry_unwind_start(&t->unwinding, &w->inj, w->held, (uint32_t)cli->depth);
	if (r == 0)
		r = scry_call_plans_write(&t->plans, &w->inj);
	if (r == 0)
		r = scry_threads_record(&w->inj, true);
	return r;
}

static int enter_hooks(struct scry_watch *w, struct trace *t)
{
	int r = start_recording(w, t), on;

	if (r < 0)
		return r;
	on = scry_hooks_on(&t->hooks, &w->inj, w->held);
	if (on < 0 && on != -EFAULT && on != -EBUSY)
		return on;
	r = scry_loading_follow(w, &t->hooks);
	if (r < 0 && on < 0)
		return r;
	if (r < 0)
		scry_watch_note(w, "libraries loaded later are not watched: %s", scry_error());
	scry_error_clear();
	return scry_shadow_follow(&w->inj);
}

static int enter(struct scry_watch *w)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;
	struct trace *t = w->state;
	bool is_held = w->held;
	int r;

	scry_calls_clock(t->calls, __rdtsc(), scry_now_ns());
	r = t->breaks ? scry_calls_break_enter(t->breaks) : enter_hooks(w, t);
	if (r == 0) {
		scry_patch_tell_refused(w, &t->hooks, "traced");
		if (!cli->is_default && !is_held)
			scry_loading_tell_waiting(w, &t->hooks, first_request(t));
	}
	return r;
}

/* Told once; also for those that did not go by a function of libc. */
static void look_for_seccomp(struct scry_watch *w, struct trace *t)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;

	if (t->is_forbidden || !cli->reads_unsure || !t->stats)
		return;
	if (!w->target_gone && scry_proc_refresh(&w->proc) == 0 && w->proc.seccomp)
		t->is_forbidden = scry_shadow_forbid_reads(&w->inj) == 0;
	scry_error_clear();
	t->is_forbidden |= t->stats->forbidden != 0;
	if (t->is_forbidden)
		scry_watch_note(w,
				"the program has put itself under seccomp: since then memory that "
				"functions are not known to read is not shown");
}

/* What may end a watch before its time: looked at twice, as what is new is hooked a moment later
 * than it is mapped. */
static void look_for_newcomers(struct scry_watch *w, struct trace *t)
{
	uint64_t now = scry_now_ns();
	const char *why;

	if (w->enough || w->target_gone || t->is_left || now < t->look_ns)
		return;
	t->look_ns = now + LOOK_NS;
	look_for_seccomp(w, t);
	why = scry_shadow_newcomer(&t->hooks);
	if (why && t->is_suspicious) {
		w->enough = why;
		scry_shadow_pause(&w->inj);
		scry_watch_note(w, "the watch ended before its time: %s", why);
	}
	t->is_suspicious = why != NULL;
}

/* Has what is to be shown grown beyond the limit of memory? Then nothing is taken until the front
 * has come after: threads that call wait, and what finds no room at last is counted. */
static bool is_ahead(const struct scry_watch *w, struct trace *t)
{
	struct stat st;

	if (!w->opts->is_live || w->opts->output || w->ended_ns || w->target_gone)
		return false;
	if (scry_now_ns() >= t->size_ns && fstat(w->session->rec_fd, &st) == 0) {
		t->size_ns = scry_now_ns() + SIZE_NS;
		t->is_ahead = (uint64_t)st.st_blocks * 512 > w->opts->memory;
	}
	return t->is_ahead;
}

static void turn(struct scry_watch *w)
{
	struct trace *t = w->state;

	if (t->breaks) {
		scry_calls_break_turn(t->breaks, is_ahead(w, t));
		return;
	}
	if (scry_loads_turn(&t->hooks, &w->inj) < 0 ||
	    scry_shadow_go_on(&w->inj, &t->hooks) < 0) /* gone: the keeper sees it by itself */
		scry_error_clear();
	look_for_newcomers(w, t);
}

static int tell_functions(struct scry_watch *w, struct trace *t)
{
	int r = 0;

	for (; t->told < t->count && r == 0; t->told++) {
		const struct traced *f = &t->functions[t->told];
		struct scry_hook row = {.symbol = f->symbol,
					.module = f->module,
					.address = f->address,
					.way = f->way};
		const struct scry_patch_names names = scry_patch_names(w, &row);
		struct scry_ev_function ev = {.function = t->told,
					      .pid = (uint32_t)w->proc.pid,
					      .symbol_str = names.symbol,
					      .module_str = names.module,
					      .way_str = names.way,
					      .address = f->address};

		scry_writer_string(w->writer, f->proto->text, strlen(f->proto->text),
				   &ev.prototype_str);
		r = scry_writer_payload(
			w->writer,
			&(struct scry_event){.time_ns = scry_now_ns(), .type = SCRY_EVENT_FUNCTION},
			&ev, sizeof(ev));
	}
	return r;
}

static int give(void *arg, const struct scry_track_run *run)
{
	return scry_calls_words(arg, run->tid, run->words, run->count);
}

/* What `turn` has met is whole and in order: it may be written up to now. */
static int drain_breaks(struct scry_watch *w, struct trace *t)
{
	uint64_t now = __rdtsc();
	int r, e;

	scry_calls_clock(t->calls, now, scry_now_ns());
	r = tell_functions(w, t);
	e = scry_calls_merge(t->calls, now);
	r = r ? r : e;
	return r < 0 ? r : FILL_MAX; /* `turn` waits, and nobody else shall */
}

static int drain(struct scry_watch *w)
{
	struct trace *t = w->state;
	struct scry_tracks_taken taken = {0};
	int r, e;

	if (t->breaks)
		return drain_breaks(w, t);
	if (!t->tracks || is_ahead(w, t))
		return 0;
	if (t->is_left || w->target_gone)
		scry_tracks_end(t->tracks);
	if (!w->target_gone)
		scry_unwind_turn(&t->unwinding);
	r = scry_tracks_take(t->tracks, give, t->calls, &taken);
	if (t->stacks && scry_native_stacks_is_new(t->stacks)) {
		scry_native_see(t->native);
		scry_native_stacks_look(t->stacks);
	}
	scry_calls_clock(t->calls, __rdtsc(), scry_now_ns());
	e = tell_functions(w, t);
	r = r ? r : e;
	e = scry_calls_merge(t->calls, taken.watermark);
	r = r ? r : e;
	return r < 0 ? r : taken.fill;
}

/* No new calls; those that wait for us go on; then returns lead home again. */
static void leave(struct scry_watch *w)
{
	struct trace *t = w->state;

	w->wake_fd = 0;
	if (t->breaks)
		scry_calls_break_leave(t->breaks);
	if (!t->tracks)
		return;
	scry_shadow_pause(&w->inj);
	for (int i = 0; i < LAST_TURNS; i++) {
		if (drain(w) < 100)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	scry_threads_record(&w->inj, false);
	scry_loads_end(&t->hooks, &w->inj);
	if (t->stats)
		scry_shadow_settle(&w->inj); /* not now: leaving tries again */
	scry_error_clear();
	t->is_left = true;
}

/* What was waited for in vain. -ENOTSUP: there was nothing else. */
static int tell_unmet(struct scry_watch *w, const struct scry_hooks *h, size_t first)
{
	const struct scry_calls_cli *cli = w->opts->instrument_opts;

	if (!cli->is_default)
		return scry_loading_tell_unmet(w, h, first, "traced");
	for (size_t q = first; q < h->request_count; q++)
		if (scry_loading_is_met(h, q))
			return 0;
	return scry_fail(-ENOTSUP,
			 "nothing was traced: process %d loaded none of the known client "
			 "libraries; fix: name functions, -x SYMBOL[@LIB]",
			 w->proc.pid);
}

/* The ways into seccomp do not count. */
static int tell_unmet_but_guards(struct scry_watch *w, struct trace *t)
{
	int r;

	t->hooks.request_count -= t->guards;
	r = tell_unmet(w, &t->hooks, first_request(t));
	t->hooks.request_count += t->guards;
	return r;
}

/* What the agent has lost. */
static void finish_hooks(struct scry_watch *w, struct trace *t)
{
	struct scry_tracks_stats tracks;
	char lacks[512];

	look_for_seccomp(w, t);
	scry_tracks_stats(t->tracks, &tracks);
	w->cost_ns = w->events * CALL_NS;
	w->errors += tracks.bad;
	scry_watch_lost(w, w->inj.control->lost,
			"entries and returns that found no room, or no keeper that took them");
	scry_watch_lost(w, w->inj.control->busy,
			"entries and returns in signal handlers that interrupted scry's own");
	scry_watch_lost(w, t->stats ? t->stats->missed : 0,
			"calls whose return could not be followed");
	if (tracks.waits)
		scry_watch_note(w, "threads waited %llu times until their calls were taken",
				(unsigned long long)tracks.waits);
	if (scry_unwind_lacks(&t->unwinding, lacks, sizeof(lacks)))
		scry_watch_note(w, "%s", lacks);
	scry_loading_tell(w, &t->hooks);
}

static int finish(struct scry_watch *w)
{
	struct trace *t = w->state;
	struct scry_calls_stats calls;
	int r;

	if (!t->tracks && !t->breaks)
		return 0;
	t->is_left = true;
	r = drain(w);
	scry_calls_stats(t->calls, &calls);
	w->events = calls.calls;
	w->errors += calls.bad + calls.strange;
	if (t->breaks) {
		w->cost_ns = w->events * BREAK_NS;
		scry_calls_break_tell(t->breaks);
	} else {
		finish_hooks(w, t);
	}
	return r < 0 ? r : tell_unmet_but_guards(w, t);
}

static void done(struct scry_watch *w)
{
	struct trace *t = w->state;

	if (!t)
		return;
	scry_tracks_free(t->tracks);
	scry_calls_break_free(t->breaks);
	scry_hooks_close(&t->hooks);
	scry_unwind_done(&t->unwinding);
	scry_native_stacks_free(t->stacks);
	scry_native_free(t->native);
	forget_functions(t);
	free(t->functions);
	free(t);
	w->state = NULL;
}

const struct scry_instrument scry_instrument_calls = {
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
};
