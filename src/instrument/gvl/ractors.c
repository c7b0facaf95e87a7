/* See ractors.h. */
#include "instrument/gvl/ractors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#include "agent/gvl.h"
#include "base/err.h"
#include "instrument/gvl/past.h"
#include "instrument/gvl/people.h"
#include "watch/ask.h"

#define LOCKS_MAX 256u	    /* at a time, with a table or without */
#define RACTORS_MAX 100000u /* in a watch */
#define LOOKS_GONE 2u
_Static_assert(SCRY_GVL_RACTORS_ROOM == SCRY_GVL_OTHERS, "a table for each");
#define FIRST_TRIES 20

struct lock {
	struct scry_gvl *g;
	struct scry_gvl_ractors *of;
	struct scry_gvl_table *none; /* its table while it has none: zeros */
	uint32_t table, uses;	     /* table: 0: it has none; uses: the table's */
	bool is_seen;		     /* in the list that is looked at */
	bool has_begun;		     /* its threads were looked at */
	bool is_announced;	     /* the agent knows its mutex without proof */
	bool is_doubtful;	     /* it may have had events that were not seen: not reported */
	uint32_t looks_gone;
	uint64_t gone_at; /* the table's sequence at the first of these */
};

struct scry_gvl_ractors {
	struct scry_gvl *first;
	struct lock locks[LOCKS_MAX];
	size_t count;
	uint32_t met;			   /* numbers that were given, that of the first too */
	uint32_t uses[SCRY_GVL_OTHERS];	   /* of tables, as they were seen last */
	uint64_t gone_at[SCRY_GVL_OTHERS]; /* and their sequence when their lock was reported */
	uint64_t unseen, doubtful;
	uint64_t crowded, unplaced; /* tables without a place here; of the list, most in a look */
	bool is_late;		    /* the program ran before the hooks were on */
	uint64_t announced[SCRY_GVL_SETS * SCRY_GVL_WAYS];
	uint64_t events, waits; /* of those that were reported */
	int error;
};

struct scry_gvl_ractors *scry_gvl_ractors_new(void)
{
	struct scry_gvl_ractors *r = calloc(1, sizeof(*r));

	if (r)
		r->met = 1;
	return r;
}

void scry_gvl_lock_done(struct scry_gvl *g)
{
	scry_map_done(&g->by_th);
	scry_gvl_held_free(g->held);
	scry_gvl_waiters_free(g->waiters);
	scry_gvl_past_free(g->past);
	free(g->first_look.queue);
	free(g->people);
}

static void free_lock(struct lock *l)
{
	if (l->g)
		scry_gvl_lock_done(l->g);
	free(l->g);
	free(l->none);
}

static void drop(struct scry_gvl_ractors *r, size_t i)
{
	free_lock(&r->locks[i]);
	r->locks[i] = r->locks[--r->count];
}

void scry_gvl_ractors_free(struct scry_gvl_ractors *r)
{
	while (r && r->count)
		drop(r, r->count - 1);
	free(r);
}

/* ---- which are followed ---- */

struct scry_gvl *scry_gvl_ractors_at(const struct scry_gvl *first, size_t i)
{
	if (!i)
		return (struct scry_gvl *)first;
	return first->others && i <= first->others->count ? first->others->locks[i - 1].g : NULL;
}

struct scry_gvl *scry_gvl_ractors_by_table(struct scry_gvl *first, uint32_t table, uint32_t uses)
{
	struct scry_gvl_ractors *r = first->others;

	if (!table)
		return first;
	for (size_t i = 0; r && i < r->count; i++)
		if (r->locks[i].table == table && r->locks[i].uses == uses)
			return r->locks[i].g;
	return NULL;
}

static struct lock *lock_of(const struct scry_gvl *g)
{
	struct scry_gvl_ractors *r = g->others;

	for (size_t i = 0; i < r->count; i++)
		if (r->locks[i].g == g)
			return &r->locks[i];
	return NULL;
}

struct scry_gvl *scry_gvl_ractors_first(struct scry_gvl *g)
{
	return g->ractor > 1 ? lock_of(g)->of->first : g;
}

const uint64_t *scry_gvl_ractors_ring(const struct scry_gvl *g)
{
	const struct lock *l = g->ractor > 1 ? lock_of(g) : NULL;

	if (g->ractor == 1)
		return (const uint64_t *)g->table + SCRY_GVL_RING_AT;
	return scry_gvl_ring_of_other(l->of->first->table, l->table ? l->table - 1 : 0);
}

