/*
 * Moving the first instructions of a function.
 *
 * Each instruction has a shape, which says how it is written at another address: as it is, with
 * its displacement re-based, or expanded. Sizes depend on the shape alone, so a first pass over the
 * window gives all offsets of the copy and a second one writes it.
 *
 *   jcc rel8/32   0f 8x rel32                     jmp rel8/32   e9 rel32
 *   loop, jrcxz   e2 02; eb 05; e9 rel32          (taken: over the short jump to the long one)
 *   call rel32    68 lo; c7 44 24 04 hi; e9 rel32 (push of a 64-bit address: no register, no flag)
 *   call *r/m     68 lo; c7 44 24 04 hi; jmp *r/m (the ModRM's /2 becomes /4)
 *
 * Must not read beyond `avail`: the bytes are foreign.
 */
#include "sys/x86_move.h"

#include <assert.h>
#include <string.h>

#include <Zydis/Zydis.h>

#define ENDBR_BYTES 4
#define PUSH_BYTES 13 /* push imm32; movl imm32, 4(%rsp) */

enum shape {
	SHAPE_PLAIN, /* the same bytes anywhere */
	SHAPE_RIP,   /* disp32 relative to rip */
	SHAPE_JMP,
	SHAPE_JCC,
	SHAPE_LOOP, /* loop, loope, loopne, jrcxz, jecxz */
	SHAPE_CALL,
	SHAPE_CALL_MEM /* call *r/m */
};

/* One instruction of a window. */
struct insn {
	ZydisDecodedInstruction z;
	const uint8_t *bytes;
	enum shape shape;
	bool ends;	 /* does not go on to the next instruction */
	uint64_t next;	 /* address behind it */
	uint64_t target; /* of JMP, JCC, LOOP, CALL */
};

static const char *const sentences[SCRY_X86_REFUSALS] = {
	[SCRY_X86_OK] = "movable",
	[SCRY_X86_UNDECODED] = "bytes that are not an instruction",
	[SCRY_X86_SHORT] = "a function shorter than the jump, with no filler behind it",
	[SCRY_X86_SYSCALL] = "a system call or software interrupt in the window",
	[SCRY_X86_CALL_INSIDE] = "a call that would return into the window",
	[SCRY_X86_XBEGIN] = "an instruction of a hardware transaction in the window",
	[SCRY_X86_TRAP] = "a breakpoint in the window",
	[SCRY_X86_HOOKED] = "a jump at the entry: hooked already",
	[SCRY_X86_FORM] = "a form of branch or address that cannot be moved",
	[SCRY_X86_INTO] = "a branch into the middle of a displaced instruction",
	[SCRY_X86_REACH] = "an operand or target more than 2 GiB from the copy",
	[SCRY_X86_ROOM] = "more bytes than a copy has room for",
};

const char *scry_x86_why(enum scry_x86_refusal refusal)
{
	return (unsigned int)refusal < SCRY_X86_REFUSALS ? sentences[refusal] : "unknown";
}

bool scry_x86_reaches(uint64_t next, uint64_t to)
{
	int64_t distance = (int64_t)(to - next);

	return distance == (int32_t)distance;
}

static void put32(uint8_t *at, uint64_t value)
{
	uint32_t low = (uint32_t)value;

	memcpy(at, &low, sizeof(low));
}

size_t scry_x86_jump(uint64_t from, uint64_t to, uint8_t *ret)
{
	if (!scry_x86_reaches(from + 5, to))
		return 0;
	ret[0] = 0xe9;
	put32(ret + 1, to - (from + 5));
	return 5;
}

size_t scry_x86_jump_far(uint64_t to, uint8_t *ret)
{
	static const uint8_t head[] = {0xff, 0x25, 0, 0, 0, 0};

	memcpy(ret, head, sizeof(head));
	memcpy(ret + sizeof(head), &to, sizeof(to));
	return sizeof(head) + sizeof(to);
}

static bool has_prefix(const ZydisDecodedInstruction *z, uint8_t value)
{
	for (size_t i = 0; i < z->raw.prefix_count; i++)
		if (z->raw.prefixes[i].value == value)
			return true;
	return false;
}

