/*
 * What the agent writes into tracks (wire/tracks.h) when a followed function is entered, and when
 * it has returned (wire/shadow.h).
 *
 *   word 0   slot / 8 << 20 | flags and number of arguments | number of the hook
 *   word 1   tsc
 *   entry    argument registers, the first one first
 *            with SCRY_CALL_TEXT: bytes copied | 1 << 32 when there were more, then the bytes
 *   return   rax
 *
 * The slot, where the return address lies, is what an entry and its return have in common. An entry
 * with SCRY_CALL_TAIL was reached by a tail call: it returns together with those that stand on the
 * same slot, in one return record. Without it, what still stands on the slot was left by longjmp or
 * an exception. From time to time a TIME record of two words comes, which says nothing more.
 *
 * Freestanding.
 */
#ifndef SCRY_WIRE_CALL_RING_H
#define SCRY_WIRE_CALL_RING_H

#include <stdint.h>

#define SCRY_CALL_HOOK_BITS 14 /* wire/shadow.h: SCRY_SHADOW_HOOKS_MAX */
#define SCRY_CALL_ARGS_MAX 6u
#define SCRY_CALL_RETURN 7u /* in the place of a number of arguments */
#define SCRY_CALL_TEXT (1u << 17)
#define SCRY_CALL_TAIL (1u << 18)
#define SCRY_CALL_TIME 1u /* a whole word 0: no slot is 0 */
/* Whole words too. Before the entry on `slot`: tsc, number of its stack, slot; before that, once:
 * 0, number, how many, return addresses as agent/walk.h has them. */
#define SCRY_CALL_CALLED 2u
#define SCRY_CALL_CALLED_WORDS 4u
#define SCRY_CALL_STACK 3u
#define SCRY_CALL_STACK_HEAD 4u
#define SCRY_CALL_STACK_FRAMES 64u
#define SCRY_CALL_TEXT_CUT (1ull << 32)
#define SCRY_CALL_TEXT_MAX 4096u

static inline uint64_t scry_call_head(uint64_t slot, uint32_t args, uint32_t hook)
{
	return slot >> 3 << 20 | args << SCRY_CALL_HOOK_BITS | hook;
}
static inline uint64_t scry_call_slot(uint64_t head)
{
	return head >> 20 << 3;
}
static inline uint32_t scry_call_args(uint64_t head)
{
	return head >> SCRY_CALL_HOOK_BITS & 7;
}
static inline uint32_t scry_call_hook(uint64_t head)
{
	return head & ((1u << SCRY_CALL_HOOK_BITS) - 1);
}

/*
 * What the cookie of a hook says beside its number and SCRY_SHADOW_RED_ZONE: how many arguments are
 * told, and which of them (1 to 6, 0 none) is a string that the function itself is sure to read.
 */
enum scry_call_text {
	SCRY_CALL_TEXT_NUL,    /* up to its NUL */
	SCRY_CALL_TEXT_LENGTH, /* the next argument, 64 bits; below 0: up to its NUL */
	SCRY_CALL_TEXT_BOTH,   /* the next argument, an int, at most, and up to its NUL */
};

static inline uint32_t scry_call_cookie(uint32_t hook, uint32_t args, uint32_t text_arg,
					enum scry_call_text text)
{
	return hook | args << 20 | text_arg << 23 | (uint32_t)text << 26;
}
static inline uint32_t scry_call_cookie_args(uint64_t cookie)
{
	return cookie >> 20 & 7;
}
static inline uint32_t scry_call_cookie_text_arg(uint64_t cookie)
{
	return cookie >> 23 & 7;
}
static inline enum scry_call_text scry_call_cookie_text(uint64_t cookie)
{
	return (enum scry_call_text)(cookie >> 26 & 3);
}

#endif
