/*
 * What the agent's table says, as events: states that are over are in it; those that last when the
 * watch ends last until then; what was before the first event, the first look says.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/text.h"
#include "instrument/gvl/past.h"
#include "instrument/gvl/people.h"
#include "instrument/gvl/ractors.h"
#include "watch/ask.h"
#include "wire/payload.h"

_Static_assert(SCRY_GVL_ROOM == SCRY_GVL_THREADS - 1, "row 0 belongs to no thread");

#define NUMBERS (SCRY_GVL_ENDED_FROM + SCRY_GVL_GROUPS)
#define PAIRS_MAX (2 * SCRY_GVL_PAST_PAIRS)

struct report {
	struct scry_gvl *g;
	struct scry_gvl_table *t;	/* a copy */
	uint64_t since;			/* the watch began */
	uint64_t start, end;		/* of what is known, ticks */
	uint64_t prefix;		/* ticks from the start to the first event */
	uint64_t *lost;			/* ticks, by the holder's number; 0: no thread had it */
	struct scry_gvl_waited *waited; /* by number */
	struct scry_gvl_pairs pairs;
	uint64_t unpaired; /* ticks */
};

static uint64_t ns_of(const struct report *r, uint64_t ticks)
{
	return scry_ticks_by(&r->g->began, &r->g->ended, ticks);
}

/* What it did up to the first event. */
static enum scry_gvl_state first_state(const struct report *r, uint64_t th)
{
	const struct scry_gvl_snapshot *s = &r->g->first_look;

	if (!r->g->has_first_look)
		return SCRY_GVL_UNKNOWN;
	if (s->owner == th)
		return SCRY_GVL_HOLDS;
	for (size_t i = 0; i < s->count; i++)
		if (s->queue[i] == th)
			return SCRY_GVL_WANTS;
	return SCRY_GVL_OFF;
}

static void add(struct scry_gvl_row *row, uint32_t state, uint64_t ticks)
{
	if (state == SCRY_GVL_HOLDS)
		row->held += ticks;
	else if (state == SCRY_GVL_WANTS)
		row->wanted += ticks;
	else if (state == SCRY_GVL_GRANTED)
		row->granted += ticks;
}

/* The length that so many thousandths of the waits do not exceed: the middle of its step. */
static uint64_t quantile(const struct scry_gvl_row *row, uint64_t thousandths)
{
	uint64_t rank = (row->waits * thousandths + 999) / 1000, seen = 0, middle;

	for (uint32_t i = 0; i < SCRY_GVL_STEPS; i++) {
		seen += row->lengths[i];
		if (seen < rank || !seen)
			continue;
		middle = (scry_gvl_least(i) + scry_gvl_least(i + 1)) / 2;
		return middle < row->longest ? middle : row->longest;
	}
	return row->longest;
}

/*
 * The wait that was on at the first event: it began before, or with that event where the look
 * before it says so; then it is one as any.
 */
static void settle_old_wait(const struct report *r, struct scry_gvl_row *row,
			    struct scry_ev_gvl_thread *ev)
{
	const enum scry_gvl_state first = first_state(r, row->th);
	const bool is_waiting = row->state == SCRY_GVL_WANTS || row->state == SCRY_GVL_GRANTED,
		   is_older = r->g->since && (first == SCRY_GVL_WANTS || first == SCRY_GVL_UNKNOWN),
		   has_got_it = first == SCRY_GVL_WANTS && row->state != SCRY_GVL_UNKNOWN &&
				!(is_waiting && row->is_old);

	if (is_waiting && r->end > row->wait_began)
		ev->open_ns = ns_of(r, r->end - row->wait_began +
					       (row->is_old && is_older ? r->prefix : 0));
	else if (row->state == SCRY_GVL_UNKNOWN && first == SCRY_GVL_WANTS)
		ev->open_ns = ns_of(r, r->prefix);     /* there was no event */
	if (is_older && (row->old_wait || has_got_it)) /* with the first event: old_wait is 0 */
		ev->older_ns = ns_of(r, row->old_wait + r->prefix);
	if (!row->old_wait || is_older)
		return;
	row->waits++;
	row->lengths[scry_gvl_step(row->old_wait)]++;
	if (row->old_wait > row->longest)
		row->longest = row->old_wait;
}

/* Before the watch did. Of one that no look has found: it was there between two. */
static bool has_ended(const struct report *r, const struct scry_gvl_row *row)
{
	const struct scry_gvl_person *p = scry_gvl_person_of(r->g, row->th);

	return !(p && p->is_alive) && row->state <= SCRY_GVL_OFF;
}

