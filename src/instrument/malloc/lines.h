/*
 * The Ruby line as a caller of malloc functions: instrument/ruby_lines.h, agent/lines.c.
 */
#ifndef SCRY_INSTRUMENT_MALLOC_LINES_H
#define SCRY_INSTRUMENT_MALLOC_LINES_H

#include "hook/hooks.h"
#include "instrument/ruby_lines.h"
#include "name/malloc.h"

/* Wants the hook by which the end of the VM is seen: 0 or -errno. Without it there are no lines. */
int scry_malloc_lines_want(const struct scry_ruby_lines *l, struct scry_hooks *hooks);
/* Before the first take: lines are read from now on. */
void scry_malloc_lines_read(struct scry_ruby_lines *l, struct scry_malloc *calls);
/* Before each take: when the VM is up, its layout must hold. */
void scry_malloc_lines_turn(struct scry_ruby_lines *l, struct scry_malloc *calls);
/* At the end, before scry_malloc_finish; notes what was left out. */
void scry_malloc_lines_note(const struct scry_ruby_lines *l, const struct scry_malloc_stats *calls);

#endif
