/*
 * What a piece of a Ruby's code is called and on which line it begins: see code.h.
 *
 * Loads, or copies by the kernel, along a layout that was learned and validated; each step is
 * checked (flags of the iseq, pc inside its code, sizes bounded), and where a check fails it is
 * "unknown" and the `bad` counter goes up.
 */
#include "agent/code.h"

#include "agent/load.h"
#include "agent/vm.h"

struct scry_agent_vm scry_agent_vm;

#define COPY_BYTES 256u
#define COPIES 6u
#define NO_COPY 1u /* an address that no block has */

/*
 * In a handler of the VM's own, what is looked at is whole (NULL), once the layout has been judged
 * on this process. In one of malloc the VM may be anywhere, or another thread be moving objects,
 * with the pages that they leave made unreadable, and before the judgement a pointer may be none:
 * then the kernel copies blocks, several at a time, which are kept for one description, and what
 * cannot be read is 0.
 */
struct copies {
	uint32_t next;	     /* is overwritten next */
	uint64_t at[COPIES]; /* aligned, so within a page */
	uint8_t bytes[COPIES][COPY_BYTES];
};

static struct copies *copies_init(struct copies *c)
{
	if (!scry_agent.line_plan.on && likely(!scry_agent_vm.ruby.judge_first))
		return NULL;
	c->next = 0;
	for (uint32_t i = 0; i < COPIES; i++)
		c->at[i] = NO_COPY;
	return c;
}

static uint32_t find_copy(const struct copies *c, uint64_t block)
{
	uint32_t i = 0;

	while (i < COPIES && c->at[i] != block)
		i++;
	return i;
}

/* The blocks of all these addresses by one system call. Those behind one that cannot be read are
 * asked for again when they are needed. */
static void copy_ahead(struct copies *c, const uint64_t *addresses, uint32_t count)
{
	struct scry_agent_piece pieces[COPIES], to;
	uint32_t first, n = 0;
	int64_t got;

	if (!c)
		return;
	if (c->next + count > COPIES)
		c->next = 0;
	first = c->next;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t block = addresses[i] - addresses[i] % COPY_BYTES;

		if (!block || find_copy(c, block) < COPIES)
			continue;
		pieces[n++] = (struct scry_agent_piece){block, COPY_BYTES};
		c->at[c->next++] = block;
	}
	if (!n)
		return;
	to = (struct scry_agent_piece){(uint64_t)c->bytes[first], (uint64_t)n * COPY_BYTES};
	got = scry_calling_read((struct scry_agent_pieces){&to, 1},
				(struct scry_agent_pieces){pieces, n});
	for (uint32_t i = 0; i < n; i++)
		if (got < (int64_t)(i + 1) * COPY_BYTES)
			c->at[first + i] = NO_COPY;
}

static const uint8_t *copy_of(struct copies *c, uint64_t from)
{
	uint64_t block = from - from % COPY_BYTES;
	uint32_t i = find_copy(c, block);

	if (i == COPIES) {
		copy_ahead(c, &from, 1);
		i = find_copy(c, block);
	}
	if (i == COPIES) {
		i = c->next < COPIES ? c->next : 0;
		c->next = i + 1;
		c->at[i] = block;
		for (uint32_t k = 0; k < COPY_BYTES; k++)
			c->bytes[i][k] = 0;
	}
	return &c->bytes[i][from % COPY_BYTES];
}

