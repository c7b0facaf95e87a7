/*
 * Looking at the VM from inside: plain loads along a learned layout, and the few types that matter.
 */
#ifndef SCRY_AGENT_LOAD_H
#define SCRY_AGENT_LOAD_H

#include <stdint.h>

/* ruby/internal/value_type.h: the low five bits of an object's flags; unchanged since 1.9 */
#define SCRY_TYPE_MASK 0x1fu
#define SCRY_TYPE_CLASS 2u
#define SCRY_TYPE_MODULE 3u
#define SCRY_TYPE_STRING 5u
#define SCRY_TYPE_ARRAY 7u
#define SCRY_TYPE_DATA 0x0cu
#define SCRY_TYPE_IMEMO 0x1au
#define SCRY_TYPE_ICLASS 0x1cu
#define SCRY_TYPE_ZOMBIE 0x1du
#define SCRY_TYPE_MOVED 0x1eu

/* ruby/internal/event.h; public since 2.1 */
#define SCRY_RUBY_NEWOBJ 0x100000u
#define SCRY_RUBY_FREEOBJ 0x200000u
#define SCRY_RUBY_GC_START 0x400000u
#define SCRY_RUBY_GC_END_MARK 0x800000u
#define SCRY_RUBY_GC_END_SWEEP 0x1000000u

static inline uint64_t load64(uint64_t address)
{
	return *(const volatile uint64_t *)address;
}

static inline uint32_t load32(uint64_t address)
{
	return *(const volatile uint32_t *)address;
}

/* An object or a block of memory, as far as a pointer can show: aligned, in user space, no
 * immediate. */
static inline int is_pointer(uint64_t value)
{
	return !(value & 7) && value > 0x10000 && value < 0x7fffffffffffull;
}

#endif