/* What is reported of a row and of the sum of many alike. */
static void report_row(const struct report *r, const struct scry_gvl_row *row,
		       struct scry_ev_gvl_thread *ev)
{
	const struct scry_gvl_checked checked = scry_gvl_check_of(r->g, ev->thread);
	const uint32_t number = ev->thread;

	ev->looks = checked.looks;
	ev->contradicted = checked.contradicted;
	ev->thread = scry_gvl_number(r->g, number);
	ev->pid = (uint32_t)r->g->watch->proc.pid;
	ev->threads = row->threads + (r->g->are_turns ? 0 : (uint32_t)row->moves);
	ev->lost_ns = ns_of(r, r->lost[number]);
	ev->held_ns = ns_of(r, row->held);
	ev->wanted_ns = ns_of(r, row->wanted);
	ev->granted_ns = ns_of(r, row->granted);
	ev->takes = row->takes;
	ev->yields = row->yields;
	ev->taken_back = row->taken_back;
	ev->passes = row->passes;
	ev->forced = row->forced;
	ev->overtakes = row->overtakes;
	ev->runs = row->runs;
	ev->runs_ns = ns_of(r, row->run_ticks);
	ev->run_max_ns = ns_of(r, row->run_longest);
	ev->run_most = row->run_most;
	ev->waits = row->waits;
	ev->p50_ns = ns_of(r, quantile(row, 500));
	ev->p90_ns = ns_of(r, quantile(row, 900));
	ev->p99_ns = ns_of(r, quantile(row, 990));
	ev->max_ns = ns_of(r, row->longest);
	scry_watch_event(r->g->watch, SCRY_EVENT_GVL_THREAD, ev, sizeof(*ev));
	r->waited[number] = (struct scry_gvl_waited){
		.ns = ev->wanted_ns + ev->granted_ns,
		.open_ns = ev->open_ns,
		.older_ns = ev->older_ns				? ev->older_ns
			    : first_state(r, row->th) == SCRY_GVL_WANTS ? ns_of(r, r->prefix)
									: 0,
		.first_ns = ev->older_ns ? 0 : ns_of(r, row->old_wait),
		.brief_ns = ns_of(r, row->brief),
		.brief_waits = row->brief_waits,
		.number = number,
	};
}

static uint64_t known_of(const struct scry_gvl_row *row)
{
	return row->held + row->wanted + row->granted;
}

/* Plus 1; 0: not known. Of one thread, on a native thread of its own, that has not ended. */
static uint64_t cpu_of(const struct report *r, const struct scry_gvl_row *row,
		       const struct scry_gvl_person *p)
{
	if (!p || !p->is_alive || !p->has_cpu || r->g->are_turns || row->threads > 1 ||
	    row->moves || p->cpu_ended_ns < p->cpu_began_ns)
		return 0;
	return p->cpu_ended_ns - p->cpu_began_ns + 1;
}

/* `row` is a copy; its th may have no row of the table: nothing was seen of it. */
static void report_thread(const struct report *r, struct scry_gvl_row *row, uint32_t number)
{
	struct scry_watch *w = r->g->watch;
	const struct scry_gvl_person *p = scry_gvl_person_of(r->g, row->th);
	const bool was_there = p && p->was_there, has_row = row->state != SCRY_GVL_UNKNOWN;
	struct scry_ev_gvl_thread ev = {.thread = number, .has_ended = has_ended(r, row)};
	uint64_t start = was_there || !has_row ? r->start : row->first, end = r->end;

	settle_old_wait(r, row, &ev);
	if (was_there || !has_row)
		add(row, first_state(r, row->th), r->prefix);
	if (has_row && ev.has_ended)
		end = row->since;
	if (has_row && end > row->since)
		add(row, row->state, end - row->since);
	ev.tid = r->g->tids_are_ours && !r->g->are_turns ? row->tid : 0;
	if (p && p->tid && (!r->g->are_turns || p->tid == w->proc.pid))
		ev.tid = (uint32_t)p->tid;
	if (p && p->name[0] && (p->has_own_name || ev.tid == (uint32_t)p->tid))
		ev.name_str = scry_watch_string(w, p->name);
	ev.without_ns = end > start + known_of(row) ? ns_of(r, end - start - known_of(row)) : 0;
	ev.cpu_ns = cpu_of(r, row, p);
	if (ev.cpu_ns) {
		ev.ran_held_ns = p->ran.held_ns;
		ev.ran_else_ns = p->ran.else_ns;
	}
	ev.unknown_ns = was_there ? ns_of(r, r->start - r->since) : 0;
	report_row(r, row, &ev);
}

