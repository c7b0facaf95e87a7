/*
 * Does the VM do what the agent's table says? A thread that has not the lock runs no Ruby code, so
 * its newest frame stays where it is: if it is another one at the second of two looks, while by the
 * table nothing has happened to the thread in between, the table is wrong. Nothing of that comes
 * from the hooks.
 *
 * One thread is looked at in two looks one after the other, then the next one: what it costs does
 * not depend on how many there are.
 */
#include <stdlib.h>
#include <string.h>

#include "instrument/gvl/gvl.h"
#include "instrument/gvl/past.h"

#define SCAN_MAX 64u /* rows that are passed over in one look */
#define LOOK_NS 16000000ull

struct standing { /* where a thread is, by the VM's words; and the table's */
	uint64_t th, since;
	uint64_t self, ec, cfp, pc;
	uint32_t uses;
};

struct scry_gvl_check {
	uint64_t look_ns; /* when to look again: thirty pairs a second are enough, and cheap */
	uint32_t row;	  /* that is looked at */
	bool is_second;
	struct standing first;
	struct scry_gvl_checked rows[SCRY_GVL_THREADS], groups[SCRY_GVL_GROUPS];
};

struct scry_gvl_check *scry_gvl_check_new(void)
{
	return calloc(1, sizeof(struct scry_gvl_check));
}

void scry_gvl_check_free(struct scry_gvl_check *c)
{
	free(c);
}

static bool is_without(const volatile struct scry_gvl_row *r)
{
	const uint32_t state = r->state;

	return r->th &&
	       (state == SCRY_GVL_OFF || state == SCRY_GVL_WANTS || state == SCRY_GVL_GRANTED);
}

/* False: it has the lock, or changes, or is about to begin or to end. */
static bool look_at(const struct scry_gvl *g, const volatile struct scry_gvl_row *r,
		    struct standing *ret)
{
	const struct scry_ruby_layout *l = &g->ruby->layout;
	const struct scry_mem *mem = &g->ruby->mem;

	*ret = (struct standing){.th = r->th, .since = r->since, .uses = r->uses};
	return is_without(r) && scry_mem_u64(mem, ret->th + l->th_self, &ret->self) == 0 &&
	       scry_mem_u64(mem, ret->th + l->th_ec, &ret->ec) == 0 && ret->ec &&
	       scry_mem_u64(mem, ret->ec + l->ec_cfp, &ret->cfp) == 0 && ret->cfp &&
	       scry_mem_u64(mem, ret->cfp + l->frame_pc, &ret->pc) == 0 && is_without(r) &&
	       r->th == ret->th && r->since == ret->since && r->uses == ret->uses;
}

static void choose(struct scry_gvl *g)
{
	const struct scry_gvl_table *t = g->table;
	struct scry_gvl_check *c = g->check;
	const uint32_t rows = *(const volatile uint32_t *)&t->rows % (SCRY_GVL_THREADS + 1);

	for (uint32_t i = 0; i < SCAN_MAX && rows > 1; i++) {
		c->row = c->row + 1 < rows ? c->row + 1 : 1;
		if (is_without(&t->row[c->row])) {
			c->is_second = look_at(g, &t->row[c->row], &c->first);
			return;
		}
	}
}

void scry_gvl_check_look(struct scry_gvl *g, uint64_t now_ns)
{
	struct scry_gvl_check *c = g->check;
	struct standing now;

	if (now_ns < c->look_ns)
		return;
	c->look_ns = now_ns + LOOK_NS;
	if (!c->is_second) {
		choose(g);
		return;
	}
	c->is_second = false;
	if (!look_at(g, &g->table->row[c->row], &now) || now.th != c->first.th ||
	    now.since != c->first.since || now.uses != c->first.uses || now.self != c->first.self)
		return;
	c->rows[c->row].looks++;
	c->rows[c->row].contradicted +=
		now.ec != c->first.ec || now.cfp != c->first.cfp || now.pc != c->first.pc;
}

void scry_gvl_check_regroup(struct scry_gvl *g)
{
	struct scry_gvl_check *c = g->check;

	for (uint32_t i = 1; i < SCRY_GVL_THREADS; i++) {
		const struct scry_gvl_gone *gone = &g->past->gone[i];

		if (!gone->is_gone)
			continue;
		c->groups[gone->group].looks += c->rows[i].looks;
		c->groups[gone->group].contradicted += c->rows[i].contradicted;
		c->rows[i] = (struct scry_gvl_checked){0};
	}
}

struct scry_gvl_checked scry_gvl_check_of(const struct scry_gvl *g, uint32_t number)
{
	const struct scry_gvl_check *c = g->check;

	if (c && number < SCRY_GVL_THREADS)
		return c->rows[number];
	if (c && number >= SCRY_GVL_ENDED_FROM && number - SCRY_GVL_ENDED_FROM < SCRY_GVL_GROUPS)
		return c->groups[number - SCRY_GVL_ENDED_FROM];
	return (struct scry_gvl_checked){0};
}
