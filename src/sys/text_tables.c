/*
 * Where control can go without a direct branch: switch tables, addresses in data, symbols.
 */
#include "sys/text_decode.h"

#include <errno.h>
#include <string.h>

#define ENTRIES_MAX 65536u	   /* of one table */
#define ALL_ENTRIES_MAX (4u << 20) /* of all: the largest programs have 1 % of it */

/* May a table of range `own` lead to range `to`? Into itself and its group of cold parts. Both are
 * settled. */
static bool is_in_group(const struct scry_text *text, uint32_t own, uint32_t to)
{
	uint32_t to_head = scry_text_head(text, to);

	return to == own || to_head == scry_text_head(text, own) || to_head == SCRY_TEXT_NO_PARENT;
}

/* Entries as long as they lead into the group; a table ends where the next one begins, too, but
 * one entry too many only makes us more careful. */
static int read_table(struct scry_text *text, struct scry_text_lea lea)
{
	size_t avail = 0;
	const uint8_t *bytes = scry_image_at(&text->image, lea.address, &avail);

	for (size_t i = 0; bytes && i < ENTRIES_MAX && 4 * i + 4 <= avail; i++) {
		const struct scry_text_range *to;
		uint64_t target;
		int32_t offset;
		int r;

		memcpy(&offset, bytes + 4 * i, sizeof(offset));
		target = lea.address + (uint64_t)(int64_t)offset;
		to = scry_text_find(text, target);
		r = to ? scry_text_settle(text, (size_t)(to - text->ranges)) : 0;
		if (r < 0)
			return r;
		if (!to || !is_in_group(text, lea.range, (uint32_t)(to - text->ranges)))
			return 0;
		r = scry_text_add(text, text->base + lea.source, target, SCRY_TRANSFER_TABLE);
		if (r < 0)
			return r;
	}
	return 0;
}

static bool is_code(const struct scry_text *text, uint64_t address)
{
	return address >= text->base && address < text->end;
}

/* Objects at a fixed address: every aligned word that could be an address of code. Data may lie in
 * the code's segment, too. */
static int scan_words(struct scry_text *text)
{
	for (size_t i = 0; i < text->image.count; i++) {
		const struct scry_image_part *part = &text->image.parts[i];
		uint64_t at = (part->start + 7) & ~7ull, word;

		if ((part->flags & (PF_X | PF_W)) == PF_X && !text->is_fixed)
			continue; /* relative relocations change data that can be written */
		for (; at + 8 <= part->end; at += 8) {
			memcpy(&word, part->bytes + (at - part->start), sizeof(word));
			if (is_code(text, word) &&
			    scry_text_add(text, 0, word, SCRY_TRANSFER_POINTER) < 0)
				return -ENOMEM;
		}
	}
	return 0;
}

static uint64_t dynamic_value(struct scry_elf *elf, const struct scry_image *image, int64_t tag)
{
	const Elf64_Phdr *p;

	for (size_t i = 0; (p = scry_elf_segment(elf, i)); i++) {
		size_t avail = 0;
		const uint8_t *bytes;
		Elf64_Dyn dyn;

		if (p->p_type != PT_DYNAMIC)
			continue;
		bytes = scry_image_at(image, p->p_vaddr, &avail);
		for (; bytes && avail >= sizeof(dyn); bytes += sizeof(dyn), avail -= sizeof(dyn)) {
			memcpy(&dyn, bytes, sizeof(dyn));
			if (dyn.d_tag == DT_NULL)
				break;
			if (dyn.d_tag == tag)
				return dyn.d_un.d_val;
		}
	}
	return 0;
}