/* Threads that have ended, whose rows were given back. */
static void report_group(const struct report *r, const struct scry_gvl_group *group,
			 uint32_t number)
{
	const uint64_t known = known_of(&group->sum);
	struct scry_ev_gvl_thread ev = {.thread = number, .has_ended = 1};

	if (group->name[0] && (group->has_own_name || !r->g->are_turns))
		ev.name_str = scry_watch_string(r->g->watch, group->name);
	ev.without_ns = group->lived > known ? ns_of(r, group->lived - known) : 0;
	ev.unknown_ns = ns_of(r, group->unknown);
	report_row(r, &group->sum, &ev);
}

static void add_pair(struct report *r, uint32_t waiter, uint32_t holder,
		     const struct scry_gvl_pair *more)
{
	if (more->ticks && !scry_gvl_pairs_add(&r->pairs, waiter, holder, more))
		r->unpaired += more->ticks;
}

/* The table's, and those of before rows were given back. */
static void collect_pairs(struct report *r)
{
	const struct scry_gvl_past *p = r->g->past;
	const struct scry_gvl_pair *pairs = r->t->pairs[p ? p->asked & 1 : 0];
	struct scry_gvl_pair pair;
	size_t cursor = 0;

	r->unpaired = r->t->lost_pairs + (p ? p->lost_pairs : 0);
	while (p && scry_gvl_pairs_next(&p->pairs, &cursor, &pair))
		add_pair(r, scry_gvl_pair_waiter(&pair), scry_gvl_pair_holder(&pair), &pair);
	for (uint32_t i = 0; i < r->g->shape->pairs; i++)
		if (pairs[i].key)
			add_pair(r, scry_gvl_pair_waiter(&pairs[i]),
				 scry_gvl_pair_holder(&pairs[i]), &pairs[i]);
}

/* A thread's number, by its struct. */
static uint32_t number_of(const struct scry_gvl *g, const struct scry_gvl_table *t, uint64_t th)
{
	for (uint32_t i = 1; th && i < t->rows && i < SCRY_GVL_THREADS; i++)
		if (t->row[i].th == th)
			return i;
	for (size_t i = 0; th && i < g->count; i++)
		if (g->people[i].th == th)
			return SCRY_GVL_THREADS + (uint32_t)i;
	return 0;
}

/* Lost because of the thread that had the lock then. */
static void add_lost(struct report *r, uint32_t waiter, uint32_t holder,
		     const struct scry_gvl_pair *more)
{
	r->lost[holder] += more->ticks;
	add_pair(r, waiter, holder, more);
}

/* What the table's pairs lack: waits before the first event, and those that go on, from when the
 * lock went to the thread that has it. */
static void complete_pairs(struct report *r)
{
	const struct scry_gvl_snapshot *s = &r->g->first_look;
	struct scry_gvl_table *t = r->t;
	uint32_t owner = t->owner % SCRY_GVL_THREADS;
	uint32_t holder = owner && t->row[owner].state == SCRY_GVL_HOLDS ? owner : 0;

	for (size_t i = 0; i < s->count && r->prefix; i++)
		add_lost(r, number_of(r->g, t, s->queue[i]), number_of(r->g, t, s->owner),
			 &(struct scry_gvl_pair){.ticks = r->prefix}); /* that wait goes on */
	for (uint32_t i = 0; i < t->wanting && i < SCRY_GVL_THREADS; i++) {
		uint32_t waiter = t->waiting[i] % SCRY_GVL_THREADS;

		if (r->end > t->row[waiter].lost_since)
			add_lost(r, waiter, holder,
				 &(struct scry_gvl_pair){
					 .waits = 1, .ticks = r->end - t->row[waiter].lost_since});
	}
}

