/*
 * Callers of malloc functions as places that a person knows: those of one line that a VM ran are
 * one, whatever native code they went through, or those of a file, or a method; native ones stay by
 * themselves, or are those of an object, or a function. With stacks the native caller is the first
 * one that is not a wrapper.
 */
#ifndef SCRY_VIEW_MALLOC_PLACES_H
#define SCRY_VIEW_MALLOC_PLACES_H

#include "base/buf.h"
#include "view/malloc_sum.h"
#include "view/view.h"

/* 0; -EINVAL with a sentence: malloc has no such places. */
int scry_malloc_places_check(const struct scry_view_opts *opts);

/*
 * Sums the callers of the process by place: caller_count is less then, and what differs within a
 * place is 0 in its name. 0 or -ENOMEM with a sentence.
 */
struct scry_malloc_places {
	struct scry_malloc_process *process; /* closed */
	const struct scry_native_frames *stacks;
	const struct scry_reader *reader;
	enum scry_view_by by;
	bool has_whole_paths; /* data; else as view/gem.h shortens them */
	bool has_base_names;  /* objects by their names alone: each build has its directory */
};
int scry_malloc_places_merge(const struct scry_malloc_places *p);

/* What they are: "caller" or "callers", "module", ... */
const char *scry_malloc_places_noun(const struct scry_malloc_places *p, uint64_t count);

/* What a person calls it; `c`: one of these. */
void scry_malloc_places_put(const struct scry_malloc_places *p,
			    const struct scry_malloc_caller_sum *c, struct scry_buf *buf);

/* A sentence where a fifth of the bytes and more are of callers that allocate for others, and no
 * stacks say for whom. Appends nothing where there is no need for it. */
void scry_malloc_places_wrappers(const struct scry_malloc_places *p, struct scry_buf *buf);

#endif