static void look(struct copies *c, uint64_t from, void *to, uint64_t size)
{
	uint8_t *out = to;

	for (uint64_t i = 0; !c && i < size; i++)
		out[i] = *(const volatile uint8_t *)(from + i);
	while (c && size) {
		uint64_t n = COPY_BYTES - from % COPY_BYTES;
		const uint8_t *bytes = copy_of(c, from);

		n = n < size ? n : size;
		for (uint64_t i = 0; i < n; i++)
			out[i] = bytes[i];
		out += n;
		from += n;
		size -= n;
	}
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

static uint32_t line_of(struct copies *c, const struct scry_agent_code *code, uint32_t position)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	uint32_t entry = 0;

	if (!code->entry_count || !is_pointer(code->entries & ~7ull))
		return 0;
	if (code->entry_count > 1) {
		if (!is_pointer(code->ranks))
			return 0;
		entry = rank(c, code->ranks, position);
		if (!entry || entry > code->entry_count)
			return 0;
		entry--;
	}
	return look32(c,
		      code->entries + (uint64_t)entry * r->insns_entry_size + r->insns_entry_line);
}

/* Copies at most `room` bytes of the Ruby String `value`; returns how many. */
static uint32_t copy_string(struct copies *c, uint64_t value, uint8_t *to, uint32_t room)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
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
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
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

static int read_code(struct copies *c, const struct scry_agent_place *place,
		     struct scry_agent_code *code, uint8_t *text)
{
	const struct scry_agent_ruby *r = &scry_agent_vm.ruby;
	uint64_t body, info, path, label, first;

	if (!is_pointer(place->iseq) ||
	    (look64(c, place->iseq) & r->iseq_flags_mask) != r->iseq_flags_value)
		return 0;
	body = look64(c, place->iseq + r->iseq_body);
	if (!is_pointer(body))
		return 0;
	info = body + r->body_insns_info;
	copy_ahead(c,
		   (const uint64_t[]){body + r->body_encoded, body + r->body_path,
				      info + r->insns_succ, body + r->body_first_line},
		   4);
	code->start = look64(c, body + r->body_encoded);
	code->size = look32(c, body + r->body_size);
	if (place->pc < code->start || place->pc > code->start + 8ull * code->size)
		return 0;
	code->entries = look64(c, info + r->insns_entries);
	code->entry_count = look32(c, info + r->insns_count);
	code->ranks = look64(c, info + r->insns_succ);
	first = look64(c, body + r->body_first_line);
	code->first_line = (uint32_t)(r->first_line_is_value ? first >> 1 : first);
	path = look64(c, body + r->body_path);
	label = look64(c, body + r->body_label);
	copy_ahead(c, (const uint64_t[]){path, label, label + r->string_embed + 8}, 3);
	code->path_size = (uint16_t)copy_path(c, path, text, SCRY_DEF_TEXT_MAX / 2);
	code->label_size =
		(uint16_t)copy_string(c, label, text + code->path_size, SCRY_DEF_TEXT_MAX / 4);
	return 1;
}

int scry_code_read(const struct scry_agent_place *place, struct scry_agent_code *ret, uint8_t *text)
{
	struct copies copies;

	if (read_code(copies_init(&copies), place, ret, text))
		return 1;
	scry_account_of(scry_agent.control)->vm.bad++;
	return 0;
}

void scry_code_at(const struct scry_agent_code *code, uint64_t pc, struct scry_ring_def *def)
{
	uint32_t position = (uint32_t)((pc - code->start) / 8);
	uint64_t ranks = code->ranks;
	struct copies copies, *c = copies_init(&copies);

	if (position >= 54) /* see rank */
		ranks += 48 + (position - 54) / 512 * 80ull;
	copy_ahead(c, (const uint64_t[]){pc, pc - 8 * SCRY_DEF_BEFORE, ranks, code->entries}, 4);
	def->position = position;
	def->opcode = position < code->size ? look64(c, pc) : 0;
	for (uint32_t i = 0; i < SCRY_DEF_BEFORE; i++)
		def->before[i] = i < position ? look64(c, pc - 8 * (i + 1)) : 0;
	def->line_at = position < code->size ? line_of(c, code, position) : 0;
	def->line_before = line_of(c, code, position ? position - 1 : 0);
	def->first_line = code->first_line;
	def->path_size = code->path_size;
	def->label_size = code->label_size;
}
