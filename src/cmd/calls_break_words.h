/*
 * The words of an entry (wire/call_ring.h), as the agent writes them (agent/calls.c), made from
 * outside: out of the registers of a thread that stands at a function's first instruction.
 */
#ifndef SCRY_CMD_CALLS_BREAK_WORDS_H
#define SCRY_CMD_CALLS_BREAK_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/user.h>

#include "sys/mem.h"
#include "wire/call_ring.h"

#define SCRY_BREAK_WORDS_MAX (2 + SCRY_CALL_ARGS_MAX + 1 + SCRY_CALL_TEXT_MAX / 8)

/* Writes them to `ret`, but for the time, and returns how many. `max`: bytes of a string. */
size_t scry_break_entry(const struct scry_mem *mem, const struct user_regs_struct *regs,
			uint32_t cookie, uint32_t max, uint64_t *ret);

#endif