static void report_lock(const struct report *r)
{
	const struct scry_gvl *g = r->g;
	struct scry_gvl_table *t = r->t;
	uint64_t places[SCRY_GVL_PLACES] = {0}, contended = t->contended;
	uint64_t first = g->has_first_look ? g->first_look.count + (g->first_look.owner != 0) : 0;
	struct scry_ev_gvl ev = {.pid = (uint32_t)g->watch->proc.pid,
				 .can_take_back = g->ruby->layout.gvl.hands_over,
				 .ends = scry_gvl_events(t)};

	if (scry_gvl_events(t) && r->end > t->changed)
		t->by_runnable[t->runnable < SCRY_GVL_RUNNABLE ? t->runnable
							       : SCRY_GVL_RUNNABLE - 1] +=
			r->end - t->changed;
	t->by_runnable[first < SCRY_GVL_RUNNABLE ? first : SCRY_GVL_RUNNABLE - 1] += r->prefix;
	for (uint32_t i = 0; i < SCRY_GVL_RUNNABLE; i++)
		places[i < SCRY_GVL_PLACES ? i : SCRY_GVL_PLACES - 1] += t->by_runnable[i];
	if (t->wanting && r->end > t->wanted_since)
		contended += r->end - t->wanted_since;
	contended += g->has_first_look && g->first_look.count ? r->prefix : 0;
	ev.watched_ns = ns_of(r, r->end - r->since);
	ev.unknown_ns = ns_of(r, r->start - r->since);
	ev.contended_ns = ns_of(r, contended);
	ev.runnable0_ns = ns_of(r, places[0]);
	ev.runnable1_ns = ns_of(r, places[1]);
	ev.runnable2_ns = ns_of(r, places[2]);
	ev.runnable3_ns = ns_of(r, places[3]);
	ev.runnable4_ns = ns_of(r, places[4]);
	ev.runnable5_ns = ns_of(r, places[5]);
	ev.runnable6_ns = ns_of(r, places[6]);
	ev.runnable7_ns = ns_of(r, places[7]);
	ev.handing_ns = ns_of(r, r->lost[0]);
	ev.unpaired_ns = ns_of(r, r->unpaired);
	if (g->ractor == 1) /* its process's */
		ev.cpu_ns = g->cpu_ended_ns && g->cpu_ended_ns >= g->cpu_began_ns
				    ? g->cpu_ended_ns - g->cpu_began_ns
				    : UINT64_MAX;
	ev.stacks = g->has_stacks;
	ev.unstacked = t->unstacked;
	ev.unread = scry_gvl_waiters_unread(r->g);
	ev.ractors = g->unseen_ractors;
	ev.boot_ns = g->boot_ns;
	ev.ractor = g->ractor;
	ev.is_over = g->is_over;
	ev.crowded = t->crowded;
	ev.crowded_after_ns =
		t->crowded_since > r->since ? ns_of(r, t->crowded_since - r->since) : 0;
	scry_watch_event(g->watch, SCRY_EVENT_GVL, &ev, sizeof(ev));
}

/* Do native threads run several threads in turn? One look sees a thread's native thread only while
 * it runs; the agent saw whether the same one has run two. */
static bool have_taken_turns(const struct report *r)
{
	const struct scry_gvl_table *t = r->t;
	bool have = false;

	for (uint32_t i = 1; i < t->rows && i < SCRY_GVL_THREADS && !have; i++)
		for (uint32_t k = 1; k < i && t->row[i].th && t->row[i].tid && !have; k++)
			have = t->row[k].th && t->row[i].tid == t->row[k].tid;
	return have && r->g->ruby->layout.gvl.hands_over;
}

static void report_lacks(const struct report *r)
{
	const struct scry_gvl_table *t = r->t;
	struct scry_watch *w = r->g->watch;
	struct scry_gvl *first = scry_gvl_ractors_first(r->g);

	first->lacks.odd += t->strange + t->busy;
	first->lacks.crowded += t->crowded;
	first->lacks.is_cut |= t->over != 0;
	first->lacks.are_turns |= r->g->are_turns;
	if (r->g != first) /* which comes last */
		return;
	if (first->lacks.is_cut)
		scry_watch_lost_some(
			w, "what the lock did while scry had no processor, or was stopped");
	scry_watch_lost(w, first->lacks.crowded, "turns of threads that there was no room for");
	w->errors += first->lacks.odd;
	if (first->lacks.odd)
		scry_watch_note(w, "the VM's queue was not as learned at %llu moments",
				(unsigned long long)first->lacks.odd);
	if (first->lacks.are_turns)
		scry_watch_note(w, "native threads run several threads in turn here (M:N): their "
				   "tids and names say nothing, and are left out; threads "
				   "that the program has named have that name");
	scry_error_clear();
}

/* The run that is on lasts until then. */
static void complete_run(struct report *r)
{
	struct scry_gvl_table *t = r->t;
	struct scry_gvl_row *row = &t->row[t->run_row % SCRY_GVL_THREADS];
	const uint64_t ticks = r->end > t->run_began ? r->end - t->run_began : 0;

	if (!t->run_takes)
		return;
	row->runs++;
	row->run_ticks += ticks;
	row->run_longest = ticks > row->run_longest ? ticks : row->run_longest;
	row->run_most = t->run_takes > row->run_most ? t->run_takes : row->run_most;
}

