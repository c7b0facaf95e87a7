/*
 * What the code of an ELF object looks like: its functions, and what leads where.
 *
 * From the file alone, so stripped, static, PIE and shared objects do; addresses are link-time (add
 * the bias). Ranges come from the unwind tables (sys/fde); a range, or the code between two, is
 * decoded once from its first byte on, when a question is asked that it may have to do with
 * (text_reach.c). Direct transfers are exact. Indirect ones:
 *
 *   TABLE    entries of switch tables: 32-bit offsets in a table that a function with an indirect
 *            jump loads by lea; read as long as they stay in that function or a cold part of it
 *   POINTER  every address of code that is in data (relocations; in objects at a fixed address all
 *            words, immediates and displacements that could be one), loaded by lea, a function
 *            symbol or an exported one without a type: computed gotos, callbacks, second entries
 *
 * What is not known counts: a function that jumps indirectly and takes an address in itself, as for
 * a table of differences of labels, may be jumped to at any byte (POINTER). Where constants may lie
 * among code (gaps between ranges, ranges that do not decode) every byte may begin a branch.
 *
 * Left out: exception landing pads. One inside the first bytes of a function would need a call that
 * throws before it in the same few bytes, and an entry that aligns the stack and calls is longer
 * than any window. Code made at run time, and computed addresses other than these, are unknown.
 *
 * Memory beside the image: 12 bytes a transfer that was decoded, 72 a range, 4 where four bytes
 * could be a displacement, which are an eighth. At most 512 MiB of code an object. Where memory is
 * lacking for a question, the answer is the careful one: something leads there.
 */
#ifndef SCRY_SYS_TEXT_H
#define SCRY_SYS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/elf.h"
#include "sys/x86_move.h"

enum scry_text_kind {
	SCRY_TEXT_FUNCTION,
	SCRY_TEXT_COLD,	 /* a part of another function that gcc put elsewhere: never hooked */
	SCRY_TEXT_PLT,	 /* stubs of the linker */
	SCRY_TEXT_SIGNAL /* a signal trampoline */
};

#define SCRY_TEXT_NO_PARENT UINT32_MAX

struct scry_text_range {
	uint64_t start, end; /* [start, end) */
	uint32_t parent;     /* COLD: index of the range it belongs to, or SCRY_TEXT_NO_PARENT */
	uint8_t kind;	     /* enum scry_text_kind */
	bool has_symbol;     /* a function symbol begins here */
	bool jumps_indirect; /* jmp *r/m that is not a GOT slot: a switch, a tail call by pointer */
};

enum scry_transfer_kind {
	SCRY_TRANSFER_CALL32,
	SCRY_TRANSFER_JMP32,
	SCRY_TRANSFER_JCC32,
	SCRY_TRANSFER_JMP8, /* 8-bit ones cannot be aimed elsewhere */
	SCRY_TRANSFER_JCC8,
	SCRY_TRANSFER_LOOP8, /* loop, jrcxz */
	SCRY_TRANSFER_TABLE,
	SCRY_TRANSFER_POINTER,
	SCRY_TRANSFER_KINDS
};

struct scry_transfer {
	uint64_t source; /* of the instruction; 0: not one (data, a symbol) */
	uint64_t target;
	enum scry_transfer_kind kind;
};

struct scry_text_stats {
	size_t ranges[SCRY_TEXT_SIGNAL + 1];   /* by kind */
	size_t transfers[SCRY_TRANSFER_KINDS]; /* by kind */
	uint64_t instructions;		       /* gaps included */
	uint64_t range_bytes, gap_bytes;       /* in ranges; code between ranges */
	size_t range_errors, gap_errors;       /* places that are not an instruction */
	size_t outside;			       /* transfers that leave the object's code: dropped */
	size_t tables_unread; /* beyond a limit of 4 Mi entries, which no honest file meets */
	size_t bad_fdes;      /* unwind entries that could not be read */
};

struct scry_text;

/* Reads an object's code. 0; -ENOENT: it has no unwind tables; -EFBIG; -EINVAL; -ENOMEM; -EIO; all
 * with a sentence. `elf` may be closed afterwards. About 4 ns a byte; then 75 an instruction that
 * is decoded. Questions are asked in one thread. */
int scry_text_read(struct scry_elf *elf, struct scry_text **ret);
/* It is free when all that have it have said so. */
struct scry_text *scry_text_ref(struct scry_text *text);
void scry_text_free(struct scry_text *text); /* NULL is fine */
/* Decodes all. */
void scry_text_stats(struct scry_text *text, struct scry_text_stats *ret);

/* Ranges ascend by start. NULL behind the last; owned by the code. */
size_t scry_text_range_count(const struct scry_text *text);
const struct scry_text_range *scry_text_range(struct scry_text *text, size_t i);
/* The range that covers `addr`, or NULL. */
const struct scry_text_range *scry_text_at(struct scry_text *text, uint64_t addr);

/* A range as an engine asks for it. */
struct scry_text_function {
	uint64_t start, end; /* [start, end) */
	uint64_t next;	     /* start of the next range, or the segment's end: filler between */
	bool is_cold;	     /* not a function: never hooked */
	bool is_jumped_to;   /* a jump leads to its start, be it its own loop: there the red zone
				below rsp may be in use */
	uint32_t index;	     /* of the range */
};
/* The range that covers `addr`; false: none does. All of them: by scry_text_range. */
bool scry_text_function(struct scry_text *text, uint64_t addr, struct scry_text_function *ret);

/* The bytes of a range as in the file, with the filler behind it, for scry_x86_window. Valid while
 * the code is open. */
void scry_text_bytes(const struct scry_text *text, const struct scry_text_range *range,
		     struct scry_x86_code *ret);

/* All queries return how many transfers there are and write the first of them, ordered by target,
 * up to `room`. */
struct scry_transfers {
	struct scry_transfer *rows;
	size_t room;
};

/* What leads into the inside (from, to) of a window from anywhere but the window's own instructions
 * [from, to), which move along. 0: nothing known does. */
size_t scry_text_enters(struct scry_text *text, uint64_t from, uint64_t to,
			const struct scry_transfers *ret);

/* The direct transfers to `target` from outside its own function and its cold parts: call sites. */
size_t scry_text_sites(struct scry_text *text, uint64_t target, const struct scry_transfers *ret);

/* Those from inside the own function behind its window, by its switches too: loops back to `start`
 * that pass a hook at the entry again without being calls. `window` bytes from `start` on move
 * along. */
size_t scry_text_loops(struct scry_text *text, uint64_t start, size_t window);

/* Of `count` link-time addresses of words, ascending, each once: is one read, or written, by an
 * instruction other than a call or jmp through it? About 2 ns a byte of code. */
void scry_text_loads(const struct scry_text *text, const uint64_t *words, size_t count, bool *ret);

/* Is the address of `target` taken (POINTER), so that calls may come from anywhere? */
bool scry_text_is_pointed(struct scry_text *text, uint64_t target);

#endif
