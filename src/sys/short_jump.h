/*
 * Short-jump trampolines: hooking a function whose first bytes have no room for a jump of 5.
 *
 * A function may be entered at its third byte, make a system call there, or be two bytes long. Then
 * a short jump of 2 bytes at the entry leads to filler between functions near by, which holds the
 * jump of 5 to the stub:
 *
 *   filler     ... e9 rel32 ...          function: eb rel8 | rest, entered at +2, +3 as ever
 *                  ^---------------------------------'
 *
 * The filler is written first: no thread runs it. Then the entry, two bytes at once.
 */
#ifndef SCRY_SYS_SHORT_JUMP_H
#define SCRY_SYS_SHORT_JUMP_H

#include "sys/text.h"

#define SCRY_SHORT_JUMP_BYTES 2	    /* bytes at the entry */
#define SCRY_SHORT_JUMP_PAD_BYTES 5 /* bytes of filler */

struct scry_short_jump {
	uint64_t entry;			     /* where the short jump goes, behind an endbr64 */
	uint64_t pad;			     /* where the long one goes */
	struct scry_x86_window window;	     /* displaced: of the 2 bytes */
	uint8_t jump[SCRY_SHORT_JUMP_BYTES]; /* to the pad */
};

/* Bytes that are in use: other pads, windows that reach into filler. Not sorted. */
struct scry_short_jump_taken {
	uint64_t start, end; /* [start, end) */
};

/*
 * Plans a trampoline for a range of `text`, not using the `count` ranges of `taken` (link-time
 * addresses). SCRY_X86_OK and *ret; SCRY_X86_SHORT: no filler within reach, or 2 bytes are too
 * many, too, or one of them is taken; else why the two bytes cannot be displaced. Pure: nothing is
 * remembered, so the caller adds [pad, pad + 5) and the window to what is taken.
 */
struct scry_short_jump_request {
	struct scry_text *text;
	const struct scry_text_range *range;
	const struct scry_short_jump_taken *taken;
	size_t count;
};
enum scry_x86_refusal scry_short_jump_plan(const struct scry_short_jump_request *request,
					   struct scry_short_jump *ret);

#endif
