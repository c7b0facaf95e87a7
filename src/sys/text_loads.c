/*
 * Which words the code of an object reads as data.
 *
 * An instruction has the distance to its word in four bytes. Few of all such four bytes could lead
 * to a word that is asked for; only the ranges that have them are decoded.
 */
#include <string.h>

#include <Zydis/Zydis.h>

#include "sys/text_decode.h"

#include "base/bisect.h"

static bool is_rip_relative(const ZydisDecodedInstruction *z)
{
	return (z->attributes & ZYDIS_ATTRIB_HAS_MODRM) && z->raw.modrm.mod == 0 &&
	       z->raw.modrm.rm == 5 && z->raw.disp.size == 32;
}

/* Words that are asked for. */
struct asked {
	const uint64_t *words; /* ascending */
	size_t count;
	bool *ret;
};

/* The index of `word`, or count. */
static size_t asked_at(const struct asked *asked, uint64_t word)
{
	const size_t low = scry_bisect(asked->count, i, asked->words[i] < word);

	return low < asked->count && asked->words[low] == word ? low : asked->count;
}

static void note_load(const ZydisDecodedInstruction *z, uint64_t address, const struct asked *asked)
{
	size_t i = asked_at(asked, address + z->length + (uint64_t)z->raw.disp.value);
	bool is_transfer = z->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && z->opcode == 0xff &&
			   (z->raw.modrm.reg == 2 || z->raw.modrm.reg == 4);

	if (!is_transfer && is_rip_relative(z) && i < asked->count)
		asked->ret[i] = true;
}

static void note_loads(const ZydisDecoder *decoder, const struct scry_text *text,
		       const struct scry_text_range *range, const struct asked *asked)
{
	ZydisDecodedInstruction z;
	size_t avail, size = range->end - range->start;
	const uint8_t *bytes = scry_image_at(&text->image, range->start, &avail);

	size = bytes && avail < size ? avail : size;
	for (size_t at = 0; bytes && at < size;) {
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(decoder, NULL, bytes + at,
								size - at, &z))) {
			at++;
			continue;
		}
		note_load(&z, range->start + at, asked);
		at += z.length;
	}
}

/* Could the four bytes at `at` of a part be the displacement of an asked word? An immediate may
 * follow. */
static bool is_reference(const struct scry_image_part *part, uint64_t at, const struct asked *asked)
{
	static const uint8_t immediates[] = {0, 1, 2, 4};
	const uint64_t low = asked->words[0], high = asked->words[asked->count - 1];
	uint64_t word;
	int32_t rel;

	memcpy(&rel, part->bytes + (at - part->start), sizeof(rel));
	word = at + sizeof(rel) + (uint64_t)(int64_t)rel;
	if (word + 4 < low || word > high)
		return false;
	for (size_t i = 0; i < sizeof(immediates); i++)
		if (asked_at(asked, word + immediates[i]) < asked->count)
			return true;
	return false;
}

/* Outside of ranges, where instructions are not known to begin: all but a call and a jmp. */
static void note_gap(const struct scry_image_part *part, uint64_t at, const struct asked *asked)
{
	const uint8_t *bytes = part->bytes + (at - part->start);
	bool is_transfer = at - part->start >= 2 && bytes[-2] == 0xff &&
			   (bytes[-1] == 0x15 || bytes[-1] == 0x25);
	int32_t rel;

	if (is_transfer)
		return;
	memcpy(&rel, bytes, sizeof(rel));
	for (size_t i = 0; i <= 4; i++) {
		size_t k = asked_at(asked, at + 4 + i + (uint64_t)(int64_t)rel);

		if (k < asked->count)
			asked->ret[k] = true;
	}
}

/* As few functions have a reference, only these are decoded. */
void scry_text_loads(const struct scry_text *text, const uint64_t *words, size_t count, bool *ret)
{
	const struct asked asked = {words, count, ret};
	ZydisDecoder decoder;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_MINIMAL, ZYAN_TRUE);
	for (size_t i = 0; i < text->image.count && count; i++) {
		const struct scry_image_part *part = &text->image.parts[i];

		if (!(part->flags & PF_X))
			continue;
		for (uint64_t at = part->start; at + 4 <= part->end; at++) {
			const struct scry_text_range *range;

			if (!is_reference(part, at, &asked))
				continue;
			range = scry_text_find(text, at);
			if (!range) {
				note_gap(part, at, &asked);
				continue;
			}
			note_loads(&decoder, text, range, &asked);
			at = range->end - 1;
		}
	}
}
