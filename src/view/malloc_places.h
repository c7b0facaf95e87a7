/*
 * Callers of the malloc family as places that a person knows: those of one line that a VM ran are
 * one, whatever native code they went through, or those of a file, or a method; native ones stay by
 * themselves, or are those of an object, or a function.
 */
#ifndef SCRY_VIEW_MALLOC_PLACES_H
#define SCRY_VIEW_MALLOC_PLACES_H

#include "base/buf.h"
#include "view/malloc_sum.h"
#include "view/view.h"

/* 0; -EINVAL with a sentence: malloc has no such places. */
int scry_malloc_places_check(enum scry_view_by by);

/*
 * Sums the callers of `p`, which is closed, by place: caller_count is less then, and what differs
 * within a place is 0 in its name. 0 or -ENOMEM with a sentence.
 */
int scry_malloc_places_merge(struct scry_malloc_process *p, const struct scry_reader *reader,
			     enum scry_view_by by);

/* What a person calls it; `c`: one of those. */
void scry_malloc_places_put(const struct scry_malloc_caller_sum *c,
			    const struct scry_reader *reader, enum scry_view_by by,
			    struct scry_buf *buf);

#endif