static void set_times(struct report *r)
{
	const struct scry_gvl *g = r->g;
	const struct scry_gvl_table *t = r->t;

	r->end = (g->watch->target_gone || g->is_over) && scry_gvl_events(t) ? t->last
									     : g->ended.tsc;
	if (r->end < t->last)
		r->end = t->last;
	if (r->end < g->since)
		r->end = g->since;
	r->since = g->since ? g->since : scry_gvl_events(t) ? t->began : r->end;
	r->start = scry_gvl_events(t) ? t->began : r->end;
	if (r->start < r->since || r->start > r->end) /* a table that makes no sense */
		r->start = r->since;
	if (g->has_first_look && g->first_look.tsc < r->start) {
		r->prefix = r->start - g->first_look.tsc;
		r->start = g->first_look.tsc;
	}
}

/* Those that have a row, then those that were there and of which nothing was seen. */
static void report_threads(const struct report *r)
{
	const struct scry_gvl *g = r->g;

	for (uint32_t i = 1; i < r->t->rows && i < SCRY_GVL_THREADS; i++)
		if (r->t->row[i].th)
			report_thread(r, &r->t->row[i], i);
	for (size_t i = 0; i < g->count; i++) {
		struct scry_gvl_row row = {.th = g->people[i].th};
		const uint32_t number = number_of(g, r->t, row.th);

		if (number >= SCRY_GVL_THREADS && g->people[i].was_there)
			report_thread(r, &row, number);
	}
	for (uint32_t i = 0; g->past && i < g->past->count; i++)
		report_group(r, &g->past->groups[i], SCRY_GVL_ENDED_FROM + i);
}

static void report_pairs(const struct report *r)
{
	struct scry_ev_gvl_pair ev = {.pid = (uint32_t)r->g->watch->proc.pid};
	struct scry_gvl_pair pair;
	size_t cursor = 0;

	while (scry_gvl_pairs_next(&r->pairs, &cursor, &pair)) {
		ev.waiter = scry_gvl_number(r->g, scry_gvl_pair_waiter(&pair));
		ev.holder = scry_gvl_number(r->g, scry_gvl_pair_holder(&pair));
		ev.waits = pair.waits ? pair.waits : 1;
		ev.lost_ns = ns_of(r, pair.ticks);
		scry_watch_event(r->g->watch, SCRY_EVENT_GVL_PAIR, &ev, sizeof(ev));
	}
}

static void report_lines(const struct report *r)
{
	struct scry_gvl *g = r->g;

	if (!g->blame || !g->held || !g->waiters)
		return;
	scry_gvl_blame_settle(g, r->t, number_of(g, r->t, g->first_look.owner));
	scry_gvl_waiters_settle(g, r->t, number_of);
	for (uint32_t i = 1; i < NUMBERS; i++)
		if (r->lost[i])
			scry_gvl_blame_report(g, i, ns_of(r, r->lost[i]));
	for (uint32_t i = 1; i < NUMBERS; i++)
		if (r->waited[i].ns)
			scry_gvl_waiters_report(g, &r->waited[i]);
}

static void report_all(struct report *r)
{
	set_times(r);
	for (uint32_t i = 0; i < r->t->rows && i < SCRY_GVL_THREADS; i++)
		r->lost[i] = !i || r->t->row[i].th ? r->t->row[i].lost : 0;
	for (uint32_t i = 0; r->g->past && i < r->g->past->count; i++)
		r->lost[SCRY_GVL_ENDED_FROM + i] = r->g->past->groups[i].sum.lost;
	collect_pairs(r);
	complete_pairs(r);
	complete_run(r);
	r->g->are_turns |= have_taken_turns(r);
	report_lock(r);
	report_lacks(r);
	report_threads(r);
	report_pairs(r);
	report_lines(r);
}

/* A copy of the table in which no row is that was taken over, and none missing that was not. */
static int read_table(struct scry_gvl *g, struct scry_gvl_table *ret)
{
	int e = -EAGAIN;

	for (int i = 0; i < 2; i++) { /* what it was asked for, it gives back once */
		scry_gvl_past_take(g);
		e = scry_gvl_read(g, ret);
		if (e < 0 || !g->past || !g->past->wants || ret->given == g->past->asked)
			break;
	}
	return e;
}

int scry_gvl_report(struct scry_gvl *g)
{
	struct report r = {.g = g,
			   .t = calloc(1, sizeof(*r.t)),
			   .lost = calloc(NUMBERS, sizeof(*r.lost)),
			   .waited = calloc(NUMBERS, sizeof(*r.waited))};
	int e = r.t && r.lost && r.waited ? read_table(g, r.t) : -ENOMEM;

	scry_gvl_pairs_init(&r.pairs, PAIRS_MAX);
	if (e == 0)
		report_all(&r);
	scry_gvl_pairs_done(&r.pairs);
	free(r.lost);
	free(r.waited);
	free(r.t);
	return e;
}
