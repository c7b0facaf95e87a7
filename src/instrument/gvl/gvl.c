/*
 * `scry gvl -p PID | -- CMD`: hooks on the calls by which a Ruby VM lets its lock's mutex go
 * (agent/gvl.c), and on nothing else: its own slots of pthread_mutex_unlock and the two waits.
 *
 * The agent counts; nothing is streamed. What the keeper does meanwhile is to learn which threads
 * there are. In `-- CMD` the hooks pass until the VM is up and its layout holds.
 *
 * The state before the first event is read from outside, at a moment at which no thread is in the
 * VM's section, and no event came in between: then it is what the first event will find.
 */
#include "instrument/gvl/gvl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#include "base/err.h"
#include "base/text.h"
#include "hook/threads.h"
#include "instrument/functions.h"
#include "instrument/gvl/past.h"
#include "instrument/gvl/people.h"
#include "instrument/gvl/ractors.h"
#include "instrument/gvl/unseen.h"
#include "instrument/instruments.h"
#include "instrument/patch.h"
#include "sample/holders.h"
#include "vm/ruby_locks.h"
#include "watch/ask.h"
#include "watch/loading.h"

#define EVENT_NS 20   /* what it adds to the end of a critical section: bench/gvl.md */
#define STACK_NS 1000 /* a stack, to the end of a wait */
#define READS 1000
#define FIRST_TRIES 20
#define QUEUE_MAX 4096u

static const struct letting_go {
	const char *function, *handler;
} functions[] = {
	{"pthread_mutex_unlock", "scry_agent_gvl_unlock"},
	{"pthread_cond_wait", "scry_agent_gvl_wait"},
	{"pthread_cond_timedwait", "scry_agent_gvl_wait"},
	{"pthread_mutex_init", "scry_agent_gvl_made"}, /* for ractors: */
};
#define NEEDED 3 /* of them */

/* ---- what the target says ---- */

/* Only what is in use: of the rest no page was ever there, and reading makes one, of the target's
 * memory, and of its room in its control group. */
static void copy_used(const struct scry_gvl_table *table, struct scry_gvl_table *ret)
{
	uint32_t rows, at;

	memcpy(ret, table, offsetof(struct scry_gvl_table, pairs));
	rows = ret->rows < SCRY_GVL_THREADS ? ret->rows : SCRY_GVL_THREADS;
	at = ret->pairs_at & 1;
	memcpy(ret->row, table->row, rows * sizeof(*ret->row));
	if (ret->contended || ret->wanting) /* else there is no pair */
		memcpy(ret->pairs[at], table->pairs[at], sizeof(ret->pairs[at]));
}

/* As the first ractor's table, which has more room. */
static void copy_table(const struct scry_gvl *g, struct scry_gvl_table *ret)
{
	const struct scry_gvl_shape *s = g->shape;

	if (s == &scry_gvl_shape_first) {
		copy_used(g->table, ret);
		return;
	}
	memcpy(ret, g->table, offsetof(struct scry_gvl_table, ended));
	memcpy(ret->waiting, scry_gvl_waiting_at(s, g->table, 0), s->rows * sizeof(uint16_t));
	for (uint32_t i = 0; i < 2; i++)
		memcpy(ret->pairs[i], scry_gvl_pairs_at(s, g->table, i),
		       s->pairs * sizeof(struct scry_gvl_pair));
	memcpy(ret->row, scry_gvl_row_at(s, g->table, 0), s->rows * sizeof(struct scry_gvl_row));
}

