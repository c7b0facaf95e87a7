/*
 * The execution context of the thread that runs: a word of the Ruby module's thread-local storage.
 */
#ifndef SCRY_AGENT_EC_H
#define SCRY_AGENT_EC_H

#include "agent/load.h"
#include "agent/vm.h"

#define TCB_DTV                                                                          \
	8 /* fs: dynamic thread vector, pairs of words by module (psABI TLS, variant II) \
	   */

static inline uint64_t scry_at_fs(int64_t offset)
{
	uint64_t value;

	__asm__ volatile("mov %%fs:(%1), %0" : "=r"(value) : "r"(offset));
	return value;
}

/*
 * Where the word is, by scry_agent_vm.hooks; 0: this thread has none. The block of a module that
 * was loaded late may not be there yet, all ones, nor its place in the vector, whose size lies
 * before it (glibc).
 */
static inline uint64_t scry_ec_word(void)
{
	const struct scry_agent_hooks *h = &scry_agent_vm.hooks;
	uint64_t dtv, block;

	if (!h->tls_module)
		return scry_at_fs(0) + (uint64_t)h->tls_offset;
	dtv = scry_at_fs(TCB_DTV);
	if (h->tls_module > load64(dtv - 16))
		return 0;
	block = load64(dtv + 16 * h->tls_module);
	return block + 1 > 1 ? block + (uint64_t)h->tls_offset : 0;
}

/* 0: this thread has none. */
static inline uint64_t scry_current_ec(void)
{
	uint64_t word = scry_ec_word();

	return word ? load64(word) : 0;
}

#endif