/* Does the ModRM operand use rsp, as a register or as a base? */
static bool uses_rsp(const ZydisDecodedInstruction *z)
{
	if (z->raw.modrm.rm != 4)
		return false;
	if (z->raw.modrm.mod == 3)
		return !z->raw.rex.B;
	return z->raw.sib.base == 4 && !z->raw.rex.B;
}

static bool is_rip_relative(const ZydisDecodedInstruction *z)
{
	return (z->attributes & ZYDIS_ATTRIB_HAS_MODRM) && z->raw.modrm.mod == 0 &&
	       z->raw.modrm.rm == 5 && z->raw.disp.size == 32;
}

/* Shape of a branch, call or return; others are PLAIN or RIP already. */
static enum scry_x86_refusal shape_branch(struct insn *in)
{
	const ZydisDecodedInstruction *z = &in->z;
	bool is_relative = z->raw.imm[0].is_relative;

	/* A VEX one is jkzd of a Xeon Phi that is gone. */
	if (is_relative &&
	    (has_prefix(z, 0x66) || z->encoding != ZYDIS_INSTRUCTION_ENCODING_LEGACY))
		return SCRY_X86_FORM;
	if (is_relative)
		in->target = in->next + (uint64_t)z->raw.imm[0].value.s;
	switch (z->meta.category) {
	case ZYDIS_CATEGORY_RET:
		in->ends = true;
		return z->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR ? SCRY_X86_FORM : SCRY_X86_OK;
	case ZYDIS_CATEGORY_UNCOND_BR:
		in->ends = true;
		if (z->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR)
			return SCRY_X86_FORM;
		if (is_relative)
			in->shape = SHAPE_JMP;
		return SCRY_X86_OK;
	case ZYDIS_CATEGORY_CALL:
		if (z->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR)
			return SCRY_X86_FORM;
		in->shape = is_relative ? SHAPE_CALL : SHAPE_CALL_MEM;
		if (!is_relative && (has_prefix(z, 0x66) || uses_rsp(z)))
			return SCRY_X86_FORM;
		return SCRY_X86_OK;
	case ZYDIS_CATEGORY_COND_BR:
		if (!is_relative)
			return SCRY_X86_FORM;
		in->shape = (z->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && z->opcode >= 0xe0)
				    ? SHAPE_LOOP
				    : SHAPE_JCC;
		return SCRY_X86_OK;
	default:
		return is_relative ? SCRY_X86_FORM : SCRY_X86_OK;
	}
}

/* Instructions that are refused, or end the flow, by name. */
static enum scry_x86_refusal shape_special(struct insn *in, bool after_end)
{
	switch (in->z.mnemonic) {
	case ZYDIS_MNEMONIC_SYSCALL:
	case ZYDIS_MNEMONIC_SYSENTER:
	case ZYDIS_MNEMONIC_INT:
		return SCRY_X86_SYSCALL;
	case ZYDIS_MNEMONIC_XBEGIN:
	case ZYDIS_MNEMONIC_XABORT:
		return SCRY_X86_XBEGIN;
	case ZYDIS_MNEMONIC_INT1:
	case ZYDIS_MNEMONIC_INT3:
		in->ends = true;
		return after_end ? SCRY_X86_OK : SCRY_X86_TRAP; /* behind a ret it is padding */
	case ZYDIS_MNEMONIC_UD0:
	case ZYDIS_MNEMONIC_UD1:
	case ZYDIS_MNEMONIC_UD2:
	case ZYDIS_MNEMONIC_HLT:
		in->ends = true;
		return SCRY_X86_OK;
	case ZYDIS_MNEMONIC_SYSRET:
	case ZYDIS_MNEMONIC_SYSEXIT:
	case ZYDIS_MNEMONIC_IRET:
	case ZYDIS_MNEMONIC_IRETD:
	case ZYDIS_MNEMONIC_IRETQ:
	case ZYDIS_MNEMONIC_UIRET:
		return SCRY_X86_FORM;
	default:
		return SCRY_X86_OK;
	}
}

