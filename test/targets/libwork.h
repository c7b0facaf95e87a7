/* The work that the programs of this folder do through the PLT. Each function starts with room for
 * a five-byte jump, so that hooks at the entry and in the GOT can both be tried on it. */
#ifndef LIBWORK_H
#define LIBWORK_H

#include <stdint.h>

/* A function whose first instruction is ONE no-op of five bytes, then its body: what compilers make
 * of -mnop-mcount. (patchable_function_entry makes five no-ops of one byte, between which a thread
 * may stand.) */
#define HOOKABLE(name)                                                                 \
	__asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n"    \
		".byte 0x0f, 0x1f, 0x44, 0x00, 0x00\njmp " #name "_body\n.size " #name \
		", . - " #name)
#define BODY __attribute__((noinline, used, visibility("hidden")))

uint64_t work_mix(uint64_t sum, uint64_t value);
uint64_t work_fold(const uint64_t *values, int count);
uint64_t work_call(uint64_t (*function)(void));
uint64_t work_through(uint64_t (*function)(void));

#endif
