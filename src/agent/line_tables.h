/*
 * The tables by which a line of a Ruby program is known by a number: lines.h.
 */
#ifndef SCRY_AGENT_LINE_TABLES_H
#define SCRY_AGENT_LINE_TABLES_H

#include "agent/agent.h"
#include "agent/code.h"
#include "wire/malloc_ring.h"

/* The first words of code that has codes: where a block at one of them ends, its codes mean nothing
 * any more. Sets of four. */
#define SCRY_LINE_STARTS 32768u
#define SCRY_LINE_START_BITS 65536u
struct scry_agent_starts {
	uint64_t bits[SCRY_LINE_START_BITS / 64]; /* by hash: perhaps there */
	uint64_t at[SCRY_LINE_STARTS];
	uint32_t ended[SCRY_LINE_STARTS]; /* how often one in its place has */
	uint32_t codes[SCRY_LINE_STARTS]; /* the newest of its codes, + 1 */
};

/* Code as it was emitted last: its other lines differ by little. By the address of its iseq. */
#define SCRY_LINES_EMITTED 1024u
struct scry_agent_emitted {
	uint64_t iseq, pc;
	uint32_t start, ended; /* of its start: index, and then; where that is the same, all this
				  holds */
	struct scry_agent_code code;
	struct scry_ring_def def; /* of `pc` */
	uint64_t text[SCRY_CODE_TEXT_MAX / 8];
};

/* A set of (return address, pc of the newest Ruby frame). */
#define SCRY_LINES (SCRY_MALLOC_CODES - SCRY_MALLOC_LINES)
#define SCRY_LINE_SLOTS 262144u
#define SCRY_LINE_FRONT 8192u
#define SCRY_LINE_CODE_BITS 18
_Static_assert(SCRY_MALLOC_CODES <= 1u << SCRY_LINE_CODE_BITS, "they fit");
struct scry_agent_lines {
	uint64_t front[SCRY_LINE_FRONT]; /* of `at`, those that were asked for last */
	uint64_t at[SCRY_LINE_SLOTS];	 /* hash : 46 | code : 18; 0 empty */
	uint64_t hashes[SCRY_LINES];	 /* by code */
	uint32_t next[SCRY_LINES];	 /* by code: another one of the same start, + 1 */
	uint32_t count;			 /* codes given */
	uint32_t is_emitted_used; /* 1: a thread reads or writes `emitted`; others do without */
	uint64_t generation;	  /* how often code that was emitted has ended */
	struct scry_agent_starts starts;
	struct scry_agent_emitted emitted[SCRY_LINES_EMITTED];
} SCRY_OWN_PAGES;
extern struct scry_agent_lines scry_agent_lines SCRY_SHARED;

#endif