int scry_gvl_read(const struct scry_gvl *g, struct scry_gvl_table *ret)
{
	const struct scry_gvl_table *table = g->table;

	for (int i = 0; i < READS; i++) {
		uint64_t before = __atomic_load_n(&table->sequence, __ATOMIC_ACQUIRE), after;

		if (!(before & 1)) {
			copy_table(g, ret);
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			after = __atomic_load_n(&table->sequence, __ATOMIC_RELAXED);
			if (after == before)
				return 0;
		}
		if (i > READS / 2)
			nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
	return scry_fail(-EAGAIN, "the counters of the GVL change faster than they can be read");
}

const char *scry_gvl_judge(const struct scry_gvl_table *t)
{
	uint64_t all = t->last - t->began, held = 0, runnable = t->last - t->changed;

	if (t->strange || t->busy || t->crowded)
		return "its queue held what it should not";
	if (t->last < t->began || t->changed > t->last || t->rows > SCRY_GVL_THREADS)
		return "its times do not go on";
	for (uint32_t i = 0; i < SCRY_GVL_RUNNABLE; i++)
		runnable += t->by_runnable[i];
	if (scry_gvl_events(t) && runnable != all)
		return "its times by number of threads are not the time that has passed";
	for (uint32_t i = 1; i < t->rows; i++) {
		const struct scry_gvl_row *r = &t->row[i];

		if (!r->th)
			continue;
		if (r->since < r->first || r->since > t->last ||
		    r->held + r->wanted + r->granted > r->since - r->first)
			return "a thread's times are more than the time that has passed";
		held += r->held;
	}
	return held > all ? "several threads had the lock at a time" : NULL;
}

static uint64_t word_at(const struct scry_gvl *g, uint64_t at)
{
	uint64_t word = 0;

	return scry_mem_u64(&g->ruby->mem, at, &word) == 0 ? word : 0;
}

int scry_gvl_read_words(const struct scry_gvl *g, struct scry_gvl_snapshot *ret)
{
	const struct scry_ruby_gvl *l = &g->ruby->layout.gvl;
	uint64_t head = g->lock + l->queue, back = head, node, after;
	uint32_t locked = 1;

	ret->count = 0;
	ret->owner = word_at(g, g->lock + l->owner);
	if (scry_mem_u32(&g->ruby->mem, g->lock + l->mutex, &locked) < 0 || locked)
		return -EAGAIN;
	for (node = word_at(g, head); node != head; node = word_at(g, node)) {
		if (!node || ret->count == QUEUE_MAX || word_at(g, node + 8) != back)
			return -EAGAIN;
		ret->queue[ret->count++] = node - l->node;
		back = node;
	}
	after = word_at(g, g->lock + l->owner);
	if (scry_mem_u32(&g->ruby->mem, g->lock + l->mutex, &locked) < 0 || locked)
		return -EAGAIN;
	return after == ret->owner ? 0 : -EAGAIN;
}

void scry_gvl_look_first(struct scry_gvl *g, int tries)
{
	struct scry_gvl_snapshot *s = &g->first_look;
	const uint64_t began = scry_now_ns();

	if (began < g->first_soon_ns)
		return;
	if (!s->queue)
		s->queue = calloc(QUEUE_MAX, sizeof(*s->queue));
	for (int i = 0; i < tries && s->queue && !g->has_first_look; i++) {
		if (__atomic_load_n(&g->table->sequence, __ATOMIC_ACQUIRE))
			return; /* there was an event: it says all */
		s->tsc = __rdtsc();
		g->has_first_look = scry_gvl_read_words(g, s) == 0 && !scry_gvl_ractors_bind(g) &&
				    !__atomic_load_n(&g->table->sequence, __ATOMIC_ACQUIRE);
	}
	g->first_soon_ns = scry_now_ns() + SCRY_GVL_LOOK_SHARE * (scry_now_ns() - began);
}

/* ---- planned ---- */

/* Slots of the object that is Ruby, and no other's. */
static int want(struct scry_hooks *h, void *arg)
{
	const struct scry_gvl *g = arg;
	const struct scry_object *program = NULL;
	const char *name = strrchr(g->ruby->module, '/');
	char request[640];
	int r = 0;

	for (size_t i = 0; i < h->objects.count && !program; i++)
		if (h->objects.objects[i].mapping &&
		    !strcmp(h->objects.objects[i].mapping->path, g->ruby->module))
			program = &h->objects.objects[i];
	name = name ? name + 1 : g->ruby->module;
	if (program == &h->objects.objects[0])
		name = "MAIN";
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]) && r == 0; i++) {
		const struct scry_hook_to to = {.kind = SCRY_HOOK_CALL,
						.way = SCRY_WAY_CALLS,
						.handler = functions[i].handler};

		snprintf(request, sizeof(request), "+%s@%s", functions[i].function, name);
		r = scry_hooks_want(h, request, &to);
	}
	return r;
}

static bool has_way(const struct scry_gvl *g, const struct letting_go *f)
{
	bool has = false;

	for (size_t k = 0; k < g->hooks.count; k++)
		has |= g->hooks.rows[k].way && !strcmp(g->hooks.rows[k].symbol, f->function);
	return has;
}

