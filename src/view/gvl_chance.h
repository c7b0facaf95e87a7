/* How much of what samples say of a lock may be chance: gvl_sums.c. */
#ifndef SCRY_VIEW_GVL_CHANCE_H
#define SCRY_VIEW_GVL_CHANCE_H

#include "view/gvl.h"

/*
 * How many independent turns a row is of, where samples share what was counted: what a row has lost
 * comes in turns, as a thread that holds the lock holds it for a while. Its turns are its part of
 * all of them, and its samples at most; one that takes longer than the VM's time slice is as many
 * as it takes slices. `turns`: of all rows.
 */
uint64_t scry_gvl_turns(const struct scry_gvl_lines *l, const struct scry_gvl_line *row,
			uint64_t turns);
/* All turns: takes of the lock for those that held it, waits for those that waited. */
uint64_t scry_gvl_all_turns(const struct scry_gvl_view *g, const struct scry_gvl_lines *l);
/* The standard deviation of what the row has lost, by chance; 0: it has no samples. */
uint64_t scry_gvl_error_ns(const struct scry_gvl_lines *l, const struct scry_gvl_line *row,
			   uint64_t turns);

#endif
