/*
 * The site table: turns (pc, class, depth) into a code of 16 bits, so that an object costs one
 * word.
 *
 * Four ways to a set, no probing beyond. The number of the slot is the code; using a slot for
 * another site sends a new DEF record, and the keeper knows from the order of the stream which
 * meaning holds. So the table never fills up and never grows. When an iseq or a class is freed its
 * slots are emptied by chains (its address may be used again at once), which costs nothing to those
 * who die unseen.
 */
#include "agent/agent.h"

static uint32_t head_of(uint64_t address)
{
	return (uint32_t)((address >> 3) * 0x9e3779b97f4a7c15ull >> 52) & (SCRY_SITE_HEADS - 1);
}

static void unlink_iseq(uint32_t slot)
{
	uint32_t *at = &scry_agent.iseq_heads[head_of(scry_agent.sites[slot].iseq)];

	while (*at && *at - 1 != slot)
		at = &scry_agent.sites[*at - 1].next_iseq;
	if (*at)
		*at = scry_agent.sites[slot].next_iseq;
}

static void unlink_klass(uint32_t slot)
{
	uint32_t *at = &scry_agent.klass_heads[head_of(scry_agent.sites[slot].klass)];

	while (*at && *at - 1 != slot)
		at = &scry_agent.sites[*at - 1].next_klass;
	if (*at)
		*at = scry_agent.sites[slot].next_klass;
}

static void empty_slot(uint32_t slot)
{
	unlink_iseq(slot);
	unlink_klass(slot);
	scry_agent.sites[slot].pc = 0;
}

static void fill_slot(uint32_t slot, const struct scry_agent_place *place, uint64_t klass,
		      uint32_t key)
{
	struct scry_agent_site *s = &scry_agent.sites[slot];
	uint32_t *head;

	s->pc = place->pc | 1; /* never 0; code words are 8-byte aligned */
	s->klass = klass;
	s->iseq = place->iseq;
	s->depth = key;
	head = &scry_agent.iseq_heads[head_of(s->iseq)];
	s->next_iseq = *head;
	*head = slot + 1;
	head = &scry_agent.klass_heads[head_of(klass)];
	s->next_klass = *head;
	*head = slot + 1;
}

uint32_t scry_site_code(const struct scry_agent_place *place, uint64_t klass, uint64_t flags)
{
	/* depth, whether the Ruby frame itself runs, and the object's type (5 bits) */
	uint32_t key = place->depth | place->top << 16 | (uint32_t)(flags & 0x1f) << 17;
	uint64_t hash = ((place->pc >> 3) ^ (klass << 7) ^ key) * 0x9e3779b97f4a7c15ull;
	uint32_t set = (uint32_t)(hash >> 50) & ~3u;
	uint32_t way, slot;

	for (way = 0; way < 4; way++) {
		const struct scry_agent_site *s = &scry_agent.sites[set + way];

		if (likely(s->pc == (place->pc | 1) && s->klass == klass && s->depth == key))
			return set + way + 1;
	}
	slot = set + (scry_agent.evict++ & 3);
	for (way = 0; way < 4; way++)
		if (!scry_agent.sites[set + way].pc)
			slot = set + way;
	if (!scry_define(slot + 1, place, klass, flags))
		return 0;
	if (scry_agent.sites[slot].pc)
		empty_slot(slot);
	fill_slot(slot, place, klass, key);
	return slot + 1;
}

void scry_site_forget_iseq(uint64_t iseq)
{
	uint32_t at = scry_agent.iseq_heads[head_of(iseq)];

	while (at) {
		uint32_t slot = at - 1;

		at = scry_agent.sites[slot].next_iseq;
		if (scry_agent.sites[slot].iseq == iseq)
			empty_slot(slot);
	}
}

void scry_site_forget_class(uint64_t klass)
{
	uint32_t at = scry_agent.klass_heads[head_of(klass)];

	while (at) {
		uint32_t slot = at - 1;

		at = scry_agent.sites[slot].next_klass;
		if (scry_agent.sites[slot].klass == klass)
			empty_slot(slot);
	}
}

void scry_site_forget_all(void)
{
	for (uint32_t i = 0; i < SCRY_SITE_HEADS; i++)
		scry_agent.iseq_heads[i] = scry_agent.klass_heads[i] = 0;
	for (uint32_t i = 0; i < SCRY_SITE_SLOTS; i++)
		scry_agent.sites[i].pc = 0;
}