/* The first three, else nothing that is counted would be right. */
static int check_ways(const struct scry_gvl *g)
{
	for (size_t i = 0; i < NEEDED; i++) {
		if (!has_way(g, &functions[i]))
			return scry_fail(-ENOTSUP,
					 "process %d (%s): its VM's calls of %s cannot be hooked: "
					 "there is no slot that they go through; fix: scry undo -p "
					 "%d if a scry was killed while it watched them, else scry "
					 "stacks, which samples how much of the time threads wait "
					 "for the GVL",
					 g->watch->proc.pid, g->ruby->description,
					 functions[i].function, g->watch->proc.pid);
	}
	return 0;
}

int scry_gvl_prepare(struct scry_watch *w, struct scry_ruby *ruby)
{
	struct scry_gvl *g = calloc(1, sizeof(*g));
	int r;

	if (!g) {
		scry_ruby_free(ruby);
		return -ENOMEM;
	}
	w->state = g;
	g->watch = w;
	g->hooks.mem.fd = -1;
	g->ruby = ruby;
	g->is_booting = w->held != NULL;
	g->ractor = 1;
	g->shape = &scry_gvl_shape_first;
	scry_map_init(&g->by_th, SCRY_GVL_THREADS);
	w->runtime = ruby->description;
	r = scry_loading_plan(w, &g->hooks, want, g);
	if (r == 0)
		r = check_ways(g);
	if (r == 0)
		w->near = g->hooks.rows[0].address;
	if (r == 0 && w->writer && has_way(g, &functions[NEEDED]))
		g->others = scry_gvl_ractors_new();
	return r;
}

static int prepare(struct scry_watch *w)
{
	struct scry_ruby *ruby;
	int r = scry_ruby_open(w->proc.pid, w->held ? SCRY_RUBY_STARTS : SCRY_RUBY_BOOTED, &ruby);

	if (r < 0)
		return r;
	r = scry_gvl_infer(ruby, &w->proc);
	if (r < 0) {
		scry_ruby_free(ruby);
		return r;
	}
	scry_holders_load(ruby); /* while its threads are not held; what fails, fails again */
	scry_error_clear();
	return scry_gvl_prepare(w, ruby);
}

static void describe(struct scry_watch *w, FILE *out)
{
	const struct scry_gvl_opts *opts = w->opts->instrument_opts;
	const struct scry_gvl *g = w->state;

	scry_patch_describe(&g->hooks, out);
	if (opts && opts->stacks)
		fprintf(out, "  cost        about 1 us more for each wait, for its stack\n");
}

/* ---- on ---- */

/* What the agent needs to distinguish Thread.pass from a switch that the VM forces. */
static void fill_pass(const struct scry_gvl *g, struct scry_gvl_plan *plan)
{
	const struct scry_ruby_layout *l = &g->ruby->layout;

	if (!l->gvl.pass || !l->frame_me)
		return;
	plan->ec = l->th_ec;
	plan->cfp = l->ec_cfp;
	plan->frame_iseq = l->frame_iseq;
	plan->frame_ep = l->frame_ep;
	plan->frame_me = l->frame_me;
	plan->me_def = l->me_def;
	plan->def_func = l->gvl.def_func;
	plan->me_flags = l->me_flags;
	plan->me_mask = l->iseq_flags_mask;
	plan->pass = g->ruby->bias + l->gvl.pass;
}

/* In ticks; waits for some milliseconds, until the rate is known well enough. */
static uint64_t threshold_of(const struct scry_gvl *g)
{
	const struct scry_gvl_opts *opts = g->watch->opts->instrument_opts;
	const uint64_t ns = opts ? opts->threshold_ns : 0;
	const struct timespec pause = {.tv_nsec = SCRY_TICKS_LEAST_NS};
	struct scry_ticks ticks = {0};
	struct scry_ticks_pair now = scry_ticks_look();
	uint64_t end = 0;

	while (ns && !(end = scry_ticks_after(&ticks, &now, ns))) {
		nanosleep(&pause, NULL);
		now = scry_ticks_look();
	}
	return ns ? end - now.tsc : 0;
}

static void fill_stacks(const struct scry_gvl *g, struct scry_gvl_plan *plan)
{
	const struct scry_ruby_layout *l = &g->ruby->layout;

	plan->ec = l->th_ec;
	plan->cfp = l->ec_cfp;
	plan->ec_stack = l->ec_stack;
	plan->ec_stack_size = l->ec_stack_size;
	plan->frame_ep = l->frame_ep;
	plan->frame_size = l->frame_size;
	plan->stacks = 1;
	plan->threshold = threshold_of(g);
}

