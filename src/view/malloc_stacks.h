/*
 * Native stacks of a malloc recording: who asked for memory, seen through the functions that only
 * hand the question on.
 */
#ifndef SCRY_VIEW_MALLOC_STACKS_H
#define SCRY_VIEW_MALLOC_STACKS_H

#include "base/buf.h"
#include "base/map.h"
#include "rec/reader.h"
#include "view/doc.h"

#include <stdbool.h>
#include <stdint.h>

#define SCRY_MALLOC_STACK_DEPTH 128u

struct scry_malloc_stacks {
	struct scry_ev_stack *frames; /* by id */
	uint32_t count;
	struct scry_map
		pairs; /* of a place without a name and one that it was called from: hashes */
	struct scry_map hubs; /* place -> from how many it was called */
};

/* Takes a STACK event. 0 or -ENOMEM with a sentence. */
int scry_malloc_stacks_event(struct scry_malloc_stacks *s, const struct scry_ev_stack *stack);
void scry_malloc_stacks_done(struct scry_malloc_stacks *s);

/* Is it the name of a function that allocates for others: malloc, operator new, xmalloc,
 * rb_xmalloc, strdup, std::allocator? By its name alone; see the table in malloc_stacks.c. What has
 * no name is one when it is called from sixteen places or more. */
bool scry_malloc_is_wrapper(const char *symbol);

/* The innermost frame that is no wrapper; the innermost of all, where all are. NULL: no stack. */
const struct scry_ev_stack *scry_malloc_stacks_caller(const struct scry_malloc_stacks *s,
						      const struct scry_reader *reader,
						      uint32_t id);

/* "main > parse > strdup", outermost first. */
void scry_malloc_stacks_put(const struct scry_malloc_stacks *s, const struct scry_reader *reader,
			    uint32_t id, struct scry_buf *buf);

/* The same for renderers, outermost first: how many. */
uint32_t scry_malloc_stacks_frames(const struct scry_malloc_stacks *s,
				   const struct scry_reader *reader, uint32_t id,
				   struct scry_doc_frame ret_frames[SCRY_MALLOC_STACK_DEPTH]);

#endif
