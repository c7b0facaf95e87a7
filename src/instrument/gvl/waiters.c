/*
 * Where threads stood while they waited for the lock: at each look in which a thread waits, the
 * stack of each that does. A thread that waits does not run, so it is read once for a wait.
 *
 * How long a thread waited is counted exactly by the agent; that is shared out among its looks.
 * What more than a few that have just begun to wait would cost is left out: these looks have no
 * stack.
 *
 * With stacks the agent says of each wait that is over how long it was, and where its thread stood:
 * then looks are only of threads that wait still at the end.
 */
#include <stdlib.h>
#include <string.h>

#include "base/vector.h"
#include "instrument/gvl/gvl.h"
#include "instrument/gvl/past.h"
#include "instrument/gvl/ractors.h"
#include "vm/ruby_walk.h"
#include "watch/ask.h"
#include "wire/gvl_wait.h"
#include "wire/payload.h"

#define WALKS_MAX 8u /* of one look */
#define ROWS_MAX 100000u
#define BEFORE (1ull << 63) /* the first event: threads have no rows yet */
#define ROUNDING_NS 1000u   /* what sums of many waits may differ by */

struct waiter {
	uint64_t who;	     /* as past.h names threads, or BEFORE | its struct */
	uint64_t wait_began; /* of the wait that `stack` is of */
	uint32_t number;     /* in events, once it is settled */
	uint32_t stack;
	uint32_t old_stack; /* of the wait that was on at the first event */
};

struct row {
	uint32_t waiter, stack;	  /* waiter: its place; stack: a frame's number, 0: not read */
	uint64_t samples, weight; /* of looks, ns; with stacks: waits, ticks */
	uint64_t longest;	  /* ticks */
};

struct scry_gvl_waiters {
	struct scry_map by_who; /* -> place + 1 */
	struct scry_map keys;	/* waiter << 32 | stack -> row + 1 */
	struct waiter *waiters;
	struct row *rows;
	size_t count, room, row_count, row_room;
	uint32_t walks;	 /* of this look */
	uint64_t tail;	 /* of the ring, words */
	uint64_t unread; /* waits whose stack was too deep to be taken, or could not be read */
	bool is_over;	 /* what the ring has is not a record */
	uint64_t record[SCRY_GVL_WAIT_WORDS + 2 * SCRY_GVL_STACK_BYTES / 8];
};

struct scry_gvl_waiters *scry_gvl_waiters_new(void)
{
	struct scry_gvl_waiters *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	scry_map_init(&s->by_who, ROWS_MAX);
	scry_map_init(&s->keys, ROWS_MAX);
	return s;
}

void scry_gvl_waiters_free(struct scry_gvl_waiters *s)
{
	if (!s)
		return;
	scry_map_done(&s->by_who);
	scry_map_done(&s->keys);
	free(s->waiters);
	free(s->rows);
	free(s);
}

static struct waiter *waiter_of(struct scry_gvl_waiters *s, uint64_t who)
{
	uint64_t *at = scry_map_ref(&s->by_who, who);

	if (!at || (!*at && scry_vector_reserve(&s->waiters, s->count, &s->room)))
		return NULL;
	if (!*at) {
		s->waiters[s->count++] = (struct waiter){.who = who};
		*at = s->count;
	}
	return &s->waiters[*at - 1];
}

static void add(struct scry_gvl_waiters *s, const struct waiter *w, const struct row *more)
{
	const uint32_t place = (uint32_t)(w - s->waiters);
	uint64_t *at = scry_map_ref(&s->keys, (uint64_t)place << 32 | more->stack);
	struct row *row;

	if (!at || (!*at && scry_vector_reserve(&s->rows, s->row_count, &s->row_room)))
		return; /* its share goes to the others of this thread; with stacks, to none */
	if (!*at) {
		s->rows[s->row_count++] = (struct row){.waiter = place, .stack = more->stack};
		*at = s->row_count;
	}
	row = &s->rows[*at - 1];
	row->samples += more->samples;
	row->weight += more->weight;
	row->longest = more->longest > row->longest ? more->longest : row->longest;
}