/* A thread of another ractor has another lock. */
static int find_lock(struct scry_gvl *g)
{
	const struct scry_ruby_layout *l = &g->ruby->layout;
	const struct scry_gvl_plan plan = {.mutex = 0};
	struct scry_gvl_plan filled = plan;
	const uint64_t at = scry_inject_symbol(g->watch->inj, "scry_agent_gvl");
	struct scry_ruby_thread *threads;
	struct scry_ticks_pair began;
	ssize_t n = scry_ruby_threads(g->ruby, &threads);
	uint64_t mutex;
	int r;

	if (n <= 0)
		return n < 0 ? (int)n : -EAGAIN;
	g->lock = threads[0].ractor;
	free(threads);
	mutex = g->lock + l->gvl.mutex;
	filled.owner = g->lock + l->gvl.owner;
	filled.state_page = g->watch->inj->state_page;
	filled.queue = g->lock + l->gvl.queue;
	filled.node = l->gvl.node;
	filled.self = l->th_self;
	filled.hands_over = l->gvl.hands_over;
	filled.nt = l->th_nt;
	filled.tid = l->th_tid;
	filled.watch = __rdtsc();
	if (g->others && l->vm_ractors != SCRY_RUBY_NONE) {
		filled.ractor = l->th_ractor;
		filled.mutex_at = l->gvl.mutex;
	}
	fill_pass(g, &filled);
	if (g->has_stacks)
		fill_stacks(g, &filled);
	if (filled.hands_over && (l->th_tid == SCRY_RUBY_NONE || l->th_nt == SCRY_RUBY_NONE))
		return scry_fail(-ENOTSUP,
				 "process %d (%s): its threads do not say which native thread runs "
				 "them",
				 g->watch->proc.pid, g->ruby->description);
	r = scry_edit_poke(g->watch->inj->mem.fd, at, &filled, sizeof(filled));
	began = scry_ticks_look();
	if (r == 0) /* from here on it counts */
		r = scry_edit_poke(g->watch->inj->mem.fd, at, &mutex, sizeof(mutex));
	if (r == 0)
		g->began = began;
	return r < 0 ? scry_fail(r, "cannot write into process %d", g->watch->proc.pid) : 0;
}

static void begin_blame(struct scry_gvl *g)
{
	g->blame = scry_gvl_blame_new(g->ruby);
	g->held = g->blame ? scry_gvl_held_new() : NULL;
	g->waiters = g->held ? scry_gvl_waiters_new() : NULL;
	if (!g->waiters) {
		scry_gvl_blame_free(g->blame);
		g->blame = NULL;
	}
	if (g->blame)
		scry_gvl_blame_clock(g,
				     word_at(g, g->watch->inj->state_page +
							offsetof(struct scry_state_page, table)));
	g->past = scry_gvl_past_new();
	g->check = scry_gvl_check_new();
	g->watch->wake_fd = g->blame ? scry_gvl_blame_fd(g->blame) : 0;
}

static bool knows_tids_as_we_do(const struct scry_gvl *g)
{
	const pid_t pid = g->watch->proc.pid;

	return scry_proc_tid_inside(pid, pid) == pid;
}

static int begin(struct scry_gvl *g)
{
	int r = find_lock(g);

	if (r < 0)
		return r;
	g->since = g->began.tsc;
	g->is_bound = true;
	g->tids_are_ours = knows_tids_as_we_do(g);
	if (g->watch->writer) /* not in a rehearsal */
		begin_blame(g);
	if (g->watch->writer && !g->watch->opts->follow && !g->unseen)
		g->unseen = scry_gvl_unseen_new(g->watch);
	scry_gvl_look_first(g, FIRST_TRIES);
	g->cpu_began_ns = scry_proc_cpu_ns(g->watch->proc.pid);
	scry_gvl_ractors_begin(g);
	for (size_t i = 0; i < g->count; i++)
		g->people[i].was_there = g->people[i].is_alive;
	scry_gvl_look_at_processors(g, false);
	return 0;
}

/* No call is that of the VM's lock: the hooks pass. */
static int disarm(struct scry_watch *w)
{
	const uint64_t none = 0;

	return scry_edit_poke(w->inj->mem.fd, scry_inject_symbol(w->inj, "scry_agent_gvl"), &none,
			      sizeof(none));
}

