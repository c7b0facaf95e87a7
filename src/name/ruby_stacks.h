/*
 * Ruby stacks of calls: what an agent emits (wire/call_ring.h) -> STACK events, each frame
 * emitted once.
 *
 * Lines are known by pc and generation, stacks by numbers; of both only the newest are kept, as
 * both go out of use: what is asked for later than that is not known. C functions' frames have no
 * part in it: their caller stands for them.
 *
 * One thread. What comes in is hostile: any content gives some tree, within limits.
 */
#ifndef SCRY_NAME_RUBY_STACKS_H
#define SCRY_NAME_RUBY_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rec/writer.h"
#include "vm/ruby.h"

struct scry_ruby_stacks;

/* NULL: no memory. */
struct scry_ruby_stacks *scry_ruby_stacks_new(void);
void scry_ruby_stacks_free(struct scry_ruby_stacks *s); /* NULL is legal */

/* Whose instructions they are, borrowed: before the first line. NULL: its layout does not hold,
 * nothing of it is known. */
void scry_ruby_stacks_ruby(struct scry_ruby_stacks *s, const struct scry_ruby *ruby);

/* Whole records, SCRY_CALL_RUBY_LINE and SCRY_CALL_RUBY_STACK. 0; -EINVAL: it makes no sense. */
int scry_ruby_stacks_line(struct scry_ruby_stacks *s, const uint64_t *words, size_t count);
int scry_ruby_stacks_define(struct scry_ruby_stacks *s, const uint64_t *words, size_t count);

/* The STACK id of its newest frame, written with its callers where it is new. 0: not known. */
uint32_t scry_ruby_stacks_write(struct scry_ruby_stacks *s, uint64_t number, struct scry_writer *w);

#endif