/* One sample or wait. */
static void add_one(struct scry_gvl_waiters *s, const struct waiter *w, uint32_t stack,
		    uint64_t weight)
{
	add(s, w, &(struct row){.stack = stack, .samples = 1, .weight = weight, .longest = weight});
}

/* ---- looks ---- */

static bool is_waiting(const volatile struct scry_gvl_row *r)
{
	return r->state == SCRY_GVL_WANTS || r->state == SCRY_GVL_GRANTED;
}

/* The wait that is on in its row; NULL: there was no event yet. NULL: there is no memory. */
static struct waiter *look_at(struct scry_gvl *g, uint64_t th,
			      const volatile struct scry_gvl_row *r)
{
	const uint64_t wait_began = r ? r->wait_began : 1;
	struct scry_gvl_waiters *s = g->waiters;
	struct waiter *w =
		waiter_of(s, r ? SCRY_GVL_WHO(r - scry_gvl_row_at(g->shape, g->table, 0), r->uses)
			       : BEFORE | th);

	if (!w)
		return NULL;
	if (w->wait_began != wait_began || !w->stack) {
		w->wait_began = wait_began;
		w->stack = s->walks++ < WALKS_MAX ? scry_gvl_blame_walk(g, th) : 0;
		if (r && (!is_waiting(r) || r->wait_began != wait_began)) /* it may be of later */
			w->stack = 0;
	}
	if (!r && w->stack)
		w->old_stack = w->stack;
	return w;
}

/* `gap_ns` 0: no samples. */
static void look_at_all(struct scry_gvl *g, uint64_t gap_ns)
{
	const volatile struct scry_gvl_table *t = g->table;
	const struct scry_gvl_snapshot *first = &g->first_look;
	const uint32_t wanting = t->wanting;

	struct waiter *w;

	g->waiters->walks = 0;
	for (size_t i = 0; !t->sequence && g->has_first_look && i < first->count; i++)
		if ((w = look_at(g, first->queue[i], NULL)) && gap_ns)
			add_one(g->waiters, w, w->stack, gap_ns);
	for (uint32_t i = 0; i < wanting && i < g->shape->rows; i++) {
		const volatile uint16_t *at = scry_gvl_waiting_at(g->shape, g->table, i);
		const uint32_t row = *at & (g->shape->rows - 1);
		const volatile struct scry_gvl_row *r = scry_gvl_row_at(g->shape, g->table, row);

		if (row && r->th && is_waiting(r) && (w = look_at(g, r->th, r)) && gap_ns)
			add_one(g->waiters, w, w->stack, gap_ns);
	}
}

/* ---- what the agent says ---- */

/* A wait with its stack; false: it makes no sense. */
static bool take(struct scry_gvl *g, uint64_t words)
{
	struct scry_gvl_waiters *s = g->waiters;
	const struct scry_gvl_wait *wait = (const void *)s->record;
	const uint64_t frames = wait->end - wait->cfp, values = wait->top - wait->bottom;
	struct scry_walk_copy copy = {
		.ec = wait->ec,
		.stack = wait->stack,
		.end = wait->end,
		.cfp = wait->cfp,
		.bottom = wait->bottom,
		.top = wait->top,
		.frames = s->record + SCRY_GVL_WAIT_WORDS,
		.frames_size = frames,
	};
	const bool has_stack = words > SCRY_GVL_WAIT_WORDS;
	uint32_t stack = 0;
	struct waiter *w;

	if (has_stack &&
	    (frames > SCRY_GVL_STACK_BYTES || values > SCRY_GVL_STACK_BYTES || frames % 8 ||
	     values % 8 || (frames + values) / 8 != words - SCRY_GVL_WAIT_WORDS))
		return false;
	copy.values = s->record + SCRY_GVL_WAIT_WORDS + (has_stack ? frames / 8 : 0);
	if (has_stack)
		stack = scry_gvl_blame_take(g, &copy);
	else if (!wait->cfp)
		stack = scry_gvl_blame_no_frames(g);
	s->unread += !stack;
	w = waiter_of(s, wait->who);
	if (w && wait->is_old) /* whether it is a wait of the watch its row says at the end */
		w->old_stack = stack;
	else if (w)
		add_one(s, w, stack, wait->ticks);
	return true;
}

