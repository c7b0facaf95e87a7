/*
 * What the agent writes into thread buffers (wire/thread_buffers.h) when a hooked function is
 * entered.
 *
 *   word 0   cookie of the hook: its number, and how many arguments follow
 *   word 1   tsc
 *   then     argument registers, the first one first
 *
 * or, from time to time, a TIME record of two words, which says nothing more.
 *
 * Freestanding.
 */
#ifndef SCRY_WIRE_ENTRY_RING_H
#define SCRY_WIRE_ENTRY_RING_H

#include <stdint.h>

#define SCRY_ENTRY_HOOK_BITS 24
#define SCRY_ENTRY_ARGS_MAX 6u
#define SCRY_ENTRY_TIME (1u << 30)

static inline uint32_t scry_entry_cookie(uint32_t hook, uint32_t args)
{
	return hook | args << SCRY_ENTRY_HOOK_BITS;
}
static inline uint32_t scry_entry_hook(uint64_t cookie)
{
	return cookie & ((1u << SCRY_ENTRY_HOOK_BITS) - 1);
}
static inline uint32_t scry_entry_args(uint64_t cookie)
{
	return cookie >> SCRY_ENTRY_HOOK_BITS & 7;
}

#endif
