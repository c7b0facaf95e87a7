/*
 * Followed returns that patches which last have in hand. SCRY_WRAP (patch/wrap.h) sees the return
 * of a function that is followed already: it finds a thunk of ours in the slot, keeps it in its
 * table as where that return goes home to, and puts its own there. So slots do not lead to ours any
 * more, and the patch does, for as long as it is there.
 */
#ifndef SCRY_HOOK_SHADOW_HOMES_H
#define SCRY_HOOK_SHADOW_HOMES_H

#include <stdbool.h>
#include <stdint.h>

#include "hook/inject.h"

struct scry_shadow_homes {
	uint64_t thunks;	   /* address of the first of ours */
	const uint64_t *originals; /* where each of them leads home to */
};

/* While all are stopped, with the list of mappings as it is: in all patches' data each word that
 * leads to a thunk of ours, whatever is in its highest byte, leads to that thunk's original. 0;
 * -EAGAIN: a thread has such a word in a register, and is in a patch's code. -errno. */
int scry_shadow_homes_put_back(const struct scry_inject *inj, const struct scry_stw *w,
			       const struct scry_shadow_homes *s);

#endif