uint64_t scry_gvl_ractors_met(const struct scry_gvl *first)
{
	return first->others ? first->others->met + first->table->refused : 0;
}

bool scry_gvl_ractors_are_pressed(const struct scry_gvl *first)
{
	size_t tables = 0;

	for (size_t i = 0; first->others && i < first->others->count; i++)
		tables += first->others->locks[i].table != 0;
	return tables > SCRY_GVL_OTHERS / 4;
}

/* ---- one more ---- */

static bool fill(struct lock *l, uint64_t address)
{
	const struct scry_gvl *first = l->of->first;
	struct scry_gvl *g = l->g;

	*g = (struct scry_gvl){.watch = first->watch,
			       .ruby = first->ruby,
			       .others = l->of,
			       .ractor = ++l->of->met,
			       .shape = &scry_gvl_shape_other,
			       .table = l->none,
			       .lock = address,
			       .has_stacks = first->has_stacks,
			       .is_bound = true,
			       .tids_are_ours = first->tids_are_ours,
			       .are_turns = first->are_turns,
			       .began = first->began,
			       .blame = first->blame};
	g->hooks.mem.fd = -1;
	scry_map_init(&g->by_th, SCRY_GVL_THREADS);
	g->held = scry_gvl_held_new();
	g->waiters = scry_gvl_waiters_new();
	g->past = scry_gvl_past_new();
	return g->held && g->waiters && g->past;
}

static struct lock *add(struct scry_gvl_ractors *r, uint64_t address)
{
	struct lock *l = &r->locks[r->count];

	if (r->count == LOCKS_MAX || r->met >= RACTORS_MAX || !r->first->blame)
		return NULL;
	*l = (struct lock){.of = r,
			   .g = calloc(1, sizeof(*l->g)),
			   .none = calloc(1, sizeof(struct scry_gvl_other))};
	r->count++;
	if (l->g && l->none && fill(l, address))
		return l;
	drop(r, r->count - 1);
	return NULL;
}

static void bind(struct lock *l, uint32_t which, uint32_t uses)
{
	l->table = which + 1;
	l->uses = l->of->uses[which] = uses;
	l->of->gone_at[which] = 0;
	l->g->table = scry_gvl_other_at(l->of->first->table, which);
}

/* By its ractor; without a table, if that is asked for. NULL: none. */
static struct lock *find(struct scry_gvl_ractors *r, uint64_t address, bool is_bare)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->locks[i].g->lock == address && !r->locks[i].g->is_over &&
		    !(is_bare && r->locks[i].table))
			return &r->locks[i];
	return NULL;
}

/* ---- tables ---- */

/* A table that was not seen: its mutex; 0: there is none. */
static uint64_t new_table(const struct scry_gvl_ractors *r, uint32_t which, uint32_t *ret_uses)
{
	const volatile struct scry_gvl_table *t = scry_gvl_other_at(r->first->table, which);
	const uint64_t mutex = __atomic_load_n(&t->mutex, __ATOMIC_ACQUIRE);

	*ret_uses = t->uses;
	return mutex && *ret_uses != r->uses[which] ? mutex : 0;
}

bool scry_gvl_ractors_bind(struct scry_gvl *g)
{
	struct lock *l = g->ractor > 1 ? lock_of(g) : NULL;
	uint32_t uses;

	for (uint32_t i = 0; l && !l->table && i < SCRY_GVL_OTHERS; i++)
		if (new_table(l->of, i, &uses) == g->lock + g->ruby->layout.gvl.mutex)
			bind(l, i, uses);
	return l && l->table;
}

/* The agent gives a table to another lock only when it may: so a program has written here. */
static void drop_odd(struct scry_gvl_ractors *r, uint32_t which)
{
	for (size_t i = r->count; i-- > 0;)
		if (r->locks[i].table == which + 1) {
			r->first->watch->errors++;
			r->doubtful++;
			drop(r, i);
		}
}

void scry_gvl_ractors_turn(struct scry_gvl *first)
{
	struct scry_gvl_ractors *r = first->others;
	const uint32_t mutex_at = first->ruby->layout.gvl.mutex;
	uint64_t mutex;
	struct lock *l;
	uint32_t uses;

	if (!r || !r->first || !first->table->others)
		return;
	for (uint32_t i = 0; i < SCRY_GVL_OTHERS; i++) {
		mutex = new_table(r, i, &uses);
		if (!mutex)
			continue;
		drop_odd(r, i);
		l = find(r, mutex - mutex_at, true);
		if (!l)
			l = add(r, mutex - mutex_at);
		if (l) {
			bind(l, i, uses);
		} else {
			r->uses[i] = uses;
			r->crowded++;
		}
	}
}