static enum scry_x86_refusal decode(const uint8_t *bytes, size_t size, uint64_t address,
				    bool after_end, struct insn *ret)
{
	enum scry_x86_refusal refusal;
	ZydisDecoder decoder;

	*ret = (struct insn){.bytes = bytes};
	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	if (!ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&decoder, NULL, bytes, size, &ret->z)))
		return SCRY_X86_UNDECODED;
	ret->next = address + ret->z.length;
	if (is_rip_relative(&ret->z)) {
		if (ret->z.attributes & ZYDIS_ATTRIB_HAS_ADDRESSSIZE)
			return SCRY_X86_FORM;
		ret->shape = SHAPE_RIP;
	}
	refusal = shape_special(ret, after_end);
	return refusal ? refusal : shape_branch(ret);
}

/* Length of one piece of filler, 0 when it is none. */
static size_t filler(const uint8_t *bytes, size_t size)
{
	struct insn in;

	if (size && (*bytes == 0xcc || *bytes == 0))
		return 1;
	if (decode(bytes, size, 0, false, &in) || in.z.mnemonic != ZYDIS_MNEMONIC_NOP)
		return 0;
	return in.z.length;
}

/* Where a branch of the window leads: an index of `at`, -1 outside, -2 into an instruction. */
static int inside(const struct scry_x86_code *code, const struct scry_x86_window *w,
		  uint64_t target)
{
	uint64_t offset = target - (code->address + w->endbr);

	if (target == code->address)
		return 0; /* a loop to the endbr64 is one to the window */
	if (offset >= w->bytes)
		return -1;
	for (int i = 0; i < w->count; i++)
		if (w->at[i] == offset)
			return i;
	return -2;
}

/* Decodes instruction `i` of a measured window. */
static enum scry_x86_refusal insn_at(const struct scry_x86_code *code,
				     const struct scry_x86_window *w, size_t i, struct insn *ret)
{
	size_t at = w->endbr + (size_t)w->at[i];

	return decode(code->bytes + at, w->at[i + 1] - w->at[i], code->address + at, true, ret);
}

static enum scry_x86_refusal check_branches(const struct scry_x86_code *code,
					    struct scry_x86_window *w)
{
	for (size_t i = 0; i < w->count; i++) {
		struct insn in;
		int to;

		if (insn_at(code, w, i, &in))
			return SCRY_X86_UNDECODED;
		if (in.shape == SHAPE_RIP)
			w->has |= SCRY_X86_RIP;
		if (in.shape == SHAPE_CALL_MEM && is_rip_relative(&in.z))
			w->has |= SCRY_X86_RIP;
		if (in.shape < SHAPE_JMP || in.shape == SHAPE_CALL_MEM)
			continue;
		to = inside(code, w, in.target);
		if (to == -2)
			return SCRY_X86_INTO;
		if (in.shape == SHAPE_CALL && to > 0)
			return SCRY_X86_INTO;
		if (in.shape != SHAPE_CALL)
			w->has |= SCRY_X86_BRANCH | (to >= 0 ? SCRY_X86_SELF : 0);
	}
	return SCRY_X86_OK;
}

/* The instructions; stops at the function's end. */
static enum scry_x86_refusal measure(const struct scry_x86_code *code, size_t need,
				     struct scry_x86_window *w)
{
	bool ended = false;

	while (w->code < need && w->endbr + (size_t)w->code < code->size) {
		size_t at = w->endbr + (size_t)w->code;
		enum scry_x86_refusal refusal;
		struct insn in;

		refusal = decode(code->bytes + at, code->size - at, code->address + at, ended, &in);
		if (refusal)
			return refusal;
		if (w->code + in.z.length < need &&
		    (in.shape == SHAPE_CALL || in.shape == SHAPE_CALL_MEM))
			return SCRY_X86_CALL_INSIDE;
		w->at[w->count++] = w->code;
		w->code += in.z.length;
		w->has &= ~(SCRY_X86_ENDS | SCRY_X86_CALL);
		w->has |= in.ends ? SCRY_X86_ENDS : 0;
		if (in.shape == SHAPE_CALL || in.shape == SHAPE_CALL_MEM)
			w->has |= SCRY_X86_CALL;
		ended = in.ends;
	}
	w->at[w->count] = w->code;
	return SCRY_X86_OK;
}