/* RELATIVE and IRELATIVE relocations: their addends are addresses of ours. */
static int read_relocations(struct scry_text *text, struct scry_elf *elf, int64_t table,
			    int64_t size)
{
	uint64_t bytes_left = dynamic_value(elf, &text->image, size);
	size_t avail = 0;
	const uint8_t *bytes =
		scry_image_at(&text->image, dynamic_value(elf, &text->image, table), &avail);
	Elf64_Rela rela;

	if (!bytes || !bytes_left)
		return 0;
	if (bytes_left > avail)
		bytes_left = avail;
	for (; bytes_left >= sizeof(rela); bytes += sizeof(rela), bytes_left -= sizeof(rela)) {
		uint64_t type;

		memcpy(&rela, bytes, sizeof(rela));
		type = ELF64_R_TYPE(rela.r_info);
		if ((type == R_X86_64_RELATIVE || type == R_X86_64_IRELATIVE) &&
		    is_code(text, (uint64_t)rela.r_addend) &&
		    scry_text_add(text, 0, (uint64_t)rela.r_addend, SCRY_TRANSFER_POINTER) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Function symbols in the middle of a range or gap are entries that nothing else may know. So are
 * those that assembly exports without a type. */
static bool is_entry(const struct scry_sym *sym)
{
	return sym->type == STT_FUNC || sym->type == STT_GNU_IFUNC ||
	       (sym->type == STT_NOTYPE && sym->bind != STB_LOCAL);
}

static int take_symbol(const struct scry_sym *sym, void *arg)
{
	struct scry_text *text = arg;
	const struct scry_text_range *at;

	if (!is_entry(sym) || !is_code(text, sym->value))
		return 0;
	at = scry_text_find(text, sym->value);
	if (at && at->start == sym->value)
		return 0;
	return scry_text_add(text, 0, sym->value, SCRY_TRANSFER_POINTER);
}

int scry_text_pointers(struct scry_text *text, struct scry_elf *elf)
{
	int r = read_relocations(text, elf, DT_RELA, DT_RELASZ);

	if (r == 0)
		r = read_relocations(text, elf, DT_JMPREL, DT_PLTRELSZ);
	/* DT_RELR keeps its addends in place, as fixed objects do. */
	if (r == 0 && (text->is_fixed || dynamic_value(elf, &text->image, 36 /* DT_RELR */)))
		r = scan_words(text);
	if (r == 0)
		r = scry_elf_each_symbol(elf, take_symbol, text);
	return r;
}

/* Those behind the leas of a range. */
static int read_tables(struct scry_text *text, size_t range)
{
	const struct scry_text_unit *unit = &text->units[2 * range + 1];
	int r = 0;

	for (size_t i = unit->lea; i < unit->lea_end && r == 0; i++)
		if (text->stats.transfers[SCRY_TRANSFER_TABLE] > ALL_ENTRIES_MAX)
			text->stats.tables_unread++;
		else
			r = read_table(text, text->leas.rows[i]);
	scry_text_chain(text);
	return r;
}

/* Does a part of the group that was made last take an address in it? */
static bool takes_own(const struct scry_text *text)
{
	for (size_t i = 0; i < text->group.count; i++) {
		const struct scry_text_unit *unit = &text->units[2 * text->group.rows[i] + 1];

		for (size_t k = unit->word; k < unit->word_end; k++) {
			uint64_t word = text->words.rows[k];
			uint64_t target = text->base + scry_word_target(word);

			if (scry_word_kind(word) == SCRY_TRANSFER_POINTER &&
			    scry_text_is_in_group(text, target))
				return true;
		}
	}
	return false;
}

/* A table may be loaded in the hot part and used in the cold one, and the reverse. Where an address
 * in the group itself is taken, it may be the base of a table of differences, "&&a - &&b", which
 * may lie anywhere: where they lead is not known. (A switch takes the address of its table.) */
static int read_group(struct scry_text *text, uint32_t head)
{
	bool jumps = false, has_jump = false;
	int r;

	if (text->units[2 * head + 1].are_tables_read)
		return 0;
	r = scry_text_find_group(text, head);
	if (r < 0)
		return r;
	for (size_t i = 0; i < text->group.count; i++) {
		jumps |= text->ranges[text->group.rows[i]].jumps_indirect;
		has_jump |= text->units[2 * text->group.rows[i] + 1].has_jump;
	}
	text->units[2 * head + 1].is_computed = has_jump && takes_own(text);
	for (size_t i = 0; i < text->group.count && jumps && r == 0; i++)
		r = read_tables(text, text->group.rows[i]);
	text->units[2 * head + 1].are_tables_read = r == 0;
	return r;
}

bool scry_text_is_computed(const struct scry_text *text, size_t range)
{
	uint32_t head = scry_text_head(text, range);

	return head != SCRY_TEXT_NO_PARENT && text->units[2 * head + 1].is_computed;
}

int scry_text_all(struct scry_text *text)
{
	int r = 0;

	if (text->are_all_read)
		return 0;
	for (size_t i = 0; i < 2 * text->count + 1 && r == 0; i++)
		r = scry_text_decode(text, i);
	for (size_t i = 0; i < text->count && r == 0; i++) {
		r = scry_text_settle(text, i);
		if (r < 0)
			break;
		if (scry_text_head(text, i) != SCRY_TEXT_NO_PARENT)
			r = read_group(text, scry_text_head(text, i));
		else if (text->ranges[i].jumps_indirect)
			r = read_tables(text, i);
	}
	text->are_all_read = r == 0;
	return r;
}

int scry_text_tables(struct scry_text *text, size_t range)
{
	int r = scry_text_settle(text, range);

	if (r < 0 || text->are_all_read)
		return r;
	/* Whose part it is is not known: it may be any code's. */
	return scry_text_head(text, range) == SCRY_TEXT_NO_PARENT
		       ? scry_text_all(text)
		       : read_group(text, scry_text_head(text, range));
}
