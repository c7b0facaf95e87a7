/*
 * The site table: turns (pc, class, depth) into a code of 16 bits, so that an object costs one
 * word.
 *
 * Four ways to a set, no probing beyond. The number of the slot is the code; using a slot for
 * another site sends a new DEF record, and the keeper knows from the order of the stream which
 * meaning holds. So the table never fills up and never grows. When an iseq or a class is freed its
 * slots are emptied by chains (its address may be used again at once), which costs nothing where
 * they die unseen.
 */
#include "agent/objects.h"

/* Above the class and the type in a key: forgetting all is adding one. */
#define GENERATION_SHIFT 49
#define GENERATIONS 0x7fffu
#define KLASS_BITS ((1ull << GENERATION_SHIFT) - 1)

static uint32_t head_of(uint64_t address)
{
	return (uint32_t)((address >> 3) * 0x9e3779b97f4a7c15ull >> 52) & (SCRY_SITE_HEADS - 1);
}

static uint64_t class_of(uint32_t slot)
{
	return (scry_agent_tables.keys[slot].klass & KLASS_BITS) >> 5 << 3;
}

static void unlink_iseq(uint32_t slot)
{
	const struct scry_agent_link *link = &scry_agent_tables.links[slot];

	if (link->prev_iseq)
		scry_agent_tables.links[link->prev_iseq - 1].next_iseq = link->next_iseq;
	else
		scry_agent_tables.iseq_heads[head_of(link->iseq)] = link->next_iseq;
	if (link->next_iseq)
		scry_agent_tables.links[link->next_iseq - 1].prev_iseq = link->prev_iseq;
}

static void unlink_klass(uint32_t slot)
{
	const struct scry_agent_link *link = &scry_agent_tables.links[slot];

	if (link->prev_klass)
		scry_agent_tables.links[link->prev_klass - 1].next_klass = link->next_klass;
	else
		scry_agent_tables.klass_heads[head_of(class_of(slot))] = link->next_klass;
	if (link->next_klass)
		scry_agent_tables.links[link->next_klass - 1].prev_klass = link->prev_klass;
}

static uint64_t hash_of(const struct scry_agent_key *key)
{
	return (key->code + (key->klass << 29 | key->klass >> 35)) * 0x9e3779b97f4a7c15ull;
}

static struct scry_agent_front *front_of(uint64_t hash)
{
	return &scry_agent_tables.front[hash >> 40 & (SCRY_SITE_FRONT - 1)];
}

static void empty_slot(uint32_t slot)
{
	struct scry_agent_front *front = front_of(hash_of(&scry_agent_tables.keys[slot]));

	if (front->slot == slot)
		front->key.code = 0;
	unlink_iseq(slot);
	unlink_klass(slot);
	scry_agent_tables.keys[slot].code = 0;
}

static void fill_slot(uint32_t slot, const struct scry_agent_key *key, uint64_t iseq)
{
	struct scry_agent_link *link = &scry_agent_tables.links[slot];
	uint32_t *head;

	scry_agent_tables.keys[slot] = *key;
	head = &scry_agent_tables.iseq_heads[head_of(iseq)];
	if (*head)
		scry_agent_tables.links[*head - 1].prev_iseq = slot + 1;
	*link = (struct scry_agent_link){.iseq = iseq, .next_iseq = *head};
	*head = slot + 1;
	head = &scry_agent_tables.klass_heads[head_of(class_of(slot))];
	if (*head)
		scry_agent_tables.links[*head - 1].prev_klass = slot + 1;
	link->next_klass = *head;
	*head = slot + 1;
}

static __attribute__((noinline)) uint32_t define(uint32_t set, const struct scry_agent_key *key,
						 const struct scry_agent_place *place,
						 const uint64_t *object)
{
	uint32_t slot = set + (scry_agent_objects.evict++ & 3);

	for (uint32_t way = 0; way < 4; way++)
		if (!scry_agent_tables.keys[set + way].code)
			slot = set + way;
	if (!scry_define(slot + 1, place, object[1], object[0]))
		return 0;
	if (scry_agent_tables.keys[slot].code)
		empty_slot(slot);
	fill_slot(slot, key, place->iseq);
	return slot + 1;
}

/* The whole table. Its slot + 1, 0: no room in the ring. */
static uint32_t look_up(uint64_t hash, const struct scry_agent_key *key,
			const struct scry_agent_place *place, const uint64_t *object)
{
	uint32_t set = (uint32_t)(hash >> 50) << 2;
	const struct scry_agent_key *k = &scry_agent_tables.keys[set];

	for (uint32_t way = 0; way < 4; way++)
		if (likely(k[way].code == key->code && k[way].klass == key->klass))
			return set + way + 1;
	return define(set, key, place, object);
}

SCRY_INTO_CALLERS uint32_t scry_site_code(const struct scry_agent_place *place,
					  const uint64_t *object)
{
	/* bit 61 keeps a place without a Ruby frame from looking empty */
	struct scry_agent_key key = {
		.code = 1ull << 61 | place->pc >> 3 << 17 | (uint64_t)place->depth << 1 |
			place->top,
		.klass = (object[1] >> 3 << 5 | (object[0] & 0x1f)) ^
			 (uint64_t)scry_agent_objects.generation << GENERATION_SHIFT,
	};
	uint64_t hash = hash_of(&key);
	struct scry_agent_front *front = front_of(hash);
	uint32_t slot;

	if (likely(front->key.code == key.code && front->key.klass == key.klass))
		return (uint32_t)front->slot + 1;
	slot = look_up(hash, &key, place, object);
	if (slot)
		*front = (struct scry_agent_front){.key = key, .slot = slot - 1};
	return slot;
}

void scry_site_forget_iseq(uint64_t iseq)
{
	uint32_t at = scry_agent_tables.iseq_heads[head_of(iseq)];

	while (at) {
		uint32_t slot = at - 1;

		at = scry_agent_tables.links[slot].next_iseq;
		if (scry_agent_tables.links[slot].iseq == iseq)
			empty_slot(slot);
	}
}

void scry_site_forget_class(uint64_t klass)
{
	uint32_t at = scry_agent_tables.klass_heads[head_of(klass)];

	while (at) {
		uint32_t slot = at - 1;

		at = scry_agent_tables.links[slot].next_klass;
		if (class_of(slot) == klass)
			empty_slot(slot);
	}
}

void scry_site_forget_all(void)
{
	scry_agent_objects.generation = (scry_agent_objects.generation + 1) & GENERATIONS;
	if (scry_agent_objects.generation)
		return;
	for (uint32_t i = 0; i < SCRY_SITE_HEADS; i++)
		scry_agent_tables.iseq_heads[i] = scry_agent_tables.klass_heads[i] = 0;
	for (uint32_t i = 0; i < SCRY_SITE_FRONT; i++)
		scry_agent_tables.front[i].key.code = 0;
	for (uint32_t i = 0; i < SCRY_SITE_SLOTS; i++)
		scry_agent_tables.keys[i].code = 0;
}
