/*
 * See past.h. The keeper is one thread: between two of its looks at the table the agent may have
 * answered, so samples name threads by SCRY_GVL_WHO, which a row's next thread does not have.
 *
 * A thread has ended when the VM's list has lacked it twice, and nothing has happened in its row
 * since before the first of these looks. Rows that the first look at the lock is about are kept.
 */
#include "instrument/gvl/past.h"
#include "instrument/gvl/people.h"

#include <stdlib.h>
#include <string.h>

#define FEW 4 /* that part of the rows: up to there each thread keeps its own */
#define MANY 2
#define GROUP (1u << 31) /* in a `who`: a group */
#define TRIES 16

struct scry_gvl_past *scry_gvl_past_new(void)
{
	struct scry_gvl_past *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->groups = calloc(SCRY_GVL_GROUPS, sizeof(*p->groups));
	scry_gvl_pairs_init(&p->pairs, SCRY_GVL_PAST_PAIRS);
	if (!p->groups) {
		scry_gvl_past_free(p);
		return NULL;
	}
	return p;
}

void scry_gvl_past_free(struct scry_gvl_past *p)
{
	if (!p)
		return;
	scry_gvl_pairs_done(&p->pairs);
	free(p->groups);
	free(p);
}

uint32_t scry_gvl_past_who(const struct scry_gvl_past *p, uint32_t who)
{
	const struct scry_gvl_gone *gone = &p->gone[who % SCRY_GVL_THREADS];

	return gone->is_gone && gone->who == who ? GROUP | gone->group : who;
}

uint32_t scry_gvl_past_number(const struct scry_gvl_table *t, uint32_t who)
{
	const uint32_t row = who % SCRY_GVL_THREADS;

	if (who & GROUP)
		return SCRY_GVL_ENDED_FROM + (who & ~GROUP);
	return SCRY_GVL_WHO(row, t->row[row].uses) == who ? row : 0;
}

/* ---- what is asked for ---- */

static bool read_row(const struct scry_gvl *g, uint32_t row, struct scry_gvl_row *ret)
{
	const struct scry_gvl_table *t = g->table;

	for (int i = 0; i < TRIES; i++) {
		const uint64_t before = __atomic_load_n(&t->sequence, __ATOMIC_ACQUIRE);

		if (before & 1)
			continue;
		memcpy(ret, scry_gvl_row_at(g->shape, t, row), sizeof(*ret));
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&t->sequence, __ATOMIC_RELAXED) == before)
			return true;
	}
	return false;
}

static const volatile struct scry_gvl_row *live_row(const struct scry_gvl *g, uint32_t row)
{
	return scry_gvl_row_at(g->shape, g->table, row);
}

static bool is_in_first_look(const struct scry_gvl *g, uint64_t th)
{
	const struct scry_gvl_snapshot *s = &g->first_look;
	bool is = g->has_first_look && s->owner == th;

	for (size_t i = 0; !is && g->has_first_look && i < s->count; i++)
		is = s->queue[i] == th;
	return is;
}

static bool has_ended(const struct scry_gvl *g, const volatile struct scry_gvl_row *r)
{
	const struct scry_gvl_person *person;
	const uint64_t th = r->th;

	if (!th || r->state != SCRY_GVL_OFF || r->since >= g->looks_tsc[1] || r->is_old ||
	    r->old_wait || r->uses >= SCRY_GVL_USES_MAX - 1) /* it will be one more */
		return false;
	person = scry_gvl_person_of(g, th);
	return !(person && person->looks_gone < 2) && !is_in_first_look(g, th);
}

/* From 3.3 on: has its native thread run another one? The rows that would say it go. */
static void look_for_turns(struct scry_gvl *g, uint32_t row)
{
	const uint32_t tid = live_row(g, row)->tid;

	for (uint32_t i = 1; tid && i < g->shape->rows && !g->are_turns; i++)
		g->are_turns = i != row && live_row(g, i)->th && live_row(g, i)->tid == tid;
}

