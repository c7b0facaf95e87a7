/*
 * What a scry that died has left changed in a process. Whoever plans reads code and slots as they
 * stand, so that has to be put back first: a slot that leads to a stub leads to no function.
 */
#ifndef SCRY_HOOK_LEFTOVERS_H
#define SCRY_HOOK_LEFTOVERS_H

#include "hook/inject.h"

/*
 * After scry_inject_lock, before anything is planned; `inj` is not entered, and its max_pause_ns
 * and purpose are set. Changes are put back; the agent stays mapped, without effect, for
 * scry_inject_enter. The pauses are counted in `inj`. 0, nothing to do included; or -errno with a
 * sentence, -EBUSY: another scry is at work there.
 */
int scry_leftovers_undo(struct scry_inject *inj);

#endif