/* All that is there. What is not a record ends it: nothing more is read. */
static void take_all(struct scry_gvl *g)
{
	struct scry_gvl_table *t = g->table;
	struct scry_gvl_waiters *s = g->waiters;
	const volatile uint64_t *ring = scry_gvl_ractors_ring(g); /* one look each */
	const uint64_t room = g->shape->ring;
	const uint64_t head = __atomic_load_n(&t->ring_head, __ATOMIC_ACQUIRE);

	while (s->tail != head && !s->is_over) {
		const uint64_t words = ring[s->tail % room];

		s->is_over = head - s->tail > room || words < SCRY_GVL_WAIT_WORDS ||
			     words > head - s->tail || words > sizeof(s->record) / 8;
		for (uint64_t i = 0; i < words && !s->is_over; i++)
			s->record[i] = ring[(s->tail + i) % room];
		if (s->is_over || !take(g, words)) {
			s->is_over = true;
			g->watch->errors++;
			break;
		}
		s->tail += words;
		__atomic_store_n(&t->ring_tail, s->tail, __ATOMIC_RELEASE);
	}
}

void scry_gvl_waiters_regroup(struct scry_gvl *g)
{
	struct scry_gvl_waiters *s = g->waiters, before;

	if (g->has_stacks)
		take_all(g); /* of threads whose rows were given back */
	before = *s;
	s->waiters = NULL;
	s->rows = NULL;
	s->count = s->room = s->row_count = s->row_room = 0;
	scry_map_init(&s->by_who, ROWS_MAX);
	scry_map_init(&s->keys, ROWS_MAX);
	for (size_t i = 0; i < before.count; i++) {
		const uint64_t was = before.waiters[i].who;
		const uint64_t who = was & BEFORE ? was : scry_gvl_past_who(g->past, (uint32_t)was);
		struct waiter *w = waiter_of(s, who);

		if (w && who == was)
			*w = before.waiters[i];
		before.waiters[i].who = who;
	}
	for (size_t i = 0; i < before.row_count; i++) {
		const struct row *row = &before.rows[i];
		const struct waiter *w = waiter_of(s, before.waiters[row->waiter].who);

		if (w)
			add(s, w, row);
	}
	scry_map_done(&before.by_who);
	scry_map_done(&before.keys);
	free(before.waiters);
	free(before.rows);
}

void scry_gvl_waiters_look(struct scry_gvl *g, uint64_t gap_ns)
{
	if (g->has_stacks)
		take_all(g);
	if (!g->has_stacks || !g->table->sequence) /* a thread that waits before the first event may
						      be given the lock by that */
		look_at_all(g, g->has_stacks ? 0 : gap_ns);
}

void scry_gvl_waiters_look_last(struct scry_gvl *g)
{
	take_all(g);
	look_at_all(g, 0);
}

/* ---- the report ---- */

uint64_t scry_gvl_waiters_unread(struct scry_gvl *g)
{
	if (!g->waiters || !g->has_stacks)
		return 0;
	take_all(g); /* what came as the hooks went off, or as the program ended */
	return g->waiters->unread;
}

void scry_gvl_waiters_settle(struct scry_gvl *g, const struct scry_gvl_table *t,
			     uint32_t (*number_of)(const struct scry_gvl *g,
						   const struct scry_gvl_table *t, uint64_t th))
{
	for (size_t i = 0; i < g->waiters->count; i++) {
		struct waiter *w = &g->waiters->waiters[i];

		w->number = w->who & BEFORE ? number_of(g, t, w->who & ~BEFORE)
					    : scry_gvl_past_number(t, (uint32_t)w->who);
	}
}

static bool is_of(const struct scry_gvl_waiters *s, const struct row *row, uint32_t number)
{
	return s->waiters[row->waiter].number == number;
}

static uint64_t weight_of(const struct scry_gvl_waiters *s, uint32_t number)
{
	uint64_t all = 0;

	for (size_t i = 0; i < s->row_count; i++)
		all += is_of(s, &s->rows[i], number) ? s->rows[i].weight : 0;
	return all;
}