static void ask(struct scry_gvl *g)
{
	struct scry_gvl_past *p = g->past;
	struct scry_gvl_table *t = g->table;
	const struct scry_gvl_person *person;

	for (uint32_t i = 1; i < g->shape->rows && p->wants < g->shape->ended; i++) {
		struct scry_gvl_row *row = &p->rows[p->wants].row;

		if (!has_ended(g, live_row(g, i)) || !read_row(g, i, row) || !has_ended(g, row))
			continue;
		if (g->ruby->layout.gvl.hands_over && !g->are_turns)
			look_for_turns(g, i);
		person = scry_gvl_person_of(g, row->th);
		p->rows[p->wants].at = i;
		p->rows[p->wants].person = person ? *person : (struct scry_gvl_person){0};
		*scry_gvl_ended_at(g->shape, t, p->wants++) =
			(struct scry_gvl_ended){.since = row->since, .row = i};
	}
	if (!p->wants)
		return;
	t->ended_count = p->wants;
	__atomic_store_n(&t->asked, p->asked + 1, __ATOMIC_RELEASE);
}

/* ---- what is given back ---- */

/* The count: it is not there. */
static uint32_t place_of(const struct scry_gvl_past *p, const char *name)
{
	uint32_t i = 0;

	while (i < p->count && strcmp(p->groups[i].name, name))
		i++;
	return i;
}

/* The place of the group. The last place is for the one without a name, which has all for whose
 * names there is no room. */
static uint32_t group_of(struct scry_gvl_past *p, const char *name)
{
	uint32_t i = place_of(p, name);

	if (i == p->count && i >= SCRY_GVL_GROUPS - 1) {
		name = "";
		i = place_of(p, name);
	}
	if (i == p->count) {
		memcpy(p->groups[i].name, name, strlen(name) + 1);
		p->groups[p->count++].has_own_name = true;
	}
	return i;
}

static uint64_t more_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void sum_up(struct scry_gvl_row *sum, const struct scry_gvl_row *r)
{
	sum->first = sum->first && sum->first < r->first ? sum->first : r->first;
	sum->since = more_of(sum->since, r->since);
	sum->held += r->held;
	sum->takes += r->takes;
	sum->moves += r->moves;
	sum->threads += r->threads ? r->threads : 1;
	sum->wanted += r->wanted;
	sum->granted += r->granted;
	sum->waits += r->waits;
	sum->longest = more_of(sum->longest, r->longest);
	sum->yields += r->yields;
	sum->taken_back += r->taken_back;
	sum->lost += r->lost;
	sum->passes += r->passes;
	sum->forced += r->forced;
	sum->overtakes += r->overtakes;
	sum->runs += r->runs;
	sum->run_ticks += r->run_ticks;
	sum->run_longest = more_of(sum->run_longest, r->run_longest);
	sum->run_most = more_of(sum->run_most, r->run_most);
	sum->brief += r->brief;
	sum->brief_waits += r->brief_waits;
	for (uint32_t i = 0; i < SCRY_GVL_STEPS; i++)
		sum->lengths[i] += r->lengths[i];
}

/* As is reported of a thread that has a row to the end. */
static void add_to_group(struct scry_gvl *g, uint32_t group, const struct scry_gvl_row *r,
			 bool was_there)
{
	struct scry_gvl_group *to = &g->past->groups[group];
	const struct scry_gvl_table *t = g->table;
	const uint64_t since = g->since ? g->since : t->began;
	uint64_t start = t->began;

	if (g->has_first_look && g->first_look.tsc < start)
		start = g->first_look.tsc;
	sum_up(&to->sum, r);
	if (!was_there)
		start = r->first;
	else if (start > since)
		to->unknown += start - since;
	to->lived += r->since > start ? r->since - start : 0;
}

/* The struct may be another thread's by now. */
static void forget(struct scry_gvl *g, uint64_t th)
{
	struct scry_gvl_person *person = scry_gvl_person_of(g, th);

	if (!person)
		return;
	person->was_there = false;
	if (person->is_alive)
		return;
	scry_map_remove(&g->by_th, th, NULL);
	*person = g->people[--g->count];
	if (person != &g->people[g->count])
		scry_map_put(&g->by_th, person->th, (uint64_t)(person - g->people) + 1);
}

static void take_row(struct scry_gvl *g, uint32_t i)
{
	struct scry_gvl_past *p = g->past;
	const struct scry_gvl_row *row = &p->rows[i].row;
	const struct scry_gvl_person *person = &p->rows[i].person;
	const uint32_t at = p->rows[i].at, group = group_of(p, person->name);

	p->groups[group].has_own_name &= person->has_own_name;
	p->gone[at] = (struct scry_gvl_gone){
		.is_gone = true, .who = SCRY_GVL_WHO(at, row->uses), .group = group};
	add_to_group(g, group, row, person->was_there);
	forget(g, row->th);
}

