/*
 * Places that call malloc functions: codes of the agent -> ids of the recording, and their names.
 *
 * A code gets its id at its first use, so ids are dense. Names are looked up while the target
 * lives, once per place: the mapping that holds the return address and the function that covers the
 * byte before it. Files are opened when seen and kept, for a target that ends soon.
 *
 * Where a Ruby ran code, the agent has copied its path, label and lines. What it could not read is
 * counted, and the place is native.
 */
#ifndef SCRY_NAME_MALLOC_CALLERS_H
#define SCRY_NAME_MALLOC_CALLERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rec/writer.h"
#include "vm/ruby.h"

struct scry_malloc_callers;

/* Looks at what is mapped in process `pid` (0: names stay unknown), by its files alone where its
 * memory is not to be opened (is_closed). NULL: no memory. */
struct scry_malloc_callers *scry_malloc_callers_new(pid_t pid, bool is_closed);
/* Of a fork child: one that has ended already, or runs another program, had what its parent has
 * mapped. */
struct scry_malloc_callers *scry_malloc_callers_fork(const struct scry_malloc_callers *parent,
						     pid_t pid, bool is_closed);
/* Where its names come from: lent. */
struct scry_modules *scry_malloc_callers_modules(const struct scry_malloc_callers *c);
void scry_malloc_callers_free(struct scry_malloc_callers *c);

/* The agent says what a code means. 0; -EINVAL: no code, or it meant something else. */
int scry_malloc_callers_define(struct scry_malloc_callers *c, uint64_t code, uint64_t address);

/* The same of a code that means a line, by the words of a LINE record behind its first one. */
int scry_malloc_callers_line(struct scry_malloc_callers *c, uint64_t code, const uint64_t *words,
			     size_t count);

/* The Ruby that ran those lines, borrowed until the end; NULL: give them up. Until it is known that
 * its layout holds, places are emitted as native ones, and again when it is. */
void scry_malloc_callers_ruby(struct scry_malloc_callers *c, const struct scry_ruby *ruby,
			      bool is_proven);

/* A stack by its number: scry_native_stacks_define. */
int scry_malloc_callers_stack(struct scry_malloc_callers *c, uint64_t number,
			      const uint64_t *addresses, size_t count);

/* Id of a code, 0: none; or of a code, 0 too, and a stack. */
uint32_t scry_malloc_callers_id(struct scry_malloc_callers *c, uint32_t code, uint64_t stack);

/* Looks up names that are not known yet: while the target lives. Costs nothing when there is none,
 * else a read of /proc/PID/maps. */
void scry_malloc_callers_look(struct scry_malloc_callers *c);

/* Writes CALLER events for the ids not emitted yet. 0, or the error of a write. */
int scry_malloc_callers_report(struct scry_malloc_callers *c, struct scry_writer *w);

uint64_t scry_malloc_callers_count(const struct scry_malloc_callers *c);
/* Emitted without an address: used before they were defined. */
uint64_t scry_malloc_callers_unnamed(const struct scry_malloc_callers *c);
/* Places that are lines, and of these the ones whose code could not be read. */
uint64_t scry_malloc_callers_lines(const struct scry_malloc_callers *c, uint64_t *ret_gone);

#endif
