/*
 * Decoding the code of an object, a unit at a time, from its first byte to its last.
 *
 * Zydis in its minimal mode: lengths, displacements, immediates; nothing is known of operands, and
 * nothing more is needed. After a byte that is not an instruction a range goes on at the next byte,
 * a gap is given up. Where constants may lie between instructions, as in gaps and in ranges with
 * such a byte, decoding may have lost its place without a sign: there whatever could be a branch at
 * any byte counts, too, as a pointer.
 */
#include "sys/text_decode.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <Zydis/Zydis.h>

#include "base/err.h"

#define PROSE_MIN 24u /* code of so many bytes has some that is not a character */

struct decoding {
	struct scry_text *text;
	ZydisDecoder decoder;
	uint32_t range; /* index, or SCRY_TEXT_NO_PARENT in a gap */
};

static int add_lea(struct scry_text *text, const struct scry_text_lea *lea)
{
	struct scry_text_leas *leas = &text->leas;

	if (leas->count == leas->room) {
		size_t more = leas->room ? 2 * leas->room : 1024;
		struct scry_text_lea *rows = reallocarray(leas->rows, more, sizeof(*rows));

		if (!rows)
			return scry_no_memory("%zu references", more);
		leas->rows = rows;
		leas->room = more;
	}
	leas->rows[leas->count++] = *lea;
	return 0;
}

/* Kind of a relative branch, or -1 (xbegin: its target is entered by an abort only). */
static int branch_kind(const ZydisDecodedInstruction *z)
{
	bool is_short = z->raw.imm[0].size == 8;

	if (z->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT) {
		if (z->opcode == 0xe8)
			return SCRY_TRANSFER_CALL32;
		if (z->opcode == 0xe9)
			return SCRY_TRANSFER_JMP32;
		if (z->opcode == 0xeb)
			return SCRY_TRANSFER_JMP8;
		if (z->opcode >= 0xe0 && z->opcode <= 0xe3)
			return SCRY_TRANSFER_LOOP8;
		if (z->opcode == 0xc7)
			return SCRY_TRANSFER_JCC32; /* xbegin */
	}
	return is_short ? SCRY_TRANSFER_JCC8 : SCRY_TRANSFER_JCC32;
}

static bool is_rip_relative(const ZydisDecodedInstruction *z)
{
	return (z->attributes & ZYDIS_ATTRIB_HAS_MODRM) && z->raw.modrm.mod == 0 &&
	       z->raw.modrm.rm == 5 && z->raw.disp.size == 32;
}

static bool is_code(const struct scry_text *text, uint64_t address)
{
	return address >= text->base && address < text->end;
}

/* An operand that is an address: of code, a pointer; of other bytes, maybe a table. Tables may lie
 * among the code, where no function begins. */
static int take_address(struct decoding *d, uint64_t source, uint64_t address)
{
	struct scry_text *text = d->text;
	struct scry_text_lea lea = {
		.range = d->range, .source = (uint32_t)(source - text->base), .address = address};
	const struct scry_text_range *at;
	int r = 0;

	if (is_code(text, address)) {
		at = scry_text_find(text, address);
		r = scry_text_add(text, source, address, SCRY_TRANSFER_POINTER);
		if (r < 0 || (at && at->start == address))
			return r;
	}
	if (d->range == SCRY_TEXT_NO_PARENT || !scry_image_part(&text->image, address))
		return 0;
	return add_lea(text, &lea);
}

/* Of an object at a fixed address: immediates and displacements of 32 bits, and immediates of 64,
 * may be addresses. */
static int take_numbers(struct decoding *d, const ZydisDecodedInstruction *z, uint64_t source)
{
	int r = 0;

	if (z->raw.imm[0].size == 32)
		r = take_address(d, source, (uint32_t)z->raw.imm[0].value.u);
	else if (z->raw.imm[0].size == 64)
		r = take_address(d, source, z->raw.imm[0].value.u);
	if (r == 0 && z->raw.disp.size == 32 && !is_rip_relative(z))
		r = take_address(d, source, (uint32_t)z->raw.disp.value);
	return r;
}

static int take_insn(struct decoding *d, const ZydisDecodedInstruction *z, uint64_t address)
{
	bool is_default = z->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT;
	bool is_rip = is_rip_relative(z);
	int r = 0;

	if (z->raw.imm[0].is_relative)
		return scry_text_add(d->text, address,
				     address + z->length + (uint64_t)z->raw.imm[0].value.s,
				     branch_kind(z));
	if (is_default && z->opcode == 0xff && z->raw.modrm.reg == 4 &&
	    d->range != SCRY_TEXT_NO_PARENT) {
		d->text->units[2 * d->range + 1].has_jump = true;
		d->text->ranges[d->range].jumps_indirect |= !is_rip;
	}
	if (is_rip && is_default && z->opcode == 0x8d)
		r = take_address(d, address, address + z->length + (uint64_t)z->raw.disp.value);
	if (r == 0 && d->text->is_fixed)
		r = take_numbers(d, z, address);
	return r;
}

