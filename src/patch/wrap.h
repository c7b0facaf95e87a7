/*
 * SCRY_WRAP of scry/patch.h: a handler before a function and one behind its return.
 *
 * As agent/shadow has it, but with no keeper outside: the word that holds the return address, the
 * *slot*, gets the address of a thunk instead. There is one thunk for each return address and
 * function, and what it leads home to is never changed: so a return finds its way from the thunk
 * alone, whatever became of the call: twice, in another thread, in a fork child, after the undo.
 *
 *   thunk i:  push $i; jmp return      16 bytes, in the patch's text
 *   homes[i]                           return address | function's number << 56; filled once
 *   calls                              what entry handlers keep for their return, by slot
 *
 * `calls` is only that: an entry that was taken by another call (of a thread that left by longjmp,
 * or of too many at once) costs its own call what it kept, and the handler learns it. Two calls may
 * have one slot at a time, where coroutines copy their stacks to one place and away: an entry is a
 * call's only if rbx, rbp and r12 to r15 are as they were, too. All thunks are tried for a new
 * return address; where none is free the return is not followed, and counted.
 *
 * The undo's proof (hook/lasting.c) must see each address that leads into another patch: that of
 * another's thunk is in homes[], below the number in the top byte.
 *
 * Freestanding but for the last part: patch/wrap.S includes the numbers.
 */
#ifndef SCRY_PATCH_WRAP_H
#define SCRY_PATCH_WRAP_H

#define SCRY_WRAP_THUNKS 1024
#define SCRY_WRAP_THUNK_BYTES 16
#define SCRY_WRAP_BUCKETS 256
#define SCRY_WRAP_WAYS 4
#define SCRY_WRAP_KEPT 4
#define SCRY_WRAP_FUNCTIONS 64 /* as many as an object has entries */

#ifndef __ASSEMBLER__
#include <stddef.h>
#include <stdint.h>

#include "patch/object.h"

struct scry_wrap_call {
	uint64_t key; /* slot | function's number << 56; 0: free; 1: being written */
	uint64_t kept[SCRY_WRAP_KEPT];
	uint64_t caller; /* of the registers that a call leaves alone: the same at its return */
	uint64_t reserved[2];
};
struct scry_wrap_table { /* in the patch's data, behind the object's */
	uint64_t homes[SCRY_WRAP_THUNKS];
	struct scry_wrap_call calls[SCRY_WRAP_BUCKETS][SCRY_WRAP_WAYS];
	uint64_t missed[SCRY_WRAP_FUNCTIONS]; /* returns that were not followed */
};

struct scry_wrap_place { /* addresses in the process */
	uint64_t text, table;
};
struct scry_wrap_state { /* that the code keeps of vector units: XSAVE's mask, bytes */
	uint64_t mask, bytes;
};

/* How much room of the text, and of the data, a patch with these entries needs: 0 without WRAP. */
uint64_t scry_wrap_text_bytes(const struct scry_patch_object *o);
uint64_t scry_wrap_data_bytes(const struct scry_patch_object *o);

/* Thunks and what they lead to, into `code`, which will lie at place->text; `object`: where the
 * object's image lies. */
void scry_wrap_lay_thunks(const struct scry_patch_object *o, uint64_t object,
			  const struct scry_wrap_place *place, const struct scry_wrap_state *state,
			  uint8_t *code);
/* The words of a function's entry code (patch/wrap.S), of entry `number`. */
#define SCRY_WRAP_WORDS 7
void scry_wrap_words(uint32_t number, uint64_t handler, const struct scry_wrap_place *place,
		     const struct scry_wrap_state *state, uint64_t ret[SCRY_WRAP_WORDS]);
#endif

#endif
