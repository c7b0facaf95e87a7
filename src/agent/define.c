/*
 * A DEF record: what a piece of code is called and on which line it stands, copied while it is
 * alive.
 *
 * Evaluated code may be gone a millisecond later, so its names are copied here and not looked up by
 * the keeper afterwards. Plain loads only, along a layout that was learned and validated; each step
 * is checked (flags of the iseq, pc inside its code, sizes bounded), and where a check fails the
 * record says "unknown" and the `bad` counter goes up. Runs once per site, not per object.
 */
#include "agent/agent.h"
#include "agent/load.h"
#include "agent/syscall.h"

#define COPY_BYTES 256u
#define COPIES 4u

/*
 * In a handler of the VM's own, what is looked at is whole (NULL). In one of malloc the VM may be
 * anywhere, or another thread be moving objects, with the pages that they leave made unreadable:
 * then the kernel copies blocks, which are kept for one description, and what cannot be read is 0.
 */
struct copies {
	uint64_t at[COPIES]; /* aligned, so within a page; odd: none yet */
	uint8_t bytes[COPIES][COPY_BYTES];
};

static const uint8_t *copy_of(struct copies *c, uint64_t from)
{
	uint64_t block = from - from % COPY_BYTES, slot = block / COPY_BYTES % COPIES;

	if (c->at[slot] != block) {
		const struct scry_agent_piece piece = {block, COPY_BYTES},
					      to = {(uint64_t)c->bytes[slot], COPY_BYTES};

		c->at[slot] = block;
		if (scry_agent_read(scry_agent.lines.pid, to, &piece, 1) != COPY_BYTES)
			for (uint64_t i = 0; i < COPY_BYTES; i++)
				c->bytes[slot][i] = 0;
	}
	return &c->bytes[slot][from % COPY_BYTES];
}

static void look(struct copies *c, uint64_t from, void *to, uint64_t size)
{
	for (uint64_t i = 0; i < size; i++)
		((uint8_t *)to)[i] =
			c ? *copy_of(c, from + i) : *(const volatile uint8_t *)(from + i);
}

static uint64_t look64(struct copies *c, uint64_t address)
{
	uint64_t value;

	if (likely(!c))
		return load64(address);
	look(c, address, &value, sizeof(value));
	return value;
}

static uint32_t look32(struct copies *c, uint64_t address)
{
	uint32_t value;

	if (likely(!c))
		return load32(address);
	look(c, address, &value, sizeof(value));
	return value;
}

static uint32_t ones(uint64_t bits) /* the popcnt instruction may be missing, libgcc is */
{
	bits -= bits >> 1 & 0x5555555555555555ull;
	bits = (bits & 0x3333333333333333ull) + (bits >> 2 & 0x3333333333333333ull);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return (uint32_t)(bits * 0x0101010101010101ull >> 56);
}

/*
 * Rank query on the VM's succinct table of line entries (iseq.c, succ_index_lookup): positions
 * below 54 have a 7-bit count each, nine to a word; later ones lie in blocks of 512 positions (80
 * bytes: rank, seven 9-bit partial ranks, eight words of bits).
 */
static uint32_t rank(struct copies *c, uint64_t table, uint32_t position)
{
	uint32_t in_block, group;
	uint64_t block, bits, partial;

	if (position < 54)
		return look64(c, table + position / 9 * 8) >> (position % 9 * 7) & 0x7f;
	position -= 54;
	block = table + 48 + position / 512 * 80ull;
	in_block = position % 512;
	group = in_block / 64;
	partial = group ? look64(c, block + 8) >> (group - 1) * 9 & 0x1ff : 0;
	bits = look64(c, block + 16 + group * 8) << (63 - in_block % 64);
	return look32(c, block) + (uint32_t)partial + ones(bits);
}

static uint32_t line_of(struct copies *c, uint64_t body, uint32_t position)
{
	const struct scry_agent_ruby *r = &scry_agent.ruby;
	uint64_t info = body + r->body_insns_info;
	uint64_t entries = look64(c, info + r->insns_entries);
	uint32_t count = look32(c, info + r->insns_count);
	uint64_t table = look64(c, info + r->insns_succ);
	uint32_t entry = 0;

	if (!count || !is_pointer(entries & ~7ull))
		return 0;
	if (count > 1) {
		if (!is_pointer(table))
			return 0;
		entry = rank(c, table, position);
		if (!entry || entry > count)
			return 0;
		entry--;
	}
	return look32(c, entries + (uint64_t)entry * r->insns_entry_size + r->insns_entry_line);
}

