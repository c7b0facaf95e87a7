/*
 * What the agent writes into thread buffers (wire/thread_buffers.h) when a followed function is
 * entered, and when it has returned (wire/shadow.h).
 *
 *   word 0   slot / 8 << 20 | flags and number of arguments | number of the hook
 *   word 1   tsc
 *   entry    argument registers, the first one first
 *            with SCRY_CALL_MORE: the number of words that follow, then parts
 *   return   rax
 *            with SCRY_CALL_MORE, it is not a return, but parts of the call of that hook which
 *            will return from the slot next: in rax' place the number of words, then parts
 *
 * The slot, where the return address lies, is what an entry and its return have in common. An entry
 * with SCRY_CALL_TAIL was reached by a tail call: it returns together with the calls on the same
 * slot, in one return record. Without it, what is still on the slot was left by longjmp or an
 * exception. One with SCRY_CALL_ALONE has no return, and leaves the slot as it is. From time to
 * time a TIME record of two words comes, which says nothing more.
 *
 * A part is a piece of memory or of registers, as it was: struct scry_call_part, then its bytes,
 * padded with zeros to 8. Recordings hold them as they are.
 *
 * Freestanding.
 */
#ifndef SCRY_WIRE_CALL_RING_H
#define SCRY_WIRE_CALL_RING_H

#include <stdint.h>

#define SCRY_CALL_HOOK_BITS 14 /* wire/shadow.h: SCRY_SHADOW_HOOKS_MAX */
#define SCRY_CALL_ARGS_MAX 6u
#define SCRY_CALL_RETURN 7u /* in the place of a number of arguments */
#define SCRY_CALL_MORE (1u << 17)
#define SCRY_CALL_TAIL (1u << 18)
#define SCRY_CALL_ALONE (1u << 19) /* an entry whose return is not followed */
#define SCRY_CALL_TIME 1u	   /* a whole word 0: no slot is 0 */
/* Whole words too. Before the entry on `slot`: tsc, number of its stack, slot; before that, once:
 * 0, number, how many, return addresses as agent/walk.h has them. */
#define SCRY_CALL_CALLED 2u
#define SCRY_CALL_CALLED_WORDS 4u
#define SCRY_CALL_STACK 3u
#define SCRY_CALL_STACK_HEAD 4u
#define SCRY_CALL_STACK_FRAMES 64u
/* The same of Ruby's frames. Before the entry: tsc, number, slot. Before that, for each line: 0,
 * words of the record, generation, pc (bit 0: its frame is the newest), struct scry_ring_def, path,
 * label; then: 0, number, generation, how many, pcs, the newest first, 0 at the end: older ones are
 * left out. A pc that has no line could not be read. */
#define SCRY_CALL_RUBY_LINE 4u
#define SCRY_CALL_RUBY_LINE_HEAD 5u
#define SCRY_CALL_RUBY_STACK 5u
#define SCRY_CALL_RUBY_STACK_HEAD 5u
#define SCRY_CALL_RUBY_FRAMES 512u
#define SCRY_CALL_RUBY 6u
#define SCRY_CALL_RUBY_WORDS 4u
/* A signal is delivered to the thread: tsc, number. The keeper's word alone. */
#define SCRY_CALL_SIGNAL 7u
#define SCRY_CALL_SIGNAL_WORDS 3u
#define SCRY_CALL_TEXT_MAX 4096u /* bytes of a string */
#define SCRY_CALL_MORE_MAX 516u	 /* words of a record's parts */

enum scry_part_kind {
	SCRY_PART_MEMORY,  /* at `address` */
	SCRY_PART_VECTORS, /* xmm0, xmm1, ...: 8 bytes each */
	SCRY_PART_STACK,   /* from the word above the return address on */
	SCRY_PART_RDX,	   /* at the return */
	SCRY_PART_ERRNO,   /* at the return of a call that failed: errno, 8 bytes */
};
#define SCRY_PART_CUT 1u  /* a string that goes on */
#define SCRY_PART_TEXT 2u /* its bytes are text, or have some in them */
#define SCRY_PART_SQL 4u
#define SCRY_PART_MYSQL 8u   /* SQL as MySQL quotes */
#define SCRY_PART_DIGEST 16u /* literals are left out: in recordings only */
#define SCRY_PART_FORMAT 32u /* as printf's: read in the target, so the rest was fetched by it */
struct scry_call_part {
	uint64_t address;
	uint32_t bytes;
	uint16_t kind; /* enum scry_part_kind */
	uint16_t flags;
};

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

/* What the cookie of a hook says beside its number and SCRY_SHADOW_RED_ZONE: how many argument
 * registers are recorded, and whether it has a plan (wire/call_plan.h). */
#define SCRY_CALL_HAS_PLAN (1u << 23)
/* A way into seccomp: prctl, or syscall. From then on system calls are left alone. */
#define SCRY_CALL_IS_PRCTL (1u << 24)
#define SCRY_CALL_IS_SYSCALL (1u << 25)
#define SCRY_CALL_IS_GUARD (1u << 26) /* and it is hooked for that alone: it is not recorded */
/* free, and what a VM calls before it is taken down: agent/lines.h. */
#define SCRY_CALL_IS_FREE (1u << 27)
#define SCRY_CALL_IS_DOWN (1u << 28)
/* Its return address stays as it is: it is recorded when it is entered, and no more. */
#define SCRY_CALL_IS_ALONE (1u << 29)
#define SCRY_CALL_GUARDS \
	(SCRY_CALL_IS_PRCTL | SCRY_CALL_IS_SYSCALL | SCRY_CALL_IS_FREE | SCRY_CALL_IS_DOWN)
static inline uint32_t scry_call_cookie(uint32_t hook, uint32_t args, int has_plan)
{
	return hook | args << 20 | (has_plan ? SCRY_CALL_HAS_PLAN : 0);
}
static inline uint32_t scry_call_cookie_args(uint64_t cookie)
{
	return cookie >> 20 & 7;
}

#endif
