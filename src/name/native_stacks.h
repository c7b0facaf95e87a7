/*
 * Native stacks: numbers that an agent gave (agent/walk.h) -> a tree of frames, each emitted once,
 * as STACK events with the names of their code.
 *
 * One thread. What comes in is hostile: any content gives some tree, within limits.
 */
#ifndef SCRY_NAME_NATIVE_STACKS_H
#define SCRY_NAME_NATIVE_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/modules.h"
#include "rec/writer.h"

#define SCRY_NATIVE_STACKS_MAX (1u << 18)
#define SCRY_NATIVE_NODES_MAX (1u << 22)
#define SCRY_NATIVE_FRAMES_MAX (1u << 20) /* addresses */

struct scry_native_stacks;

/* `native` is borrowed. NULL: no memory. */
struct scry_native_stacks *scry_native_stacks_new(struct scry_modules *native);
void scry_native_stacks_free(struct scry_native_stacks *s); /* NULL is legal */

/* From now on names are looked up there; those that were stay the other's. */
void scry_native_stacks_by(struct scry_native_stacks *s, struct scry_modules *native);

/*
 * What a number means: return addresses, the innermost first; 0 as the last: what lies below is not
 * known. 0; -EINVAL: it means something else; -ENOSPC, -ENOMEM: it means nothing.
 */
int scry_native_stacks_define(struct scry_native_stacks *s, uint64_t number,
			      const uint64_t *addresses, size_t count);

/* The innermost return address, 0: the number is not known. */
uint64_t scry_native_stacks_address(const struct scry_native_stacks *s, uint64_t number);

/* Are there frames without a name yet? Then: scry_modules_see, and name them. */
bool scry_native_stacks_is_new(const struct scry_native_stacks *s);
void scry_native_stacks_look(struct scry_native_stacks *s);

/* The STACK id of its innermost frame, written with its callers where it is new. 0: not known, or
 * it could not be written. */
uint32_t scry_native_stacks_write(struct scry_native_stacks *s, uint64_t number,
				  struct scry_writer *w);

#endif