static bool is_jump(const uint8_t *bytes, size_t size)
{
	return (size >= 1 && (bytes[0] == 0xe9 || bytes[0] == 0xeb)) ||
	       (size >= 2 && bytes[0] == 0xff && bytes[1] == 0x25);
}

enum scry_x86_refusal scry_x86_window(const struct scry_x86_code *code, size_t need, uint32_t flags,
				      struct scry_x86_window *ret)
{
	struct scry_x86_window w = {0};
	enum scry_x86_refusal refusal;

	assert(code->avail >= code->size);
	if (need == 0 || need > SCRY_X86_NEED_MAX)
		return SCRY_X86_ROOM;
	if (code->size >= ENDBR_BYTES && memcmp(code->bytes, "\xf3\x0f\x1e\xfa", ENDBR_BYTES) == 0)
		w.endbr = ENDBR_BYTES;
	if (is_jump(code->bytes + w.endbr, code->size - w.endbr))
		w.has |= SCRY_X86_JUMP_FIRST;
	if ((w.has & SCRY_X86_JUMP_FIRST) && !(flags & SCRY_X86_JUMP_OK))
		return SCRY_X86_HOOKED;
	refusal = measure(code, need, &w);
	if (refusal)
		return refusal;
	/* The flow must end before filler may be taken. */
	if (w.code < need && !(w.has & SCRY_X86_ENDS))
		return SCRY_X86_SHORT;
	w.bytes = w.code;
	while (w.bytes < need) {
		size_t at = w.endbr + (size_t)w.bytes;
		size_t n = at < code->avail ? filler(code->bytes + at, code->avail - at) : 0;

		if (!n)
			return SCRY_X86_SHORT;
		w.bytes += (uint8_t)n;
		w.has |= SCRY_X86_FILLER;
	}
	if (w.count == 1)
		w.has |= SCRY_X86_ONE;
	refusal = check_branches(code, &w);
	if (refusal)
		return refusal;
	*ret = w;
	return SCRY_X86_OK;
}

static size_t moved_size(const struct insn *in)
{
	size_t bnd = has_prefix(&in->z, 0xf2) ? 1 : 0;

	switch (in->shape) {
	case SHAPE_JMP:
		return 5 + bnd;
	case SHAPE_JCC:
		return 6 + bnd;
	case SHAPE_LOOP:
		return (has_prefix(&in->z, 0x67) ? 3 : 2) + 7;
	case SHAPE_CALL:
		return PUSH_BYTES + 5 + bnd;
	case SHAPE_CALL_MEM:
		return PUSH_BYTES + (size_t)in->z.length;
	default:
		return in->z.length;
	}
}

/* push imm32 sign-extends; the upper half is then written in place. */
static void put_push(uint8_t *at, uint64_t address)
{
	at[0] = 0x68;
	put32(at + 1, address);
	memcpy(at + 5, "\xc7\x44\x24\x04", 4);
	put32(at + 9, address >> 32);
}

/* The instruction's own bytes at `to` (run-time address `address`), rip-relative or not. */
static bool put_copy(const struct insn *in, uint8_t *to, uint64_t address)
{
	uint64_t operand;

	memcpy(to, in->bytes, in->z.length);
	if (!is_rip_relative(&in->z))
		return true;
	operand = in->next + (uint64_t)in->z.raw.disp.value;
	put32(to + in->z.raw.disp.offset, operand - (address + in->z.length));
	return scry_x86_reaches(address + in->z.length, operand);
}

/* Ends the `size` bytes of a branch at `address` with its rel32. */
static bool put_target(uint8_t *to, size_t size, uint64_t address, uint64_t target)
{
	put32(to + size - 4, target - (address + size));
	return scry_x86_reaches(address + size, target);
}

