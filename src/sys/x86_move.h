/*
 * Moving the first instructions of a function: which bytes a jump at the entry displaces, and the
 * same work written for another address. Pure functions over bytes; no process is touched.
 *
 *   function:  endbr64 | i0 i1 i2 (filler) | rest        copy:  i0' i1' i2' jmp rest
 *                      ^ window: >= need bytes                  (i' does what i did)
 *
 * An endbr64 at the front stays in place and is not part of the window. Offsets count from the
 * window's first byte. A window is displaced as whole instructions; where the function ends inside
 * it, the filler up to the next function (no-ops, int3, zeros) may be overwritten.
 *
 * Rules of the copy. A branch from the window into the window leads to the copy of what it led to,
 * the function's own start included: a loop back to byte 0 is not a call. A *call* of the own start
 * leads to the entry, for it is one. A call is moved only as the last instruction; it pushes the
 * original return address (unwinders and exceptions see the truth) and jumps, which a shadow stack
 * (CET SHSTK) forbids: do not use such a window (SCRY_X86_CALL) in a process that has one. Before a
 * jump is written, the caller makes sure that nothing outside the window leads into its inside
 * (sys/text) and that no thread is there.
 */
#ifndef SCRY_SYS_X86_MOVE_H
#define SCRY_SYS_X86_MOVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCRY_X86_NEED_MAX 32   /* bytes a caller may ask for */
#define SCRY_X86_COUNT_MAX 48  /* instructions in a window: need + 14 bytes hold no more */
#define SCRY_X86_MOVED_MAX 320 /* bytes of a copy, jump back included */

/* Why a window cannot be displaced or moved. Names and sentences: scry_x86_why. */
enum scry_x86_refusal {
	SCRY_X86_OK,
	SCRY_X86_UNDECODED,   /* no instruction, or cut off */
	SCRY_X86_SHORT,	      /* the function ends inside the window; what follows is not filler */
	SCRY_X86_SYSCALL,     /* a restarted system call would step back into the window */
	SCRY_X86_CALL_INSIDE, /* its return address would lie inside the window */
	SCRY_X86_XBEGIN,      /* or xabort */
	SCRY_X86_TRAP,	      /* int3: another tool's breakpoint */
	SCRY_X86_HOOKED,      /* begins with a jump, and SCRY_X86_JUMP_OK was not given */
	SCRY_X86_FORM,	      /* 16-bit or far branch, 32-bit rip, call through rsp */
	SCRY_X86_INTO,	      /* a branch of the window leads into one of its instructions */
	SCRY_X86_REACH,	      /* an operand or target is more than 2 GiB from the copy */
	SCRY_X86_ROOM,	      /* need or copy larger than the maxima above */
	SCRY_X86_REFUSALS
};

/* Flags of scry_x86_window: a first jump is the function's own (the file has it, too). */
#define SCRY_X86_JUMP_OK 1u

/* What is in a window. */
#define SCRY_X86_ENDS 1u	/* its last instruction does not go on to the next */
#define SCRY_X86_RIP 2u		/* rip-relative operands */
#define SCRY_X86_BRANCH 4u	/* relative jumps, conditional ones, loops */
#define SCRY_X86_CALL 8u	/* the last instruction is a call */
#define SCRY_X86_FILLER 16u	/* bytes behind the function belong to the window */
#define SCRY_X86_SELF 32u	/* a branch leads from the window into the window */
#define SCRY_X86_JUMP_FIRST 64u /* begins with jmp rel8, jmp rel32 or jmp *mem(%rip) */
#define SCRY_X86_ONE 128u	/* a single instruction: no thread can be inside */

struct scry_x86_code {
	const uint8_t *bytes; /* of the function, from its first byte */
	uint64_t address;     /* where it runs */
	size_t size;	      /* bytes of the function */
	size_t avail;	      /* readable bytes up to the next function, >= size */
};

struct scry_x86_window {
	uint8_t endbr;			    /* bytes of endbr64 in front of the window: 0 or 4 */
	uint8_t bytes;			    /* whole instructions and filler, >= need */
	uint8_t code;			    /* of these, instructions */
	uint8_t count;			    /* instructions */
	uint8_t at[SCRY_X86_COUNT_MAX + 1]; /* offset of each instruction; at[count] == code */
	uint32_t has;			    /* SCRY_X86_ENDS ... */
};

struct scry_x86_place {
	uint64_t address; /* where the copy will run */
	bool back;	  /* append a jump to the byte behind the window, where it goes on there */
};

struct scry_x86_moved {
	uint16_t bytes;
	uint16_t at[SCRY_X86_COUNT_MAX + 1]; /* offset of each instruction's copy; at[count]: the
						jump back, or the end */
	uint8_t code[SCRY_X86_MOVED_MAX];
};

/* Measures the window of at least `need` bytes (1..SCRY_X86_NEED_MAX) of a function. Returns why
 * not, or SCRY_X86_OK and fills *ret. */
enum scry_x86_refusal scry_x86_window(const struct scry_x86_code *code, size_t need, uint32_t flags,
				      struct scry_x86_window *ret);

/* Writes the copy of a measured window. `code` as it was measured. SCRY_X86_OK and *ret, or
 * SCRY_X86_REACH, SCRY_X86_ROOM; *ret is untouched then. */
enum scry_x86_refusal scry_x86_move(const struct scry_x86_code *code,
				    const struct scry_x86_window *window,
				    const struct scry_x86_place *place, struct scry_x86_moved *ret);

/* For a thread that is at `offset` of the window: offset in the copy; and the reverse, where the
 * jump back stands for the window's end. -1: not at an instruction; inside an expanded one a thread
 * has to run on first. */
int scry_x86_to_copy(const struct scry_x86_window *window, const struct scry_x86_moved *moved,
		     size_t offset);
int scry_x86_to_window(const struct scry_x86_window *window, const struct scry_x86_moved *moved,
		       size_t offset);

/* A sentence for people, without an article or full stop: "a system call in the window". */
const char *scry_x86_why(enum scry_x86_refusal refusal);

/* Can a rel32 whose instruction ends at `next` lead to `to`? */
bool scry_x86_reaches(uint64_t next, uint64_t to);
/* jmp rel32 at `from`: writes 5 bytes and returns 5, or 0 when `to` is out of reach. */
size_t scry_x86_jump(uint64_t from, uint64_t to, uint8_t *ret);
/* jmp *0(%rip); .quad to: anywhere, 14 bytes. Returns 14. */
size_t scry_x86_jump_far(uint64_t to, uint8_t *ret);

#endif
