/*
 * A transfer in one word, as sys/text keeps it: target, source, kind, from the high bits to the low
 * ones. Positions count from the base; of sources one more, as 0 is none.
 */
#ifndef SCRY_SYS_TEXT_WORD_H
#define SCRY_SYS_TEXT_WORD_H

#include <stdint.h>

#include "sys/text.h"

static inline uint64_t scry_word(uint64_t source, uint64_t target, enum scry_transfer_kind kind)
{
	return target << 32 | source << 3 | kind;
}

static inline uint64_t scry_word_target(uint64_t word)
{
	return word >> 32;
}

static inline uint64_t scry_word_source(uint64_t word)
{
	return (uint32_t)word >> 3;
}

static inline enum scry_transfer_kind scry_word_kind(uint64_t word)
{
	return word & 7;
}

#endif
