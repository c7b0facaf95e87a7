/* What programs in the kernel read of a Ruby's threads: control frames and their environments. */
#ifndef SCRY_BPF_RUBY_H
#define SCRY_BPF_RUBY_H

#include <stdint.h>

#include "bpf/task.h"

#define SCRY_NEWEST 8 /* frames among which one with its environment on the stack is looked for */
#define SCRY_STACK_WORDS_MAX (1u << 26)
#define SCRY_IMEMO_MASK 0xf01fu /* T_MASK, and imemo_type << FL_USHIFT */
#define SCRY_IMEMO_SVAR 0x201au /* special variables, which hold the entry first */
#define SCRY_TYPE_MASK 0x7fff0000u
#define SCRY_TYPE_METHOD 0x11110000u /* VM_FRAME_MAGIC_METHOD */

static inline bool scry_read_word(uint64_t at, uint64_t *ret)
{
	return bpf_probe_read_user(ret, sizeof(*ret), (void *)at) == 0;
}

/* The end of the values: behind the newest environment that is on the stack. */
static inline uint64_t scry_find_top(uint64_t cfp, uint64_t stack, uint64_t end,
				     uint32_t frame_size, uint32_t frame_ep)
{
	uint64_t at = cfp, ep;

	for (int i = 0; i < SCRY_NEWEST && at < end; i++, at += frame_size)
		if (scry_read_word(at + frame_ep, &ep) && ep >= stack + 16 && ep < cfp &&
		    ep % 8 == 0)
			return ep + 8;
	return stack;
}

#endif