static int enter(struct scry_watch *w)
{
	const struct scry_gvl_opts *opts = w->opts->instrument_opts;
	struct scry_gvl *g = w->state;
	int r = disarm(w); /* a fork child's hooks may be those of a watch that is over */

	g->table = (struct scry_gvl_table *)w->channel.ring;
	memset(g->table, 0, sizeof(*g->table));
	g->has_stacks = opts && opts->stacks;
	if (r == 0)
		r = scry_threads_start_table(w->inj, &w->channel, w->held);
	if (r == 0 && w->pool.head)
		r = scry_pool_announce(&w->pool, w->inj, &(struct scry_agent_frames){0});
	if (r == 0)
		r = scry_gvl_ractors_announce(g);
	if (r == 0)
		r = scry_hooks_on(&g->hooks, w->inj, w->held);
	if (r == 0 && g->is_booting && w->writer)
		g->unseen = scry_gvl_unseen_new(w);
	if (r == 0 && !g->is_booting)
		r = begin(g);
	if (r == 0 && scry_watch_is_late(w))
		scry_watch_came_late(w);
	return r;
}

/* A fork child's lock is where its parent's was, and counts in the child buffer, which is used to
 * its end: by its head all of it is made zero again. */
static int adopt(struct scry_watch *w)
{
	const struct scry_gvl *root = w->root->state;
	struct scry_gvl *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	w->state = g;
	g->watch = w;
	g->hooks.mem.fd = -1;
	w->channel.control->head = SCRY_RING_WORDS;
	g->table = (struct scry_gvl_table *)w->channel.ring;
	g->lock = root->lock;
	g->ractor = 1;
	g->shape = &scry_gvl_shape_first;
	g->others = root->others ? scry_gvl_ractors_new() : NULL;
	g->has_stacks = root->has_stacks;
	g->began = root->began;
	scry_map_init(&g->by_th, SCRY_GVL_THREADS);
	w->runtime = w->root->runtime;
	return scry_ruby_like(root->ruby, &g->ruby);
}

static void identified(struct scry_watch *w)
{
	struct scry_gvl *g = w->state;

	g->is_bound = scry_ruby_bind(g->ruby, w->proc.pid) == 0;
	g->tids_are_ours = knows_tids_as_we_do(g);
	g->cpu_began_ns = 0; /* it was forked with none */
	if (g->is_bound) {
		begin_blame(g);
		scry_gvl_ractors_begin(g);
	}
	scry_error_clear();
}

/* Of processes without rows of their own: more than 256, or gone before it was known who they are.
 */
static int merge(struct scry_watch *into, struct scry_watch *w)
{
	const struct scry_gvl *g = w->state;

	if (!into->events)
		scry_watch_lost_some(into,
				     "what the locks of short processes did, or of more than 256");
	into->events += g->table ? scry_gvl_events(g->table) : 0;
	for (uint32_t i = 0; g->table && i < SCRY_GVL_OTHERS; i++)
		into->events += scry_gvl_events(scry_gvl_other_at(g->table, i));
	return 0;
}

/* The VM of a program that was started is up, and is what was learned. */
static void judge_boot(struct scry_gvl *g)
{
	struct scry_watch *w = g->watch;
	int r = scry_ruby_validate(g->ruby);

	if (r == -EAGAIN || r == -ESRCH) {
		scry_error_clear();
		return;
	}
	g->is_booting = false;
	if (r == 0 && g->unseen && w->opts->follow)
		scry_gvl_unseen_end_early(g->unseen);
	if (r == 0)
		r = begin(g);
	if (r == 0)
		g->boot_ns = scry_now_ns() - w->began_ns;
	if (r == 0)
		scry_watch_detail(w, "process %d: its VM is up, the GVL is counted", w->proc.pid);
	if (r == -EAGAIN || r == -ESRCH) {
		g->is_booting = true;
		scry_error_clear();
	} else if (r < 0) {
		scry_watch_note(w, "nothing was counted: %s", scry_error());
		w->errors++;
		w->enough = "its layout did not hold";
		scry_error_clear();
	}
}

static void turn(struct scry_watch *w)
{
	struct scry_gvl *g = w->state;

	if (w->target_gone || !g->table || (!g->is_bound && !g->is_booting))
		return;
	if (!g->ended.tsc)
		scry_gvl_ractors_turn(g);
	if (g->blame && !g->ended.tsc)
		scry_gvl_blame_look(g);
	if (g->unseen)
		scry_gvl_unseen_turn(g->unseen);
	if (g->is_booting)
		judge_boot(g);
	else if (scry_gvl_is_look_due(g)) {
		scry_gvl_look_at_people(g);
		scry_gvl_past_turn(g);
		scry_gvl_ractors_look(g);
	}
}