/* Decodes [start, end) of `bytes`. Returns where it ended: end, or the first bad byte; 0: no
 * memory. */
static uint64_t decode_run(struct decoding *d, const uint8_t *bytes, uint64_t start, uint64_t end)
{
	ZydisDecodedInstruction z;
	uint64_t at = start;

	while (at < end) {
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(
			    &d->decoder, NULL, bytes + (at - start), end - at, &z)))
			return at;
		d->text->stats.instructions++;
		if (take_insn(d, &z, at) < 0)
			return 0;
		at += z.length;
	}
	return at;
}

/* Where the bytes would lead, were they a branch or a lea; 0: they can be none. `size`: of them. */
static uint64_t lead(const uint8_t *bytes, size_t size, uint64_t at)
{
	const uint8_t first = bytes[0], second = size > 1 ? bytes[1] : 0;
	const bool is_short = (first & 0xf0) == 0x70 || (first & 0xfc) == 0xe0 || first == 0xeb;
	const bool is_long = first == 0xe8 || first == 0xe9;
	size_t skip = is_long ? 1 : 2;
	int32_t rel;

	if (is_short && size >= 2)
		return at + 2 + (uint64_t)(int64_t)(int8_t)second;
	if (!is_long && !(first == 0x0f && (second & 0xf0) == 0x80) &&
	    !(first == 0xc7 && second == 0xf8) && !(first == 0x8d && (second & 0xc7) == 5))
		return 0;
	if (size < skip + sizeof(rel))
		return 0;
	memcpy(&rel, bytes + skip, sizeof(rel));
	return at + skip + sizeof(rel) + (uint64_t)(int64_t)rel;
}

/* Do the words from `first` on, of ascending sources, have a transfer to `target` from an
 * instruction that begins at `at` or, with prefixes, less than 8 bytes before? */
static bool is_known(const struct scry_text *text, size_t *first, size_t end, uint64_t at,
		     uint64_t target)
{
	const uint64_t *rows = text->words.rows;
	const uint64_t to = target - text->base, source = at - text->base + 1;

	while (*first < end && scry_word_source(rows[*first]) + 8 <= source)
		(*first)++;
	for (size_t i = *first; i < end && scry_word_source(rows[i]) <= source; i++)
		if (scry_word_target(rows[i]) == to)
			return true;
	return false;
}

/* How many characters of text are at `bytes`, if they are so many that they can be no code. */
static size_t prose(const uint8_t *bytes, size_t size)
{
	size_t n = 0;

	while (n < size && bytes[n] >= ' ' && bytes[n] <= '~')
		n++;
	return n >= PROSE_MIN ? n : 0;
}

/* Bytes, `from` up to `to`, that may be constants, code, or both: all that could lead from any of
 * them into a range counts. Words from `first` on are what was decoded there. */
static int take_all(struct decoding *d, const uint8_t *bytes, uint64_t from, uint64_t to,
		    size_t first)
{
	struct scry_text *text = d->text;
	const size_t end = text->words.count;
	int r = 0;

	for (uint64_t at = from; at < to && r == 0; at++) {
		uint64_t target;
		uint32_t word = 0;

		at += prose(bytes + (at - from), to - at);
		if (at == to)
			break;
		target = lead(bytes + (at - from), to - at, at);

		if (is_code(text, target) && scry_text_find(text, target) &&
		    !is_known(text, &first, end, at, target))
			r = scry_text_add(text, at, target, SCRY_TRANSFER_POINTER);
		if (!text->is_fixed || to - at < sizeof(word) || r < 0)
			continue;
		memcpy(&word, bytes + (at - from), sizeof(word));
		if (is_code(text, word) && scry_text_find(text, word))
			r = scry_text_add(text, at, word, SCRY_TRANSFER_POINTER);
	}
	return r;
}