/* ---- those that are there ---- */

int scry_gvl_ractors_announce(struct scry_gvl *first)
{
	const uint64_t at = scry_inject_symbol(first->watch->inj, "scry_agent_gvl") +
			    offsetof(struct scry_agent_gvl, known);
	struct scry_gvl_ractors *r = first->others;
	struct scry_ruby_thread *threads = NULL;
	struct scry_agent_gvl *a = calloc(1, sizeof(*a));
	ssize_t n = r && !first->is_booting && first->ruby->layout.vm_ractors != SCRY_RUBY_NONE
			    ? scry_ruby_threads(first->ruby, &threads)
			    : 0;
	size_t known = 0;
	int e = a ? 0 : -ENOMEM;

	if (r)
		r->is_late = !first->is_booting;

	for (ssize_t i = 1; a && i < n; i++) {
		const uint64_t mutex = threads[i].ractor + first->ruby->layout.gvl.mutex;
		const uint32_t set = scry_gvl_set_of(mutex);
		uint32_t way = 0;

		while (way < SCRY_GVL_WAYS && a->known[set][way] && a->known[set][way] != mutex)
			way++;
		if (threads[i].ractor == threads[0].ractor || way == SCRY_GVL_WAYS ||
		    a->known[set][way])
			continue;
		a->known[set][way] = r->announced[known++] = mutex;
		a->is[set][way] = SCRY_GVL_PROVEN;
	}
	if (n >= 0)
		free(threads);
	scry_error_clear(); /* those that could not be read are not followed, and that is said */
	if (a)
		e = scry_edit_poke(first->watch->inj->mem.fd, at, a->known,
				   sizeof(*a) - offsetof(struct scry_agent_gvl, known));
	free(a);
	return e;
}

static bool is_announced(const struct scry_gvl_ractors *r, uint64_t mutex)
{
	for (size_t i = 0; i < SCRY_GVL_SETS * SCRY_GVL_WAYS; i++)
		if (r->announced[i] == mutex)
			return true;
	return false;
}

static bool changes(struct lock *l)
{
	struct scry_gvl_snapshot now = {.queue = calloc(4096, sizeof(*now.queue))};
	const struct scry_gvl_snapshot *was = &l->g->first_look;
	bool is = now.queue && l->g->has_first_look && scry_gvl_read_words(l->g, &now) == 0 &&
		  !scry_gvl_ractors_bind(l->g) &&
		  (now.owner != was->owner || now.count != was->count);

	free(now.queue);
	return is;
}

/* One that is there, with no event yet: its state is read from outside. */
static bool meet(struct scry_gvl_ractors *r, uint64_t address)
{
	struct lock *l = add(r, address);

	if (!l)
		return false;
	l->is_seen = true;
	l->is_announced = is_announced(r, address + r->first->ruby->layout.gvl.mutex);
	l->g->since = __rdtsc();
	scry_gvl_look_first(l->g, FIRST_TRIES);
	return true;
}

void scry_gvl_ractors_see(struct scry_gvl *first, const struct scry_ruby_thread *threads, size_t n)
{
	struct scry_gvl_ractors *r = first->others;
	uint64_t unseen = 0, unplaced = 0, last = first->lock;
	struct lock *l;

	scry_gvl_ractors_turn(first);
	for (size_t i = 0; r && i < r->count; i++)
		r->locks[i].is_seen = false;
	for (size_t i = 0; i < n; i++) {
		if (threads[i].ractor == first->lock)
			continue;
		l = r && r->first ? find(r, threads[i].ractor, false) : NULL;
		if (l)
			l->is_seen = true;
		else if (r && r->first)
			unplaced += threads[i].ractor != last && !meet(r, threads[i].ractor);
		else
			unseen += threads[i].ractor != last; /* they follow each other */
		last = threads[i].ractor;
	}
	if (unseen > first->unseen_ractors)
		first->unseen_ractors = (uint32_t)unseen;
	if (r && unplaced > r->unplaced)
		r->unplaced = unplaced;
}

/* Its threads were there when its watch began. */
static void begin(struct lock *l)
{
	for (size_t k = 0; k < l->g->count; k++)
		l->g->people[k].was_there = l->g->people[k].is_alive;
	scry_gvl_look_at_processors(l->g, false);
	l->has_begun = true;
}

