/*
 * A piece of a Ruby's code: what holds of all of it, and what of one place in it. The names of code
 * are copied while it is alive. A part of its own (code.c), for objects and lines.
 */
#ifndef SCRY_AGENT_CODE_H
#define SCRY_AGENT_CODE_H

#include <stdint.h>

#include "wire/ruby_ring.h"

#define SCRY_CODE_TEXT_MAX (SCRY_DEF_TEXT_MAX / 4 * 3) /* path and label, one behind the other */

struct scry_agent_code {	 /* as long as the block at `start` is not freed */
	uint64_t start;		 /* its first word */
	uint64_t entries, ranks; /* its table of lines */
	uint32_t size;		 /* words */
	uint32_t entry_count;
	uint32_t first_line;
	uint16_t path_size, label_size;
};

struct scry_agent_place;

/* Copies at most `room` bytes of the Ruby String `value`, the end of a longer one; returns how
 * many. Plain loads. */
uint32_t scry_copy_string(uint64_t value, uint8_t *to, uint32_t room);

/* Reads the code that runs at `place`, path and label to `text` (SCRY_CODE_TEXT_MAX). 0: there is
 * none, which counts as bad. */
int scry_code_read(const struct scry_agent_place *place, struct scry_agent_code *ret,
		   uint8_t *text);

/* Fills in what `def` says of the code and of `pc` in it. */
void scry_code_at(const struct scry_agent_code *code, uint64_t pc, struct scry_ring_def *def);

#endif
