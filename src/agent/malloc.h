/*
 * The malloc family's handlers (malloc.c, malloc_thunk.S): what the host tells them, and where
 * their callers are known by a number.
 */
#ifndef SCRY_AGENT_MALLOC_H
#define SCRY_AGENT_MALLOC_H

#include "agent/code.h"
#include "wire/gate.h"
#include "wire/malloc_ring.h"

enum scry_nothrow { /* what operator new(...) calls, to come back when there is no memory */
		    SCRY_NOTHROW_NEW,
		    SCRY_NOTHROW_NEW_ARRAY,
		    SCRY_NOTHROW_NEW_ALIGNED,
		    SCRY_NOTHROW_NEW_ARRAY_ALIGNED,
		    SCRY_NOTHROWS,
};

struct scry_agent_malloc {	 /* the host writes all but `is_other`, `pid` */
	uint64_t usable;	 /* malloc_usable_size, past its hook; 0: not known */
	uint64_t text, text_end; /* of the agent */
	uint64_t start, end;	 /* of the allocator's object: who calls from there is part of it */
	uint64_t free_at;	 /* glibc: its entry, which only itself calls without its PLT */
	uint64_t nothrow[SCRY_NOTHROWS]; /* past their hooks; 0: there is none */
	uint32_t is_glibc;		 /* the size of a block lies before it */
	uint32_t is_other;		 /* it was not what malloc_usable_size said: no more */
};

/* Callers by what a Ruby ran, see lines.h; host writes. */
struct scry_agent_line_plan {
	uint32_t on; /* the agent clears it */
	uint32_t pad;
	struct scry_agent_frames frames;
	uint64_t depth; /* bytes of stack that a thread must have used: see lines.c */
	uint64_t watch; /* a number that no other watch has */
};

/* A set of return addresses. The top bits: its CALLER record is published; the allocator calls its
 * own function there. */
#define SCRY_CALLER_TOLD (1ull << 63)
#define SCRY_CALLER_ITSELF (1ull << 62)
#define SCRY_CALLER_PROBES 32u
struct scry_agent_callers {
	uint64_t at[SCRY_MALLOC_CALLERS]; /* by code; 0 stays empty */
};

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

/* Code as it was told last: its other lines differ by little. By the address of its iseq. */
#define SCRY_LINE_TOLD 1024u
struct scry_agent_told {
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
	uint32_t is_told_used;		 /* 1: somebody reads or writes `told`; others do without */
	struct scry_agent_starts starts;
	struct scry_agent_told told[SCRY_LINE_TOLD];
};

#endif