void scry_gvl_ractors_begin(struct scry_gvl *first)
{
	struct scry_gvl_ractors *r = first->others;

	if (r)
		r->first = first;
	scry_gvl_look_at_people(first);
	for (size_t i = 0; r && i < r->count; i++) {
		struct lock *l = &r->locks[i];

		if (first->since)
			l->g->since = first->since;
		begin(l);
		/* its mutex may have been made between what was announced and the hooks */
		l->is_doubtful = r->is_late && !l->is_announced && !l->table;
	}
}

/* ---- and that are over ---- */

static int report(struct scry_gvl_ractors *r, struct lock *l)
{
	struct scry_gvl_table *t = l->g->table;
	const uint64_t sequence = __atomic_load_n(&t->sequence, __ATOMIC_ACQUIRE);
	const uint32_t uses = l->uses;
	int e;

	if (!l->g->ended.tsc)
		l->g->ended = r->first->ended.tsc ? r->first->ended : scry_ticks_look();
	if (l->table && t->began && t->began < l->g->since) { /* it was met after it had begun */
		l->g->since = 0;
		l->g->has_first_look = false;
	}
	e = scry_gvl_report(l->g);
	r->events += scry_gvl_events(t);
	r->waits += scry_gvl_waits(l->g);
	if (l->table && l->g->is_over) {
		r->gone_at[l->table - 1] = sequence;
		t->may_go_at = sequence;
		__atomic_store_n(&t->may_go, uses, __ATOMIC_RELEASE);
	}
	return e;
}

static bool is_idle(const struct scry_gvl *g)
{
	const volatile struct scry_gvl_table *t = g->table;

	return !(t->sequence & 1) && !t->owner && !t->wanting;
}

static bool has_ended(struct lock *l)
{
	const uint64_t sequence = __atomic_load_n(&l->g->table->sequence, __ATOMIC_ACQUIRE);

	if (l->table && l->g->table->is_over)
		return true;
	if (l->is_seen || (l->looks_gone && sequence != l->gone_at))
		l->looks_gone = 0;
	if (l->is_seen)
		return false;
	l->gone_at = sequence;
	return ++l->looks_gone >= LOOKS_GONE && is_idle(l->g);
}

void scry_gvl_ractors_look(struct scry_gvl *first)
{
	struct scry_gvl_ractors *r = first->others;
	int e;

	scry_gvl_ractors_turn(first);
	for (size_t i = r && r->first ? r->count : 0; i-- > 0;) {
		struct lock *l = &r->locks[i];

		scry_gvl_past_turn(l->g);
		if (!l->table && !l->has_begun)
			begin(l);
		if (!l->table && changes(l))
			l->is_doubtful = true;
		if (!has_ended(l))
			continue;
		l->g->is_over = true;
		if (l->table) {
			e = report(r, l);
			r->error = r->error ? r->error : e;
		} else { /* its end is an event, which was not seen */
			r->doubtful++;
		}
		drop(r, i);
	}
}

void scry_gvl_ractors_end(struct scry_gvl *first)
{
	struct scry_gvl_ractors *r = first->others;

	if (!r || !r->first)
		return;
	scry_gvl_ractors_turn(first);
	for (size_t i = 0; i < r->count; i++) {
		struct scry_gvl *g = r->locks[i].g;

		r->locks[i].is_doubtful |= !r->locks[i].table && changes(&r->locks[i]);
		if (g->has_stacks)
			scry_gvl_waiters_look_last(g);
		scry_gvl_look_at_processors(g, true);
	}
}

int scry_gvl_ractors_report(struct scry_gvl *first, uint64_t *ret_waits)
{
	struct scry_gvl_ractors *r = first->others;
	const struct scry_gvl_table *t = first->table;
	uint64_t missed;
	int e = 0;

	*ret_waits = 0;
	if (!r || !r->first)
		return 0;
	while (r->count && e == 0) {
		struct lock *l = &r->locks[r->count - 1];

		if (!l->table &&
		    (l->is_doubtful || t->refused || (t->unproven && !l->is_announced)))
			r->doubtful++;
		else
			e = report(r, l);
		drop(r, r->count - 1);
	}
	for (uint32_t i = 0; i < SCRY_GVL_OTHERS; i++) {
		const struct scry_gvl_table *other = scry_gvl_other_at(first->table, i);

		if (r->gone_at[i] && other->uses == r->uses[i] && other->sequence != r->gone_at[i])
			first->watch->errors++; /* it was not over */
	}
	missed = r->doubtful > t->refused ? r->doubtful : t->refused;
	first->unseen_ractors += (uint32_t)(missed + r->crowded + r->unplaced);
	first->watch->events += r->events;
	*ret_waits = r->waits;
	return e ? e : r->error;
}