static int decode_range(struct decoding *d, size_t i)
{
	const struct scry_text_range *range = &d->text->ranges[i];
	const size_t first = d->text->words.count;
	uint64_t at = range->start;
	bool is_broken = false;
	size_t avail;
	const uint8_t *bytes = scry_image_at(&d->text->image, at, &avail);

	d->range = (uint32_t)i;
	d->text->stats.range_bytes += range->end - at;
	while (at < range->end) {
		at = decode_run(d, bytes + (at - range->start), at, range->end);
		if (!at)
			return -ENOMEM;
		if (at < range->end) {
			d->text->stats.range_errors++;
			is_broken = true;
			at++;
		}
	}
	return is_broken ? take_all(d, bytes, range->start, range->end, first) : 0;
}

/* How many of the first `size` bytes are filler: int3, zeros, no-ops. */
static size_t filler(const struct decoding *d, const uint8_t *bytes, size_t size)
{
	size_t at = 0;

	while (at < size) {
		ZydisDecodedInstruction z;

		if (bytes[at] == 0xcc || bytes[at] == 0) {
			at++;
			continue;
		}
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&d->decoder, NULL, bytes + at,
								size - at, &z)) ||
		    z.mnemonic != ZYDIS_MNEMONIC_NOP)
			break;
		at += z.length;
	}
	return at;
}

/* What looked like code and then was none is constants of assembly: where its short branches lead
 * is kept, as a pointer, but they are not branches. Long ones by chance lead nowhere of interest.
 */
static void drop_short(struct scry_text *text, size_t first)
{
	size_t kept = first;

	for (size_t i = first; i < text->words.count; i++) {
		enum scry_transfer_kind kind = scry_word_kind(text->words.rows[i]);

		if (kind == SCRY_TRANSFER_JMP8 || kind == SCRY_TRANSFER_JCC8 ||
		    kind == SCRY_TRANSFER_LOOP8)
			text->stats.transfers[kind]--;
		else
			text->words.rows[kept++] = text->words.rows[i];
	}
	text->words.count = kept;
}

/* The bytes between two ranges: filler, else code without unwind tables. */
static int decode_gap(struct decoding *d, const uint8_t *bytes, uint64_t from, uint64_t to)
{
	const size_t first = d->text->words.count, skip = filler(d, bytes, to - from);
	uint64_t at = decode_run(d, bytes + skip, from + skip, to);

	if (!at)
		return -ENOMEM;
	d->text->stats.gap_bytes += at - (from + skip);
	if (at < to) {
		d->text->stats.gap_errors++;
		drop_short(d->text, first);
	}
	return skip < to - from ? take_all(d, bytes, from, to, first) : 0;
}

static bool has_head(const struct scry_image_part *part)
{
	return part->end - part->start >= SELFMAG && memcmp(part->bytes, ELFMAG, SELFMAG) == 0;
}

/* What executable segments have between two ranges, before the first, or behind the last. At such
 * an edge the segment that holds the file's head holds other data, too, megabytes maybe. */
static int decode_gaps(struct decoding *d, uint64_t from, uint64_t to, bool is_edge)
{
	const struct scry_image *image = &d->text->image;
	int r = 0;

	d->range = SCRY_TEXT_NO_PARENT;
	for (size_t i = 0; i < image->count && r == 0; i++) {
		const struct scry_image_part *part = &image->parts[i];
		uint64_t start = from > part->start ? from : part->start;
		uint64_t end = to < part->end ? to : part->end;
		const uint8_t *bytes = part->bytes + (start - part->start);

		if (!(part->flags & PF_X) || start >= end)
			continue;
		r = is_edge && has_head(part) ? take_all(d, bytes, start, end, d->text->words.count)
					      : decode_gap(d, bytes, start, end);
	}
	return r;
}

static int decode(struct decoding *d, size_t unit)
{
	const struct scry_text *text = d->text;
	const size_t i = unit / 2;
	bool is_edge = i == 0 || i == text->count;

	if (unit & 1)
		return decode_range(d, i);
	return decode_gaps(d, i ? text->ranges[i - 1].end : text->base,
			   i < text->count ? text->ranges[i].start : text->end, is_edge);
}

int scry_text_decode(struct scry_text *text, size_t unit)
{
	struct scry_text_unit *u = &text->units[unit];
	struct decoding d = {.text = text};
	int r;

	if (u->is_decoded)
		return 0;
	ZydisDecoderInit(&d.decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	ZydisDecoderEnableMode(&d.decoder, ZYDIS_DECODER_MODE_MINIMAL, ZYAN_TRUE);
	u->word = (uint32_t)text->words.count;
	u->lea = (uint32_t)text->leas.count;
	r = decode(&d, unit);
	if (r < 0)
		return r;
	u->word_end = (uint32_t)text->words.count;
	u->lea_end = (uint32_t)text->leas.count;
	u->is_decoded = true;
	scry_text_chain(text);
	return 0;
}
