/* See call_plans.h. */
#include "hook/call_plans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "wire/shadow.h"
#include "base/err.h"

static uint32_t units_of(const struct scry_call_plan *head)
{
	return 1u + head->entry + head->back;
}

/* The place of one that is the same, or 0. */
static uint32_t find(const struct scry_call_plans *p, const struct scry_call_plan *head,
		     const struct scry_fetch *ops)
{
	uint32_t n = units_of(head);

	for (uint32_t i = 1; i + n <= p->used; i += units_of(&p->units[i]))
		if (!memcmp(&p->units[i], head, sizeof(*head)) &&
		    !memcmp(&p->units[i + 1], ops, (n - 1) * sizeof(*ops)))
			return i;
	return 0;
}

static int grow(struct scry_call_plans *p, uint32_t units)
{
	if (p->used + units > p->room) {
		uint32_t room = 2 * (p->room + units + 64);
		struct scry_call_plan *more = reallocarray(p->units, room, sizeof(*more));

		if (!more)
			return scry_no_memory("%u plans", room);
		p->units = more;
		p->room = room;
	}
	if (p->count == p->of_room) {
		uint32_t room = p->of_room ? 2 * p->of_room : 64;
		uint16_t *more = reallocarray(p->of, room, sizeof(*more));

		if (!more)
			return scry_no_memory("%u plans", room);
		p->of = more;
		p->of_room = room;
	}
	return 0;
}

int scry_call_plans_add(struct scry_call_plans *p, const struct scry_call_plan *head,
			const struct scry_fetch *ops)
{
	uint32_t units = head ? units_of(head) : 0, at = head ? find(p, head, ops) : 0;
	int r = p->count < SCRY_SHADOW_HOOKS_MAX
			? grow(p, units + 1)
			: scry_fail(-E2BIG, "more than %u functions", p->count);

	if (r < 0)
		return r;
	if (!p->used)
		p->units[p->used++] = (struct scry_call_plan){0};
	if (head && !at && p->used + units <= SCRY_PLAN_UNITS) {
		at = p->used;
		p->units[at] = *head;
		memcpy(&p->units[at + 1], ops, (units - 1) * sizeof(*ops));
		p->used += units;
	}
	p->of[p->count++] = (uint16_t)at;
	return at != 0;
}

static int write_at(struct scry_inject *inj, size_t offset, const void *bytes, size_t size)
{
	int r = size ? scry_edit_poke(inj->mem.fd,
				      scry_inject_symbol(inj, "scry_agent_shadow") + offset, bytes,
				      size)
		     : 0;

	return r < 0 ? scry_fail(r, "cannot write to the agent in process %d", inj->proc->pid) : 0;
}

int scry_call_plans_write(struct scry_call_plans *p, struct scry_inject *inj)
{
	int r = write_at(inj,
			 offsetof(struct scry_shadow, plans) + p->written * sizeof(p->units[0]),
			 p->units + p->written, (p->used - p->written) * sizeof(p->units[0]));

	if (r == 0)
		r = write_at(inj,
			     offsetof(struct scry_shadow, plan_of) +
				     p->of_written * sizeof(p->of[0]),
			     p->of + p->of_written, (p->count - p->of_written) * sizeof(p->of[0]));
	if (r == 0) {
		p->written = p->used;
		p->of_written = p->count;
	}
	return r;
}

void scry_call_plans_done(struct scry_call_plans *p)
{
	free(p->units);
	free(p->of);
	*p = (struct scry_call_plans){0};
}
_Static_assert(sizeof(struct scry_fetch) == sizeof(struct scry_call_plan), "units");
_Static_assert(SCRY_PLAN_UNITS <= UINT16_MAX, "a place is 16 bits");
