/*
 * The agent's parts in a process: its core always, others when they are wanted.
 *
 * All parts have their place in the one reservation (agent_map.h), closed until then: so one that
 * an earlier watch did not need can be had later, at the place that the others know, whatever the
 * program has mapped meanwhile; and whoever takes the agent out need not know which there are.
 *
 *   opened   in a stopped thread, with the mapping or later; zero
 *   written  while all run, as nothing leads there yet
 *   named    in the header; from then on code of the program may be led there
 *
 * Killed in between, the next scry does it again: what the header does not name has never run.
 */
#ifndef SCRY_HOOK_PARTS_H
#define SCRY_HOOK_PARTS_H

#include "hook/inject.h"

/* Those of `parts` that the header does not name. */
static inline uint32_t scry_parts_missing(const struct scry_inject *inj, uint32_t parts)
{
	return parts & ~(uint32_t)inj->header.parts;
}

/* Writes those of `parts` that are open and not named, and names them in inj->header, which the
 * caller writes. 0 or -errno with a sentence. */
int scry_parts_write(struct scry_inject *inj, uint32_t parts);

/*
 * After entering: from now on they are there. In `held` or in a thread that is held for it; no
 * thread is held where nothing is missing. 0 or -errno with a sentence.
 */
int scry_parts_need(struct scry_inject *inj, struct scry_tracee *held, uint32_t parts);

#endif
