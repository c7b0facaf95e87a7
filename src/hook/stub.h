/*
 * The code that a changed place leads to: first stage, in a slab near by. Pure functions: bytes for
 * an address; hook/hooks writes them.
 *
 *   COUNT    counts, in the process that was entered and not in its fork children
 *   CALL     calls a handler of the agent through its thunk, which keeps every register and the
 *            flags (agent/thunk.S), or, for places that are calls by the ABI only, what such a call
 *            keeps, and the arguments (agent/gvl_thunk.S)
 *   REPLACE  jumps to a handler with the original's address in r11, a register that no function
 *            expects anything in; it calls the original by itself or does not
 *
 * and, but for REPLACE, goes on to the function: by a copy of its displaced first instructions and
 * a jump behind them, or, where a slot or a call was changed and not the function, by a jump to its
 * entry. But for what such a thunk changes, every register, vector ones included, the flags and the
 * stack above rsp are as found; with `spares_red_zone` also the 128 bytes below it, which code that
 * is entered by jumps may use.
 */
#ifndef SCRY_HOOK_STUB_H
#define SCRY_HOOK_STUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/x86_move.h"

#define SCRY_STUB_MAX (64 + SCRY_X86_MOVED_MAX)

enum scry_hook_kind { SCRY_HOOK_COUNT, SCRY_HOOK_CALL, SCRY_HOOK_REPLACE };

struct scry_stub {
	enum scry_hook_kind kind;
	bool is_indirect; /* a slot leads here: begins with endbr64 */
	bool spares_red_zone;
	bool frees_rax; /* COUNT: what comes next sets rax whatever it is: no stack is used */
	uint64_t at;	/* where it will run */
	uint64_t state_page, counter; /* COUNT: two words within reach */
	uint64_t literal; /* else: a word within reach that holds the handler's address */
	uint32_t cookie;  /* CALL: what the handler gets, below 2^31 */
	/* where it goes on */
	uint64_t function;		      /* without a window: its entry */
	const struct scry_x86_code *code;     /* else the function ... */
	const struct scry_x86_window *window; /* ... and what was displaced of it */
};

struct scry_stub_code {
	uint8_t bytes[SCRY_STUB_MAX];
	size_t size;
	size_t copy_at; /* offset of the displaced instructions' copy: a REPLACE's original */
	uint16_t copied[SCRY_X86_COUNT_MAX + 1]; /* as in scry_x86_moved, from copy_at */
};

/* SCRY_X86_OK, or why the window cannot be moved to `at`. */
enum scry_x86_refusal scry_stub_emit(const struct scry_stub *stub, struct scry_stub_code *ret);

#endif
