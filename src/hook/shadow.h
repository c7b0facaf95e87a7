/*
 * Shadow returns from outside (wire/shadow.h): set up, switched, and taken out of the stacks again.
 *
 * Life: scry_shadow_start after scry_inject_enter; hooks of kind CALL on "scry_agent_timed", whose
 * cookie is the hook's number, with SCRY_SHADOW_RED_ZONE where the stub spares it; of kind REPLACE
 * on each _Unwind_Find_FDE with "scry_agent_find_fde"; when all are on, scry_shadow_follow. Before
 * any of them is taken off: scry_shadow_settle, which scry_inject_enter (for one that an earlier
 * scry left) and scry_inject_leave call by themselves. All in the keeper.
 */
#ifndef SCRY_HOOK_SHADOW_H
#define SCRY_HOOK_SHADOW_H

#include <stdbool.h>
#include <stdint.h>

#include "hook/hooks.h"
#include "wire/shadow.h"

/* Maps thunks, and counters for the planned hooks, in `held` or in a thread held for it.
 * *ret_stats: one a row, shared with the target, valid until scry_inject_done. 0 or -errno with a
 * sentence. */
int scry_shadow_start(struct scry_inject *inj, struct scry_tracee *held, struct scry_hooks *h,
		      const struct scry_shadow_stats **ret_stats);

/* Functions for which start makes counters: those of `h`, and some of libraries to come. */
uint32_t scry_shadow_room(const struct scry_hooks *h);

/* After scry_shadow_refuse has failed: because of an unwinder that cannot be hooked? */
bool scry_shadow_lacks(const struct scry_hooks *h);

/* After start, before follow: calls are recorded one by one (wire/call_ring.h), into thread
 * buffers, with so many bytes of a string (SCRY_CALL_TEXT_MAX at most); *ret_stats has then one
 * row, the sum. */
int scry_shadow_record(struct scry_inject *inj, uint32_t string_max);
/* Where errno is, from the thread pointer: for plans that ask for it. 0 or -errno with a sentence.
 */
int scry_shadow_errno(struct scry_inject *inj, int64_t at);

/* Wants what makes unwinders find their way: a REPLACE hook of libgcc's, shared or linked into a
 * static program. Where there is none nothing is wanted, unless the set waits for libraries. After
 * scry_shadow_check. 0 or -errno with a sentence. */
int scry_shadow_want(struct scry_hooks *h);
/* After the user's functions are wanted: functions that look at their caller, dlsym and dlopen,
 * find it when a followed function ends in a tail call to them. 0 or -errno with a sentence. */
int scry_shadow_guard(struct scry_hooks *h);
/* After scry_hooks_plan: one of these that cannot be hooked, with row->why; NULL: there is none. */
const struct scry_hook *scry_shadow_unguarded(const struct scry_hooks *h);
/* [start, end) of the one of a static program; 0, 0: none. */
void scry_shadow_unwinder(struct scry_hooks *h, uint64_t ret[2]);

/* From now on calls are followed; or no new ones. 0 or -errno: the target is gone. */
int scry_shadow_follow(struct scry_inject *inj);
int scry_shadow_pause(struct scry_inject *inj);
/* Each turn, after scry_loads_turn: calls that the agent has not followed, because a library came
 * that was not hooked in time, are followed again once it is. 0 or -errno. */
int scry_shadow_go_on(struct scry_inject *inj, const struct scry_hooks *h);

/* Objects were loaded since, and `fresh` will be on next: calls from there have returns too, and
 * its unwinders are put back last. 0 or -errno: not, then `fresh` must not be put on. */
int scry_shadow_renew(struct scry_inject *inj, const struct scry_hooks *h,
		      const struct scry_hooks *fresh);

/*
 * The hooks, but for the unwinders', are put back (inj->settled says what was), and every slot
 * holds its own return address again: no thread will come back into the agent. In as many stops as
 * it takes until no thread is inside the agent, or in the midst of unwinding with a thunk in hand.
 * 0, at once where nothing was ever followed; -EBUSY with a sentence: not now, then the unwinders'
 * hooks must stay; -ESRCH.
 */
int scry_shadow_settle(struct scry_inject *inj);
/* The same of the instrument that follows returns, where others may watch the process and go on:
 * their changes are left. */
int scry_shadow_leave(struct scry_inject *inj);

/* How many calls of each hook have neither returned nor been seen to be left. After settle. 0 or
 * -errno. */
int scry_shadow_pending(const struct scry_inject *inj, uint64_t *counts, uint32_t hooks);

/* May a thunk be where the table does not know of it? Then the agent must stay mapped. */
bool scry_shadow_is_needed(const struct scry_inject *inj);

/*
 * hook/shadow_check.c, both read only. May returns be followed in this process at all? Not where
 * stacks are walked or moved by code other than the libgcc that is hooked: 0, or -ENOTSUP with the
 * reason.
 */
int scry_shadow_check(struct scry_hooks *h);
/* After scry_hooks_plan: takes the way from rows whose return cannot be followed, with the reason.
 * With takes_entries functions that look at their caller, return twice or never return keep their
 * way and are is_alone. 0, or -ENOTSUP with a sentence: none is left, or an unwinder cannot be
 * hooked. */
int scry_shadow_refuse(struct scry_hooks *h);
/* During the watch: why it must end, because of what was loaded since; NULL: it may go on. Reads
 * the list of mappings. */
const char *scry_shadow_newcomer(const struct scry_hooks *h);

#endif
