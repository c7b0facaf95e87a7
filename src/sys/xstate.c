/* See xstate.h. */
#include "sys/xstate.h"

#include <cpuid.h>
#include <stdint.h>
#include <string.h>

#define FX_MAGIC1 0x46505853u /* asm/sigcontext.h */
#define FX_MAGIC2 0x46505845u
#define FX_SW_OFFSET 464
#define XSAVE_IN_USE 512 /* XSTATE_BV, the first word of the xsave header */
#define XSAVE_HEADER_END 576
#define PROTECTION_KEYS (1ull << 9)

/*
 * Bytes of the standard-format area up to the last feature in use. The kernel takes a frame only up
 * to the size that the thread is allowed (tile registers, for one, need a permission); beyond it
 * falls back to the SSE state alone and clears the rest, which would be the program's data.
 */
static size_t size_in_use(uint64_t features)
{
	size_t size = XSAVE_HEADER_END;
	unsigned int bytes, offset, ecx, edx;

	for (unsigned int i = 2; i < 63; i++) {
		if (!(features >> i & 1))
			continue;
		__cpuid_count(0xd, i, bytes, offset, ecx, edx);
		if (offset + bytes > size)
			size = offset + bytes;
	}
	return size;
}

/*
 * Makes the area that ptrace gave (t->xstate) what a signal handler's frame has: software bytes at
 * 464, a second magic behind it, and no more than is in use. Returns its size without that magic.
 */
size_t scry_xstate_dress(unsigned char *area)
{
	uint64_t enabled, in_use;
	uint32_t words[4];
	size_t size;

	memcpy(&enabled, area + FX_SW_OFFSET, 8); /* XCR0 */
	memcpy(&in_use, area + XSAVE_IN_USE, 8);
	in_use |= 3 | (enabled &
		       PROTECTION_KEYS); /* its word is always right, its bit not always set */
	memcpy(area + XSAVE_IN_USE, &in_use, 8);
	size = size_in_use(in_use);
	words[0] = FX_MAGIC1;
	words[1] = (uint32_t)size + 4;
	words[2] = (uint32_t)size;
	words[3] = FX_MAGIC2;
	memset(area + FX_SW_OFFSET, 0, 48);
	memcpy(area + FX_SW_OFFSET, &words[0], 8); /* magic, extended size */
	memcpy(area + FX_SW_OFFSET + 8, &in_use, 8);
	memcpy(area + FX_SW_OFFSET + 16, &words[2], 4);
	memcpy(area + size, &words[3], 4);
	return size;
}
