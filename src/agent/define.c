/*
 * A DEF record: what a piece of code is called and on which line it begins, copied while it is
 * alive.
 *
 * Evaluated code may be gone a millisecond later, so its names are copied here (code.c) and not
 * looked up by the keeper afterwards. Runs once per site, not per object.
 */
#include "agent/code.h"
#include "agent/load.h"
#include "agent/objects.h"

static void describe(struct scry_ring_def *def, const struct scry_agent_place *place, uint8_t *text)
{
	struct scry_agent_code code;

	if (!scry_is_judged(place->pc) || !scry_code_read(place, &code, text))
		return;
	def->iseq = place->iseq;
	scry_code_at(&code, place->pc, def);
}

/* Words of `record`, the escape word before it; 0: no room. */
static int send(uint32_t kind, const uint64_t *record, uint64_t words)
{
	struct scry_state_page *g = scry_agent.state_page;

	if (!scry_ring_reserve(g, words + 1))
		return 0;
	scry_ring_put(g, SCRY_RING_ESCAPE_WORD(kind, words));
	for (uint64_t i = 0; i < words; i++)
		scry_ring_put(g, record[i]);
	return 1;
}

int scry_define(uint32_t slot, const struct scry_agent_place *place, uint64_t klass, uint64_t flags)
{
	struct {
		struct scry_ring_def def;
		uint64_t text[SCRY_DEF_TEXT_MAX / 8];
	} record;
	uint32_t size;

	record.def = (struct scry_ring_def){.slot = slot,
					    .klass = klass,
					    .flags = flags,
					    .depth = (uint16_t)place->depth,
					    .top = (uint16_t)place->top};
	scry_end_before_ractor(scry_agent.state_page, flags, klass);
	if (place->pc)
		describe(&record.def, place, (uint8_t *)record.text);
	size = record.def.path_size + record.def.label_size;
	if (scry_agent.state_page->wanted &&
	    (flags & SCRY_TYPE_MASK) != SCRY_TYPE_IMEMO) /* it has no class: the word is its own */
		record.def.class_size = (uint16_t)scry_class_name(
			klass, (uint8_t *)record.text + size, SCRY_DEF_TEXT_MAX - size);
	size += record.def.class_size;
	return send(SCRY_RING_DEF, (uint64_t *)&record, (sizeof(record.def) + size + 7) / 8);
}

int scry_define_node(uint32_t node, uint32_t parent, uint64_t pc, uint64_t iseq)
{
	struct {
		struct scry_ring_node node;
		uint64_t text[SCRY_DEF_TEXT_MAX / 8];
	} record;
	struct scry_agent_place place = {.pc = pc, .iseq = iseq};
	struct scry_ring_def def = {0};

	describe(&def, &place, (uint8_t *)record.text);
	record.node = (struct scry_ring_node){.node = node,
					      .parent = parent,
					      .line = def.line_before,
					      .path_size = def.path_size,
					      .label_size = def.label_size};
	return send(SCRY_RING_NODE, (uint64_t *)&record,
		    (sizeof(record.node) + def.path_size + def.label_size + 7u) / 8);
}
