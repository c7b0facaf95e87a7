/*
 * The rows of a table, one for each thread: found by a hash of the thread's struct, and given back
 * when the keeper has read those of threads that have ended. Called as agent/gvl.c says.
 */
#include "agent/gvl_moment.h"

#define CLUSTER_MAX 256 /* slots of the hash that are in use one after the other */

/* Where in the hash a thread's struct belongs. */
static uint32_t slot_of(uint64_t th)
{
	return (uint32_t)((th >> 4) * 0x9e3779b97f4a7c15ull >> 52);
}
_Static_assert(SCRY_GVL_SLOTS == 1u << 12, "the shift above");

static uint16_t *slot_at(const struct scry_gvl_moment *m, uint32_t at)
{
	return (uint16_t *)((uint8_t *)m->t + m->lock->shape->slots_at) +
	       (at & (m->lock->shape->slots - 1));
}

/* One that was given back, else one that is new; 0: none. */
static uint32_t new_row(const struct scry_gvl_moment *m, uint64_t th)
{
	struct scry_gvl_table *t = m->t;
	uint32_t row = t->free_row & m->rows_mask, uses;
	struct scry_gvl_row *r = scry_gvl_row_in(m, row);

	if (row) {
		t->free_row = r->place;
		t->free_rows--;
		uses = r->uses;
		for (uint32_t i = 0; i < sizeof(*r) / 8; i++)
			((volatile uint64_t *)r)[i] = 0;
		r->uses = uses;
	} else {
		if (t->rows == 0)
			t->rows = 1;
		if (t->rows > m->rows_mask)
			return 0;
		row = t->rows++ & m->rows_mask;
		r = scry_gvl_row_in(m, row);
	}
	r->th = th;
	r->first = m->now;
	return row;
}

uint32_t scry_gvl_row_of(const struct scry_gvl_moment *m, uint64_t th)
{
	struct scry_gvl_table *t = m->t;
	const uint32_t slot = slot_of(th);
	uint32_t row;

	for (uint32_t i = 0; i < SCRY_GVL_PROBES; i++) {
		uint16_t *at = slot_at(m, slot + i);

		row = *at & m->rows_mask;
		if (row && scry_gvl_row_in(m, row)->th == th)
			return row;
		if (row)
			continue;
		row = new_row(m, th);
		if (!row)
			break;
		*at = (uint16_t)row;
		return row;
	}
	if (!t->crowded++)
		t->crowded_since = m->now;
	return 0;
}

/* Who comes behind in the hash moves up, unless it belongs there: so no gap is left before it. 0:
 * too many come, which in a hash that is half full at most means that another process wrote it. */
static int close_gap(const struct scry_gvl_moment *m, uint32_t gap)
{
	const uint32_t mask = m->lock->shape->slots - 1;
	uint32_t at = gap, row, end = 1;

	while (end < CLUSTER_MAX && end <= mask && *slot_at(m, gap + end) & m->rows_mask)
		end++;
	if (end == CLUSTER_MAX || end > mask)
		return 0;
	for (uint32_t i = 1; i < end; i++) {
		at = (at + 1) & mask;
		row = *slot_at(m, at) & m->rows_mask;
		if (((at - slot_of(scry_gvl_row_in(m, row)->th)) & mask) < ((at - gap) & mask))
			continue;
		*slot_at(m, gap) = (uint16_t)row;
		gap = at;
	}
	*slot_at(m, gap) = 0;
	return 1;
}

/* 0: it is not in the hash, or is kept as close_gap says. */
static int free_row(const struct scry_gvl_moment *m, uint32_t row)
{
	struct scry_gvl_table *t = m->t;
	struct scry_gvl_row *r = scry_gvl_row_in(m, row);
	const uint32_t slot = slot_of(r->th);
	uint32_t i = 0;

	while (i < SCRY_GVL_PROBES && (*slot_at(m, slot + i) & m->rows_mask) != row)
		i++;
	if (i == SCRY_GVL_PROBES || !close_gap(m, (slot + i) & (m->lock->shape->slots - 1)))
		return 0;
	r->th = 0;
	r->state = SCRY_GVL_UNKNOWN;
	r->uses++;
	r->place = t->free_row;
	t->free_row = row;
	t->free_rows++;
	if (t->recent == row)
		t->recent = 0;
	return 1;
}

__attribute__((noinline)) void scry_gvl_give_back(const struct scry_gvl_moment *m)
{
	struct scry_gvl_table *t = m->t;
	const uint32_t asked = *(volatile uint32_t *)&t->asked,
		       count = *(volatile uint32_t *)&t->ended_count;

	for (uint32_t i = 0; i < count && i < m->lock->shape->ended; i++) {
		struct scry_gvl_ended *e = scry_gvl_ended_at(m->lock->shape, t, i);
		const uint32_t row = *(volatile uint32_t *)&e->row & m->rows_mask;
		const struct scry_gvl_row *r = scry_gvl_row_in(m, row);

		e->is_free = row && r->th && row != t->owner && r->state == SCRY_GVL_OFF &&
			     r->since == e->since && !(t->run_takes && t->run_row == row) &&
			     free_row(m, row);
	}
	t->pairs_at = !t->pairs_at;
	__atomic_store_n(&t->given, asked, __ATOMIC_RELEASE);
}
