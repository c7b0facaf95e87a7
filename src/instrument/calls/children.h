/*
 * `scry calls -S -f`: calls of the children of a process whose system calls are traced, each
 * child's in one order with those of functions, which come by its child buffer when it has one.
 * Private to the instrument (calls.c), whose root, the process that was entered, owns them.
 */
#ifndef SCRY_INSTRUMENT_CALLS_CHILDREN_H
#define SCRY_INSTRUMENT_CALLS_CHILDREN_H

#include "instrument/calls/functions.h"

#define SCRY_CALLS_CHILDREN_MAX 4096u

/* The calls of child `pid` of the root, new or known; NULL: it is watched by itself, there are too
 * many (counted), or no memory. As struct scry_calls_kernel_take wants it; `root` is a struct
 * scry_calls_watch. */
struct scry_calls *scry_calls_children_of(void *root, uint32_t pid);
/* Does another child buffer say already that it is `pid`'s? Then one of the two lies, or its number
 * was given out again: they share nothing. */
bool scry_calls_children_has_buffer(const struct scry_calls_watch *root, uint32_t pid);
/* Its functions come by a child buffer from now on, or no longer: then the root writes its calls.
 */
void scry_calls_children_buffer(struct scry_calls_watch *root, const struct scry_calls *calls,
				bool has_child_buffer);
/* Writes what is stamped up to there, of processes that have no child buffer. */
int scry_calls_children_merge(struct scry_calls_watch *root, uint64_t watermark);
/* How many calls were written of children while they had no child buffer, and how many children
 * found no place. */
uint64_t scry_calls_children_count(const struct scry_calls_watch *root, uint64_t *ret_refused);
/* How many have been reported, living or not. */
uint32_t scry_calls_children_known(const struct scry_calls_watch *root);
/* Do some live that may make calls? Asked seldom, as it looks at each. */
bool scry_calls_children_live(const struct scry_calls_watch *root);
void scry_calls_children_free(struct scry_calls_watch *root);

#endif