static bool put_loop(const struct insn *in, uint8_t *to, size_t size)
{
	size_t at = 0;

	if (has_prefix(&in->z, 0x67))
		to[at++] = 0x67; /* counts in ecx */
	to[at++] = in->z.opcode;
	memcpy(to + at, "\x02\xeb\x05\xe9", 4);
	return at + 8 == size;
}

/* Writes one instruction at `to`, to run at `address`. False: out of reach. */
static bool put_insn(const struct insn *in, uint8_t *to, uint64_t address, uint64_t target)
{
	size_t size = moved_size(in), at = 0;

	switch (in->shape) {
	case SHAPE_CALL_MEM:
		put_push(to, in->next);
		if (!put_copy(in, to + PUSH_BYTES, address + PUSH_BYTES))
			return false;
		to[PUSH_BYTES + in->z.raw.modrm.offset] ^= 0x30; /* /2 becomes /4 */
		return true;
	case SHAPE_CALL:
		put_push(to, in->next);
		at = PUSH_BYTES;
		/* fallthrough */
	case SHAPE_JMP:
	case SHAPE_JCC:
		if (has_prefix(&in->z, 0xf2))
			to[at++] = 0xf2;
		if (in->shape == SHAPE_JCC) {
			to[at++] = 0x0f;
			to[at++] = 0x80 | (in->z.opcode & 0xf);
		} else {
			to[at++] = 0xe9;
		}
		return put_target(to, size, address, target);
	case SHAPE_LOOP:
		return put_loop(in, to, size) && put_target(to, size, address, target);
	default:
		return put_copy(in, to, address);
	}
}

/* All offsets of the copy. */
static enum scry_x86_refusal lay_out(const struct scry_x86_code *code,
				     const struct scry_x86_window *w, struct scry_x86_moved *m)
{
	for (size_t i = 0; i < w->count; i++) {
		struct insn in;

		if (insn_at(code, w, i, &in))
			return SCRY_X86_UNDECODED;
		m->at[i] = m->bytes;
		m->bytes += (uint16_t)moved_size(&in);
		if (m->bytes > SCRY_X86_MOVED_MAX - 5)
			return SCRY_X86_ROOM;
	}
	m->at[w->count] = m->bytes;
	return SCRY_X86_OK;
}

enum scry_x86_refusal scry_x86_move(const struct scry_x86_code *code,
				    const struct scry_x86_window *window,
				    const struct scry_x86_place *place, struct scry_x86_moved *ret)
{
	uint64_t after = code->address + window->endbr + window->bytes;
	struct scry_x86_moved m = {0};
	enum scry_x86_refusal refusal = lay_out(code, window, &m);

	if (refusal)
		return refusal;
	for (size_t i = 0; i < window->count; i++) {
		uint64_t target;
		struct insn in;
		int to;

		if (insn_at(code, window, i, &in))
			return SCRY_X86_UNDECODED;
		target = in.target;
		to = in.shape == SHAPE_CALL ? -1 : inside(code, window, target);
		if (to >= 0)
			target = place->address + m.at[to];
		if (!put_insn(&in, m.code + m.at[i], place->address + m.at[i], target))
			return SCRY_X86_REACH;
	}
	if (place->back && !(window->has & (SCRY_X86_ENDS | SCRY_X86_CALL))) {
		size_t n = scry_x86_jump(place->address + m.bytes, after, m.code + m.bytes);

		if (!n)
			return SCRY_X86_REACH;
		m.bytes += (uint16_t)n;
	}
	*ret = m;
	return SCRY_X86_OK;
}

int scry_x86_to_copy(const struct scry_x86_window *window, const struct scry_x86_moved *moved,
		     size_t offset)
{
	for (size_t i = 0; i < window->count; i++)
		if (window->at[i] == offset)
			return moved->at[i];
	return -1;
}

int scry_x86_to_window(const struct scry_x86_window *window, const struct scry_x86_moved *moved,
		       size_t offset)
{
	for (size_t i = 0; i <= window->count; i++)
		if (moved->at[i] == offset)
			return window->at[i];
	return -1;
}