static int drain(struct scry_watch *w)
{
	(void)w;
	return 0;
}

/*
 * The end, before the hooks are off: from here on they pass. Processor times are read before it, as
 * they were read after the beginning: a thread is not to have run for longer than it was watched.
 */
static void end(struct scry_gvl *g)
{
	const bool is_there = !g->watch->target_gone && g->is_bound;

	if (g->ended.tsc || !g->began.tsc)
		return;
	scry_holders_take();
	if (is_there && g->has_stacks && g->waiters)
		scry_gvl_waiters_look_last(g);
	if (is_there)
		scry_gvl_look_at_people(g);
	if (is_there)
		scry_gvl_look_at_processors(g, true);
	if (is_there)
		scry_gvl_ractors_end(g);
	g->cpu_ended_ns = scry_proc_cpu_ns(g->watch->proc.pid);
	g->ended = scry_ticks_look();
	if (is_there)
		disarm(g->watch);
}

/* All processes are watched to the same moment: one after the other is left afterwards, and till
 * then nobody keeps the lease. */
static void conclude(struct scry_watch *w)
{
	struct scry_gvl *g = w->state;

	if (g->table)
		end(g);
}

static void leave(struct scry_watch *w)
{
	struct scry_gvl *g = w->state;

	w->wake_fd = 0;
	if (!g->table)
		return;
	end(g);
	disarm(w);
}

uint64_t scry_gvl_waits(const struct scry_gvl *g)
{
	uint64_t waits = 0;

	for (uint32_t i = 1; g->has_stacks && i < g->shape->rows; i++) {
		const struct scry_gvl_row *r = scry_gvl_row_at(g->shape, g->table, i);

		waits += r->th ? r->waits - r->brief_waits : 0;
	}
	for (uint32_t i = 0; g->has_stacks && g->past && i < g->past->count; i++)
		waits += g->past->groups[i].sum.waits - g->past->groups[i].sum.brief_waits;
	return waits;
}

static int finish(struct scry_watch *w)
{
	struct scry_gvl *g = w->state;
	uint64_t waits = 0;
	int r = 0;

	if (!g || !g->table) /* processes that were summed */
		return 0;
	if (g->is_booting)
		scry_watch_note(w, "nothing was counted: the program ended, or the watch did, "
				   "before its VM was up");
	end(g);
	if (g->unseen)
		scry_gvl_unseen_note(g->unseen, w);
	w->events = scry_gvl_events(g->table);
	if (g->began.tsc)
		r = scry_gvl_ractors_report(g, &waits);
	if (r == 0 && g->began.tsc)
		r = scry_gvl_report(g);
	w->cost_ns = w->events * EVENT_NS + (waits + scry_gvl_waits(g)) * STACK_NS;
	return r;
}

static void done(struct scry_watch *w)
{
	struct scry_gvl *g = w->state;

	if (g) {
		scry_hooks_close(&g->hooks);
		scry_ruby_free(g->ruby);
		scry_holders_remove(g);
		scry_gvl_ractors_free(g->others);
		scry_gvl_blame_free(g->blame);
		scry_gvl_unseen_free(g->unseen);
		scry_gvl_check_free(g->check);
		scry_gvl_lock_done(g);
	}
	free(g);
	w->state = NULL;
}

static bool wants(pid_t pid, const struct scry_maps *maps)
{
	size_t entry;

	return scry_ruby_find(pid, maps, &entry) == 0;
}

const struct scry_instrument scry_instrument_gvl = {
	.name = "gvl",
	.summary = "which threads hold a Ruby's VM lock, and which wait for it",
	.wants = wants,
	.wanted = "Ruby",
	.unseen = "the program ended and no Ruby was seen in it; fix: name ruby itself, or -f "
		  "where a "
		  "child process is one",
	.parts = SCRY_PART_GVL,
	.has_table = true,
	.prepare = prepare,
	.describe = describe,
	.enter = enter,
	.adopt = adopt,
	.identified = identified,
	.merge = merge,
	.turn = turn,
	.drain = drain,
	.conclude = conclude,
	.leave = leave,
	.finish = finish,
	.done = done,
};
