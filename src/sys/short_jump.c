/*
 * Short-jump trampolines: where near a function lie 5 bytes that are not used.
 *
 * Filler is looked for behind each range within reach of a short jump, from the function outwards.
 * It must be filler to its last byte (no-ops, int3, zeros), follow code that does not run into it,
 * and nothing known may lead into it.
 */
#include "sys/short_jump.h"

#include <string.h>

#include <Zydis/Zydis.h>

#define REACH 127

/* How many bytes at `bytes` are filler. A no-op may be cut: its bytes are never run. */
static size_t filler(const uint8_t *bytes, size_t size)
{
	ZydisDecodedInstruction z;
	ZydisDecoder decoder;
	size_t at = 0;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	while (at < size) {
		if (bytes[at] == 0xcc || bytes[at] == 0) {
			at++;
			continue;
		}
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, NULL, bytes + at,
								size - at, &z)) ||
		    z.mnemonic != ZYDIS_MNEMONIC_NOP)
			break;
		at += z.length;
	}
	return at;
}

/* Does the range's code end with an instruction that does not go on into what follows? */
static bool ends(const struct scry_x86_code *code)
{
	ZydisDecodedInstruction z = {0};
	ZydisDecoder decoder;
	size_t at = 0;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	while (at < code->size) {
		if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, NULL, code->bytes + at,
								code->size - at, &z)))
			return false;
		at += z.length;
	}
	return z.meta.category == ZYDIS_CATEGORY_RET ||
	       z.meta.category == ZYDIS_CATEGORY_UNCOND_BR || z.mnemonic == ZYDIS_MNEMONIC_UD2 ||
	       z.mnemonic == ZYDIS_MNEMONIC_HLT;
}

/* A search: what is asked for, and the window's own bytes, which may be filler, too. */
struct search {
	const struct scry_short_jump_request *request;
	struct scry_short_jump_taken own;
	uint64_t from; /* the short jump's end */
};

static bool overlaps(const struct scry_short_jump_taken *a, const struct scry_short_jump_taken *b)
{
	return a->start < b->end && a->end > b->start;
}

static bool is_in_use(const struct scry_short_jump_request *request,
		      const struct scry_short_jump_taken *bytes)
{
	for (size_t i = 0; i < request->count; i++)
		if (overlaps(bytes, &request->taken[i]))
			return true;
	return false;
}

static bool is_taken(const struct search *s, uint64_t pad)
{
	const struct scry_short_jump_taken bytes = {pad, pad + SCRY_SHORT_JUMP_PAD_BYTES};

	return overlaps(&bytes, &s->own) || is_in_use(s->request, &bytes);
}

/* A free pad in the filler behind range `i`; 0: none. */
static uint64_t find_pad(const struct search *s, size_t i)
{
	struct scry_text *text = s->request->text;
	const struct scry_text_range *range = scry_text_range(text, i);
	struct scry_x86_code code;
	size_t room;

	scry_text_bytes(text, range, &code);
	room = filler(code.bytes + code.size, code.avail - code.size);
	if (room < SCRY_SHORT_JUMP_PAD_BYTES || !ends(&code))
		return 0;
	for (size_t at = 0; at + SCRY_SHORT_JUMP_PAD_BYTES <= room; at++) {
		uint64_t pad = range->end + at;
		int64_t distance = (int64_t)(pad - s->from);

		if (distance < -REACH - 1 || distance > REACH || is_taken(s, pad))
			continue;
		if (!scry_text_enters(text, pad - 1, pad + SCRY_SHORT_JUMP_PAD_BYTES, NULL))
			return pad;
	}
	return 0;
}

/* Outwards: behind the range itself and those before and after it, as far as a jump reaches. */
static uint64_t search(const struct search *s)
{
	struct scry_text *text = s->request->text;
	size_t own = (size_t)(s->request->range - scry_text_range(text, 0));
	const struct scry_text_range *range;

	for (size_t i = own; (range = scry_text_range(text, i)); i++) {
		uint64_t pad;

		if (range->end > s->from + REACH)
			break;
		pad = find_pad(s, i);
		if (pad)
			return pad;
	}
	for (size_t i = own; i-- > 0;) {
		uint64_t pad = find_pad(s, i);

		if (pad || scry_text_range(text, i)->end + 2 * REACH < s->from)
			return pad;
	}
	return 0;
}

enum scry_x86_refusal scry_short_jump_plan(const struct scry_short_jump_request *request,
					   struct scry_short_jump *ret)
{
	struct scry_short_jump short_jump = {0};
	struct scry_x86_code code;
	enum scry_x86_refusal refusal;
	struct search s = {.request = request};

	scry_text_bytes(request->text, request->range, &code);
	refusal =
		scry_x86_window(&code, SCRY_SHORT_JUMP_BYTES, SCRY_X86_JUMP_OK, &short_jump.window);
	if (refusal)
		return refusal;
	short_jump.entry = request->range->start + short_jump.window.endbr;
	s.from = short_jump.entry + SCRY_SHORT_JUMP_BYTES;
	s.own = (struct scry_short_jump_taken){short_jump.entry,
					       short_jump.entry + short_jump.window.bytes};
	/* The second byte may be filler, and another's pad lie there. */
	if (scry_text_enters(request->text, short_jump.entry, s.from, NULL) ||
	    is_in_use(request, &s.own))
		return SCRY_X86_SHORT;
	short_jump.pad = search(&s);
	if (!short_jump.pad)
		return SCRY_X86_SHORT;
	short_jump.jump[0] = 0xeb;
	short_jump.jump[1] = (uint8_t)(int8_t)(int64_t)(short_jump.pad - s.from);
	*ret = short_jump;
	return SCRY_X86_OK;
}
