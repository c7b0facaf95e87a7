/*
 * Fork children of a recorded process. A child begins with the blocks that its parent had when it
 * forked: the parent's calls say when that was, and its copy waits here until the child is seen to
 * record. A child that records already, in a child buffer, waits for the copy.
 */
#ifndef SCRY_INSTRUMENT_MALLOC_CHILDREN_H
#define SCRY_INSTRUMENT_MALLOC_CHILDREN_H

#include "instrument/malloc/malloc.h"
#include "watch/watch.h"

/* For the calls of process `pid`, recorded in what was put into the process of `entered`, to which
 * the fork children belong. The caller adds its number of parts. */
struct scry_malloc_opts scry_malloc_children_opts(struct scry_watch *entered, uint32_t pid,
						  uint64_t start_ticks);
/* An ALLOCATOR event: `pid` has the allocator of the process of `entered`. `ev`: what else it says;
 * NULL: nothing. None where the pool is one that programs join: they say it themselves. */
void scry_malloc_children_allocator(struct scry_watch *entered, uint32_t pid,
				    const struct scry_ev_allocator *ev);
/* scry_malloc_opts.on_fork, its argument the watch of the process that was entered: what `parent`
 * has now, its child `pid` has too. */
int scry_malloc_children_fork(void *arg, struct scry_malloc *parent, uint32_t pid);

/* A program begins in process `w`, perhaps a fork child's next one: what that did until now is a
 * part that ends before this one begins. */
void scry_malloc_children_next(struct scry_watch *w);

/* Copies for those that have ended without a call are dropped: `w` is the watch that on_fork has.
 */
void scry_malloc_children_look(struct scry_watch *w);

/* A child buffer was taken: struct scry_instrument's adopt. Its calls are there after take_up.
 * Without a root it has a pool only (watch/preload.h). */
int scry_malloc_child_adopt(struct scry_watch *w);
/* The calls of the process that has this child buffer, as its parent left them, once that is known:
 * sets `calls` of its recording. 0 also when it is not known yet. */
int scry_malloc_child_take_up(struct scry_watch *w);
/* struct scry_instrument's must_wait: it has ended, and they are not known yet. */
bool scry_malloc_child_must_wait(const struct scry_watch *w);
/* The same at the end of all, when none is stopped any more: waits here. */
int scry_malloc_child_take_late(struct scry_watch *w);
/* Before its words are taken: lines are those of the Ruby that its root is. */
void scry_malloc_child_lines(struct scry_watch *w);
/* The end of one without rows of its own, in the recording. */
void scry_malloc_child_end(struct scry_watch *w);

/* Those that were never seen are dropped. */
void scry_malloc_children_done(struct scry_watch *w);

#endif
