/*
 * A program may have set EFLAGS.AC: then a load of ours that is not aligned is a SIGBUS of its own.
 * Where such loads are made the bit is off, and afterwards as it was.
 */
#ifndef SCRY_AGENT_ALIGNMENT_H
#define SCRY_AGENT_ALIGNMENT_H

#include <stdint.h>

#define SCRY_FLAG_AC (1ull << 18)

/* Below the red zone, which a leaf function may use. */
static inline void scry_alignment_set(uint64_t flags)
{
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpush %0\n\tpopfq\n\tlea 128(%%rsp), %%rsp"
			 :
			 : "r"(flags)
			 : "cc", "memory");
}

/* The flags, for scry_alignment_back. */
static inline uint64_t scry_alignment_off(void)
{
	uint64_t flags;

	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\tpop %0\n\tlea 128(%%rsp), %%rsp"
			 : "=r"(flags)
			 :
			 : "memory");
	if (__builtin_expect(flags & SCRY_FLAG_AC, 0))
		scry_alignment_set(flags & ~SCRY_FLAG_AC);
	return flags;
}

static inline void scry_alignment_back(uint64_t flags)
{
	if (__builtin_expect(flags & SCRY_FLAG_AC, 0))
		scry_alignment_set(flags);
}

#endif
