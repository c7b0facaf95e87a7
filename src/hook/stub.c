/*
 * Flags are kept in rax by lahf and seto, and put back by an addition that overflows as they did
 * and sahf: a tenth of what pushfq and popfq cost. Nothing else is touched before it is saved.
 */
#include "hook/stub.h"

#include <string.h>

struct out {
	uint8_t *at;
	uint64_t address; /* of *at */
};

static void put(struct out *o, const void *bytes, size_t size)
{
	memcpy(o->at, bytes, size);
	o->at += size;
	o->address += size;
}

/* A rip-relative operand that ends `after` bytes before its instruction does. */
static void put_rel32(struct out *o, uint64_t target, unsigned after)
{
	int32_t rel = (int32_t)(target - (o->address + 4 + after));

	put(o, &rel, 4);
}

static void put_count(struct out *o, const struct scry_stub *s)
{
	if (!s->frees_rax)
		put(o, "\x50", 1);	       /* push %rax */
	put(o, "\x9f\x0f\x90\xc0\x80\x3d", 6); /* lahf; seto %al; cmpb $0, state page(%rip) */
	put_rel32(o, s->state_page, 1);
	put(o, "\x00\x74\x08", 3);     /* je over the next */
	put(o, "\xf0\x48\xff\x05", 4); /* lock incq counter(%rip) */
	put_rel32(o, s->counter, 0);
	put(o, "\x04\x7f\x9e", 3); /* add $127, %al; sahf */
	if (!s->frees_rax)
		put(o, "\x58", 1); /* pop %rax */
}

static void put_call(struct out *o, const struct scry_stub *s)
{
	put(o, "\x68", 1); /* push $cookie */
	put(o, &s->cookie, 4);
	put(o, "\xff\x15", 2); /* call *literal(%rip) */
	put_rel32(o, s->literal, 0);
	put(o, "\x48\x8d\x64\x24\x08", 5); /* lea 8(%rsp), %rsp */
}

#define JUMP_LITERAL 6 /* bytes of jmp *literal(%rip) */

/* The copy of the displaced instructions comes right behind. */
static void put_replace(struct out *o, const struct scry_stub *s)
{
	if (s->window) {
		put(o, "\x4c\x8d\x1d", 3); /* lea copy(%rip), %r11 */
		put(o, &(int32_t){JUMP_LITERAL}, 4);
	} else {
		put(o, "\x49\xbb", 2); /* movabs $function, %r11 */
		put(o, &s->function, 8);
	}
	put(o, "\xff\x25", 2); /* jmp *literal(%rip) */
	put_rel32(o, s->literal, 0);
}

static enum scry_x86_refusal put_copy(struct out *o, const struct scry_stub *s,
				      struct scry_stub_code *ret)
{
	const struct scry_x86_place place = {.address = o->address, .back = true};
	struct scry_x86_moved moved;
	enum scry_x86_refusal r = scry_x86_move(s->code, s->window, &place, &moved);

	if (r != SCRY_X86_OK)
		return r;
	ret->copy_at = (size_t)(o->at - ret->bytes);
	memcpy(ret->copied, moved.at, sizeof(ret->copied));
	put(o, moved.code, moved.bytes);
	return SCRY_X86_OK;
}

static void put_jump(struct out *o, uint64_t to)
{
	uint8_t code[16];
	size_t size = scry_x86_jump(o->address, to, code);

	if (!size)
		size = scry_x86_jump_far(to, code);
	put(o, code, size);
}

enum scry_x86_refusal scry_stub_emit(const struct scry_stub *s, struct scry_stub_code *ret)
{
	struct out o = {ret->bytes, s->at};
	enum scry_x86_refusal r = SCRY_X86_OK;

	if ((s->kind == SCRY_HOOK_COUNT &&
	     (!scry_x86_reaches(s->at, s->state_page) || !scry_x86_reaches(s->at, s->counter))) ||
	    (s->kind != SCRY_HOOK_COUNT && !scry_x86_reaches(s->at, s->literal)))
		return SCRY_X86_REACH;
	ret->copy_at = 0;
	if (s->is_indirect)
		put(&o, "\xf3\x0f\x1e\xfa", 4); /* endbr64 */
	if (s->kind == SCRY_HOOK_REPLACE) {
		put_replace(&o, s);
	} else {
		if (s->spares_red_zone)
			put(&o, "\x48\x8d\x64\x24\x80", 5); /* lea -128(%rsp), %rsp */
		if (s->kind == SCRY_HOOK_COUNT)
			put_count(&o, s);
		else
			put_call(&o, s);
		if (s->spares_red_zone)
			put(&o, "\x48\x8d\xa4\x24\x80\0\0\0", 8); /* lea 128(%rsp), %rsp */
	}
	if (s->window)
		r = put_copy(&o, s, ret);
	else if (s->kind != SCRY_HOOK_REPLACE)
		put_jump(&o, s->function);
	ret->size = (size_t)(o.at - ret->bytes);
	return r;
}
