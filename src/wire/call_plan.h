/*
 * What the agent fetches of a call beside its integer registers, as the host has made it of the
 * function's prototype (proto/plan.c): a list of operations, each of which puts one part into the
 * record (wire/call_ring.h). Freestanding.
 *
 *   plan     struct scry_call_plan, then its operations: `entry` of them, then `back`
 *
 * Plans lie in one array of the agent's private memory (wire/shadow.h), written before any stub
 * that needs them. Whose cookie says SCRY_CALL_HAS_PLAN has its plan's place there, in units of 16
 * bytes. Others' integer registers are all.
 *
 * A word is named by where it is:
 */
#ifndef SCRY_WIRE_CALL_PLAN_H
#define SCRY_WIRE_CALL_PLAN_H

#include <stdint.h>

#define SCRY_AT_REGISTER 0u /* + 0 to 5: rdi, rsi, rdx, rcx, r8, r9 */
#define SCRY_AT_VECTOR 16u  /* + 0 to 7; not as a source */
#define SCRY_AT_STACK 32u   /* + 0 to 63: words above the return address */
#define SCRY_AT_SAVED 96u   /* + 0 to 5: of the entry, at the return */
#define SCRY_AT_RAX 104u    /* at the return */
#define SCRY_AT_RDX 105u    /* at the return */
#define SCRY_AT_PART 112u   /* a word within the part of an earlier operation */
#define SCRY_AT_NOWHERE 0xffu

/* Of back_words: at the return, */
#define SCRY_BACK_RDX 1u
#define SCRY_BACK_ERRNO 2u	/* and errno: if eax is -1, or, */
#define SCRY_BACK_ERRNO_NULL 4u /* with ERRNO, rax is 0 */

#define SCRY_PLAN_OPS_MAX 24u /* at the entry, and at the return */
#define SCRY_PLAN_SAVED_MAX 6u
#define SCRY_PLAN_STACK_MAX 32u
#define SCRY_PLAN_UNITS 49152u /* of all plans: 768 KiB */

enum scry_fetch_length {
	SCRY_FETCH_FIXED, /* `max` bytes */
	SCRY_FETCH_NUL,	  /* up to a NUL, `max` at most */
	SCRY_FETCH_COUNT, /* the length's word times `scale`, `max` at most */
	SCRY_FETCH_BOTH,  /* so many, up to a NUL, `max` at most. Below 0: up to the NUL */
};
#define SCRY_FETCH_SURE 1u    /* the function reads it itself: by loads */
#define SCRY_FETCH_SQL 2u     /* SCRY_PART_SQL */
#define SCRY_FETCH_MYSQL 4u   /* SCRY_PART_MYSQL */
#define SCRY_FETCH_TEXT 8u    /* SCRY_PART_TEXT */
#define SCRY_FETCH_FORMAT 16u /* of printf: what it names is fetched too */
#define SCRY_FETCH_INT 32u    /* the length's word is an int */
#define SCRY_FETCH_HAS_LENGTH 64u
#define SCRY_FETCH_RESULT 128u /* the length is the result; below 0: nothing was written */

struct scry_fetch {
	uint8_t flags;
	uint8_t length;	 /* enum scry_fetch_length */
	uint8_t from;	 /* where the pointer is */
	uint8_t part;	 /* SCRY_AT_PART: the operation's number */
	uint16_t offset; /* and the pointer's place in it, bytes */
	uint16_t max;	 /* bytes */
	uint8_t length_from, length_part;
	uint16_t length_offset;
	uint16_t scale;
	uint16_t pad;
};
_Static_assert(sizeof(struct scry_fetch) == 16, "a unit");

struct scry_call_plan {
	uint8_t entry, back;	 /* operations */
	uint8_t vectors;	 /* xmm registers at the entry, their low halves */
	uint8_t stack;		 /* words above the return address */
	uint8_t saved_count;	 /* words kept for the return */
	uint8_t back_words;	 /* SCRY_BACK_*, and */
	uint8_t back_vectors;	 /* xmm registers at the return */
	uint8_t named_registers; /* before those of a format, likewise: */
	uint8_t named_vectors, named_stack;
	uint8_t saved[SCRY_PLAN_SAVED_MAX];
};
_Static_assert(sizeof(struct scry_call_plan) == 16, "a unit");

#endif
