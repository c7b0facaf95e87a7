/*
 * What a watch without -f does not see: children that are Rubies, each with a lock of its own.
 * Life: new, turn, note at the end, free. In the keeper.
 */
#ifndef SCRY_INSTRUMENT_GVL_UNSEEN_H
#define SCRY_INSTRUMENT_GVL_UNSEEN_H

#include "watch/watch.h"

struct scry_gvl_unseen;

/* Counts them, and says at the end that they were not watched. NULL: no memory. */
struct scry_gvl_unseen *scry_gvl_unseen_new(const struct scry_watch *w);
void scry_gvl_unseen_free(struct scry_gvl_unseen *u);
void scry_gvl_unseen_turn(struct scry_gvl_unseen *u);
/* With -f: from now on children are watched. */
void scry_gvl_unseen_end_early(struct scry_gvl_unseen *u);
void scry_gvl_unseen_note(const struct scry_gvl_unseen *u, struct scry_watch *w);

#endif
