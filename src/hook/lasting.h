/*
 * Patches that last: changes of code that stay when scry has gone, until they are undone or the
 * process ends, in fork children too.
 *
 * A patch has memory of its own (wire/patch.h), near the code that it changes: head, journal, the
 * code that changed places lead to, data. Nothing of it needs a keeper, lease or state page, or the
 * agent; that is mapped only while a patch is put in or taken out, for the calls that map memory
 * and for the claim to the process. No watch's end gives it back. Its journal is its own: a watch
 * undoes none of its changes, and cannot change the same bytes, as it expects the file's there.
 *
 * Whatever is killed when: memory is mapped closed and named before it is opened; the journal has
 * each change before it is made; code is written before anything leads there. What is left is a
 * patch that works, one of which some changes are not made yet, each of them right by itself, or
 * memory that nothing leads to; undo takes out each.
 *
 * A patch has a stack for calls, as the agent has one: a process that holds a patch can be entered
 * by it (inj->spare_stack) in a thread on any stack.
 *
 * Life, after scry_inject_enter: map, write text and data (scry_edit_poke), on; or find, open, off.
 */
#ifndef SCRY_HOOK_LASTING_H
#define SCRY_HOOK_LASTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hook/hooks.h"
#include "hook/inject.h"
#include "wire/patch.h"

struct scry_lasting {
	struct scry_patch_head head;
	struct scry_edit edit; /* of its own journal */
};

/* The first patch at an address from *at on, which becomes one behind it. 0; -ENOENT. */
int scry_lasting_next(const struct scry_mem *mem, const struct scry_maps *maps, uint64_t *at,
		      struct scry_patch_head *ret);
/* The patch of that name; one that was taken out and is still mapped only where there is no other.
 * 0; -ENOENT. */
int scry_lasting_find(const struct scry_mem *mem, const struct scry_maps *maps, const char *name,
		      struct scry_patch_head *ret);

/* The patch whose code is at `address`, as of a jump that was found. False: none. */
bool scry_lasting_at(const struct scry_mem *mem, const struct scry_maps *maps, uint64_t address,
		     struct scry_patch_head *ret);

/* What a caller fills in of a head: name, kind, the sizes (rounded up to pages here), journal_room.
 * Plans its addresses within 1 GiB of `near` and maps it, zero. 0 or -errno with a sentence. */
int scry_lasting_map(struct scry_inject *inj, uint64_t near, struct scry_patch_head *head);
/* Writes the head as it is, stage included. */
int scry_lasting_write(const struct scry_inject *inj, const struct scry_patch_head *head);

/*
 * Makes the changes of `h`, whose rows lead to stubs within the patch: has_stub, stub, copy and
 * copied are the caller's. One stop of all threads. 0, or -errno with a sentence: all is put back.
 * Where that fails too, undo is what mends it.
 */
int scry_lasting_on(struct scry_lasting *p, struct scry_inject *inj, struct scry_hooks *h);

/* Opens what was found. 0 or -errno with a sentence: its journal is damaged. */
int scry_lasting_open(struct scry_lasting *p, struct scry_inject *inj,
		      const struct scry_patch_head *head);
void scry_lasting_close(struct scry_lasting *p);

/*
 * Puts all changes back, byte for byte, and unmaps the patch if it is proven that no thread can
 * come to it any more: with all threads stopped, no register and no word of memory that the program
 * may write leads there. *ret_left bytes stay mapped otherwise, without effect (stage OUT), as
 * where that memory is too large to be searched in a pause; *ret_why says why. 0 or -errno with a
 * sentence: -EBUSY: changes are left.
 */
int scry_lasting_off(struct scry_lasting *p, struct scry_inject *inj, struct scry_undo_report *ret,
		     uint64_t *ret_left, const char **ret_why);

#endif