static void report(struct scry_gvl *g, const struct scry_gvl_waited *waited, uint32_t stack,
		   const struct scry_ev_gvl_wait_line *what)
{
	struct scry_ev_gvl_wait_line ev = *what;

	if (!ev.lost_ns && !ev.waits)
		return;
	ev.pid = (uint32_t)g->watch->proc.pid;
	ev.waiter = scry_gvl_number(g, waited->number);
	ev.stack = scry_gvl_blame_write(g, stack);
	scry_watch_event(g->watch, SCRY_EVENT_GVL_WAIT_LINE, &ev, sizeof(ev));
}

/* Its looks share what it waited. */
static void report_looks(struct scry_gvl *g, const struct scry_gvl_waited *waited)
{
	struct scry_gvl_waiters *s = g->waiters;
	const uint64_t all = weight_of(s, waited->number);

	for (size_t i = 0; all && i < s->row_count; i++) {
		const struct row *row = &s->rows[i];
		const double share = (double)row->weight / (double)all;

		if (is_of(s, row, waited->number) && row->weight)
			report(g, waited, row->stack,
			       &(struct scry_ev_gvl_wait_line){
				       .samples = (uint32_t)row->samples,
				       .lost_ns = (uint64_t)((double)waited->ns * share)});
	}
	if (!all) /* it waited between two looks only */
		report(g, waited, 0, &(struct scry_ev_gvl_wait_line){.lost_ns = waited->ns});
}

static uint64_t ns_of(const struct scry_gvl *g, uint64_t ticks)
{
	return scry_ticks_by(&g->began, &g->ended, ticks);
}

/* What is in no wait that is over: it was on at an end of the watch, or there was no room. */
static void report_rest(struct scry_gvl *g, const struct scry_gvl_waited *waited, uint64_t rest)
{
	const struct scry_gvl_waiters *s = g->waiters;
	uint32_t stack = 0, old_stack = 0;
	const uint64_t open = waited->open_ns < rest ? waited->open_ns : rest;
	const uint64_t older = waited->older_ns < rest - open ? waited->older_ns : rest - open;
	const uint64_t first =
		waited->first_ns < rest - open - older ? waited->first_ns : rest - open - older;

	for (size_t i = 0; i < s->count; i++) {
		const struct waiter *w = &s->waiters[i];

		if (w->number != waited->number)
			continue;
		stack = w->stack; /* the last one's: before the first event it is another */
		old_stack = w->old_stack ? w->old_stack : old_stack;
	}
	report(g, waited, stack, &(struct scry_ev_gvl_wait_line){.lost_ns = open});
	report(g, waited, old_stack, &(struct scry_ev_gvl_wait_line){.lost_ns = older});
	report(g, waited, old_stack,
	       &(struct scry_ev_gvl_wait_line){
		       .lost_ns = first, .waits = waited->first_ns != 0, .max_ns = first});
	if (rest - open - older - first > ROUNDING_NS)
		report(g, waited, 0,
		       &(struct scry_ev_gvl_wait_line){.lost_ns = rest - open - older - first});
}

static void report_waits(struct scry_gvl *g, const struct scry_gvl_waited *waited)
{
	struct scry_gvl_waiters *s = g->waiters;
	uint64_t rest = waited->ns;

	for (size_t i = 0; i < s->row_count; i++) {
		const struct row *row = &s->rows[i];
		const uint64_t ns = ns_of(g, row->weight);

		if (!is_of(s, row, waited->number))
			continue;
		report(g, waited, row->stack,
		       &(struct scry_ev_gvl_wait_line){.lost_ns = ns,
						       .waits = row->samples,
						       .max_ns = ns_of(g, row->longest)});
		rest -= ns < rest ? ns : rest;
	}
	if (waited->brief_waits)
		report(g, waited, scry_gvl_blame_brief(g),
		       &(struct scry_ev_gvl_wait_line){.lost_ns = waited->brief_ns,
						       .waits = waited->brief_waits});
	rest -= waited->brief_ns < rest ? waited->brief_ns : rest;
	report_rest(g, waited, rest);
}

void scry_gvl_waiters_report(struct scry_gvl *g, const struct scry_gvl_waited *waited)
{
	if (g->has_stacks)
		report_waits(g, waited);
	else
		report_looks(g, waited);
}
