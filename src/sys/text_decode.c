/*
 * Decoding the code of an object, a unit at a time, from its first byte to its last.
 *
 * Zydis in its minimal mode: lengths, displacements, immediates; nothing is known of operands, and
 * nothing more is needed. After a byte that is no instruction a range goes on at the next byte, a
 * gap is given up.
 */
#include "sys/text_decode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <Zydis/Zydis.h>

#include "base/err.h"

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
			return scry_fail(-ENOMEM, "no memory for %zu references", more);
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

/* An operand that is an address: of code, a pointer; of other bytes, maybe a table. */
static int take_address(struct decoding *d, uint64_t source, uint64_t address)
{
	struct scry_text *text = d->text;
	struct scry_text_lea lea = {
		.range = d->range, .source = (uint32_t)(source - text->base), .address = address};

	if (address >= text->base && address < text->end)
		return scry_text_add(text, source, address, SCRY_TRANSFER_POINTER);
	if (d->range == SCRY_TEXT_NO_PARENT || !scry_image_part(&text->image, address))
		return 0;
	return add_lea(text, &lea);
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
	if (is_default && z->opcode == 0xff && z->raw.modrm.reg == 4 && !is_rip &&
	    d->range != SCRY_TEXT_NO_PARENT)
		d->text->ranges[d->range].jumps_indirect = true;
	if (is_rip && is_default && z->opcode == 0x8d)
		r = take_address(d, address, address + z->length + (uint64_t)z->raw.disp.value);
	if (r == 0 && d->text->is_fixed && z->raw.imm[0].size == 32)
		r = take_address(d, address, (uint32_t)z->raw.imm[0].value.u);
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

static int decode_range(struct decoding *d, size_t i)
{
	const struct scry_text_range *range = &d->text->ranges[i];
	uint64_t at = range->start;
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
			at++;
		}
	}
	return 0;
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

/* What looked like code and then was none is constants of assembly, in which short branches to what
 * is near are found by chance: they are taken back. Long ones by chance lead nowhere of interest.
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
static int decode_gap(struct decoding *d, uint64_t from, uint64_t to)
{
	size_t avail, skip, first = d->text->words.count;
	const uint8_t *bytes = scry_image_at(&d->text->image, from, &avail);
	uint64_t at;

	d->range = SCRY_TEXT_NO_PARENT;
	if (!bytes || avail < to - from)
		return 0; /* between two segments */
	skip = filler(d, bytes, to - from);
	at = decode_run(d, bytes + skip, from + skip, to);
	if (!at)
		return -ENOMEM;
	d->text->stats.gap_bytes += at - (from + skip);
	if (at < to) {
		d->text->stats.gap_errors++;
		drop_short(d->text, first);
	}
	return 0;
}

/* Where code begins before the first range, or ends behind the last: with the segment, unless that
 * holds the file's head, and so data, too. */
static uint64_t edge(const struct scry_text *text, uint64_t addr, bool is_end)
{
	const struct scry_image_part *part = scry_image_part(&text->image, addr);

	if (part->end - part->start >= 4 && memcmp(part->bytes,
						   "\x7f"
						   "ELF",
						   4) == 0)
		return is_end ? addr + 1 : addr;
	return is_end ? part->end : part->start;
}

static int decode(struct decoding *d, size_t unit)
{
	const struct scry_text *text = d->text;
	const size_t i = unit / 2;
	uint64_t from, to;

	if (unit & 1)
		return decode_range(d, i);
	from = i ? text->ranges[i - 1].end : edge(text, text->ranges[0].start, false);
	to = i < text->count ? text->ranges[i].start : edge(text, from - 1, true);
	return from < to ? decode_gap(d, from, to) : 0;
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

static void note_load(const ZydisDecodedInstruction *z, uint64_t address, const uint64_t *words,
		      size_t count, bool *ret)
{
	uint64_t word = address + z->length + (uint64_t)z->raw.disp.value;
	size_t low = 0, high = count;
	bool is_transfer = z->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && z->opcode == 0xff &&
			   (z->raw.modrm.reg == 2 || z->raw.modrm.reg == 4);

	if (is_transfer || !is_rip_relative(z))
		return;
	while (low < high) {
		size_t middle = (low + high) / 2;

		if (words[middle] < word)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < count && words[low] == word)
		ret[low] = true;
}

void scry_text_loads(const struct scry_text *text, const uint64_t *words, size_t count, bool *ret)
{
	ZydisDecodedInstruction z;
	ZydisDecoder decoder;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_MINIMAL, ZYAN_TRUE);
	for (size_t i = 0; i < text->count; i++) {
		const struct scry_text_range *range = &text->ranges[i];
		size_t avail, size = range->end - range->start;
		const uint8_t *bytes = scry_image_at(&text->image, range->start, &avail);

		size = bytes && avail < size ? avail : size;
		for (size_t at = 0; bytes && at < size;) {
			if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, NULL, bytes + at,
									size - at, &z))) {
				at++;
				continue;
			}
			note_load(&z, range->start + at, words, count, ret);
			at += z.length;
		}
	}
}