/* Copies at most `room` bytes of the Ruby String `value`; returns how many. */
static uint32_t copy_string(struct copies *c, uint64_t value, uint8_t *to, uint32_t room)
{
	const struct scry_agent_ruby *r = &scry_agent.ruby;
	uint64_t flags, length, text;

	if (!is_pointer(value))
		return 0;
	flags = look64(c, value);
	if ((flags & SCRY_TYPE_MASK) != SCRY_TYPE_STRING)
		return 0;
	if (flags & r->string_noembed) {
		length = look64(c, value + r->string_len);
		text = look64(c, value + r->string_ptr);
	} else {
		length = r->string_embed_len_mask
				 ? (flags & r->string_embed_len_mask) >> r->string_embed_len_shift
				 : look64(c, value + r->string_len);
		text = value + r->string_embed;
	}
	if (!text || length > 1u << 20)
		return 0;
	if (length > room) { /* the end of a path says more than its beginning */
		text += length - room;
		length = room;
	}
	look(c, text, to, length);
	return (uint32_t)length;
}

/* A path is a String, or an Array whose first element is one. */
static uint32_t copy_path(struct copies *c, uint64_t value, uint8_t *to, uint32_t room)
{
	const struct scry_agent_ruby *r = &scry_agent.ruby;
	uint64_t flags;

	if (!is_pointer(value))
		return 0;
	flags = look64(c, value);
	if ((flags & SCRY_TYPE_MASK) == SCRY_TYPE_ARRAY) {
		uint64_t at = flags & r->array_embed ? value + r->array_embed_ptr
						     : look64(c, value + r->array_ptr);

		if (!is_pointer(at))
			return 0;
		value = look64(c, at);
	}
	return copy_string(c, value, to, room);
}

uint32_t scry_copy_string(uint64_t value, uint8_t *to, uint32_t room)
{
	return copy_string(NULL, value, to, room);
}

void scry_describe(struct scry_ring_def *def, const struct scry_agent_place *place, uint8_t *text)
{
	const struct scry_agent_ruby *r = &scry_agent.ruby;
	uint64_t body, encoded, first;
	uint32_t size, path_room = SCRY_DEF_TEXT_MAX / 2;
	struct copies copies, *c;

	for (uint32_t i = 0; i < COPIES; i++)
		copies.at[i] = 1;
	c = scry_agent.line_plan.on ? &copies : NULL;
	if (!is_pointer(place->iseq) ||
	    (look64(c, place->iseq) & r->iseq_flags_mask) != r->iseq_flags_value)
		goto bad;
	body = look64(c, place->iseq + r->iseq_body);
	if (!is_pointer(body))
		goto bad;
	encoded = look64(c, body + r->body_encoded);
	size = look32(c, body + r->body_size);
	if (place->pc < encoded || place->pc > encoded + 8ull * size)
		goto bad;
	def->iseq = place->iseq;
	def->position = (uint32_t)((place->pc - encoded) / 8);
	def->opcode = def->position < size ? look64(c, place->pc) : 0;
	for (uint32_t i = 0; i < SCRY_DEF_BEFORE && i < def->position; i++)
		def->before[i] = look64(c, place->pc - 8 * (i + 1));
	def->line_at = def->position < size ? line_of(c, body, def->position) : 0;
	def->line_before = line_of(c, body, def->position ? def->position - 1 : 0);
	first = look64(c, body + r->body_first_line);
	def->first_line = (uint32_t)(r->first_line_is_value ? first >> 1 : first);
	def->path_size = (uint16_t)copy_path(c, look64(c, body + r->body_path), text, path_room);
	def->label_size = (uint16_t)copy_string(c, look64(c, body + r->body_label),
						text + def->path_size, SCRY_DEF_TEXT_MAX / 4);
	return;
bad:
	scry_agent.control->bad++;
}

/* Words of `record`, the escape word before it; 0: no room. */
static int send(uint32_t kind, const uint64_t *record, uint64_t words)
{
	struct scry_gate *g = scry_agent.gate;

	if (!scry_ring_reserve(g, words + 1))
		return 0;
	scry_ring_put(g, SCRY_RING_ESCAPE_WORD(kind, words));
	for (uint64_t i = 0; i < words; i++)
		scry_ring_put(g, record[i]);
	scry_agent.control->defs++;
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
	scry_end_before_ractor(scry_agent.gate, flags, klass);
	if (place->pc)
		scry_describe(&record.def, place, (uint8_t *)record.text);
	size = record.def.path_size + record.def.label_size;
	if ((flags & SCRY_TYPE_MASK) != SCRY_TYPE_IMEMO) /* it has no class: the word is its own */
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

	scry_describe(&def, &place, (uint8_t *)record.text);
	record.node = (struct scry_ring_node){.node = node,
					      .parent = parent,
					      .line = def.line_before,
					      .path_size = def.path_size,
					      .label_size = def.label_size};
	return send(SCRY_RING_NODE, (uint64_t *)&record,
		    (sizeof(record.node) + def.path_size + def.label_size + 7u) / 8);
}