void scry_gvl_pairs_init(struct scry_gvl_pairs *p, size_t room)
{
	scry_map_init(&p->ticks, room);
	scry_map_init(&p->waits, room);
}

void scry_gvl_pairs_done(struct scry_gvl_pairs *p)
{
	scry_map_done(&p->ticks);
	scry_map_done(&p->waits);
}

bool scry_gvl_pairs_add(struct scry_gvl_pairs *p, uint32_t waiter, uint32_t holder,
			const struct scry_gvl_pair *more)
{
	const uint64_t key = ((uint64_t)waiter << 16 | holder) + 1;
	uint64_t *ticks = scry_map_ref(&p->ticks, key), *waits = scry_map_ref(&p->waits, key);

	if (ticks && waits) {
		*ticks += more->ticks;
		*waits += more->waits;
	}
	return ticks && waits;
}

bool scry_gvl_pairs_next(const struct scry_gvl_pairs *p, size_t *cursor, struct scry_gvl_pair *ret)
{
	struct scry_map_slot slot;
	uint64_t waits = 0;

	if (!scry_map_next(&p->ticks, cursor, &slot))
		return false;
	scry_map_get(&p->waits, slot.key, &waits);
	*ret = (struct scry_gvl_pair){.key = (uint32_t)slot.key,
				      .waits = waits < UINT32_MAX ? (uint32_t)waits : UINT32_MAX,
				      .ticks = slot.value};
	return true;
}

static uint32_t number_now(const struct scry_gvl_past *p, uint64_t number)
{
	return number < SCRY_GVL_THREADS && p->gone[number].is_gone
		       ? SCRY_GVL_ENDED_FROM + p->gone[number].group
		       : (uint32_t)number;
}

static void add_pair(struct scry_gvl_past *p, const struct scry_gvl_pair *more)
{
	if (!scry_gvl_pairs_add(&p->pairs, number_now(p, scry_gvl_pair_waiter(more)),
				number_now(p, scry_gvl_pair_holder(more)), more))
		p->lost_pairs += more->ticks;
}

/* Those that the agent has left, and those from before. */
static void take_pairs(struct scry_gvl *g)
{
	struct scry_gvl_past *p = g->past;
	struct scry_gvl_pair *left = scry_gvl_pairs_at(g->shape, g->table, p->asked - 1), pair;
	struct scry_gvl_pairs before = p->pairs;
	size_t cursor = 0;

	scry_gvl_pairs_init(&p->pairs, SCRY_GVL_PAST_PAIRS);
	while (scry_gvl_pairs_next(&before, &cursor, &pair))
		add_pair(p, &pair);
	scry_gvl_pairs_done(&before);
	for (uint32_t i = 0; i < g->shape->pairs; i++) {
		pair = left[i];
		if (!pair.key)
			continue;
		pair.key = ((pair.key - 1) & 0x07ff07ff) + 1;
		add_pair(p, &pair);
		left[i] = (struct scry_gvl_pair){0};
	}
}
_Static_assert(SCRY_GVL_THREADS == 0x07ff + 1, "the mask above");

void scry_gvl_past_take(struct scry_gvl *g)
{
	struct scry_gvl_past *p = g->past;
	struct scry_gvl_table *t = g->table;

	if (!p || !p->wants || __atomic_load_n(&t->given, __ATOMIC_ACQUIRE) != p->asked + 1)
		return;
	p->asked++;
	for (uint32_t i = 0; i < p->wants; i++)
		if (scry_gvl_ended_at(g->shape, t, i)->is_free)
			take_row(g, i);
	p->wants = 0;
	take_pairs(g);
	if (g->held)
		scry_gvl_blame_regroup(g);
	if (g->waiters)
		scry_gvl_waiters_regroup(g);
	if (g->check)
		scry_gvl_check_regroup(g);
	memset(p->gone, 0, sizeof(p->gone));
}

static uint32_t rows_in_use(const struct scry_gvl *g)
{
	const volatile struct scry_gvl_table *t = g->table;
	const uint32_t rows = t->rows, free_rows = t->free_rows;

	return rows > free_rows ? rows - free_rows : 0;
}

bool scry_gvl_past_is_pressed(const struct scry_gvl *g)
{
	return g->past && rows_in_use(g) > g->shape->rows / MANY;
}

void scry_gvl_past_turn(struct scry_gvl *g)
{
	scry_gvl_past_take(g);
	if (g->past && !g->past->wants && rows_in_use(g) > g->shape->rows / FEW)
		ask(g);
}
