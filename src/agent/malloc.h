/*
 * Handlers of the malloc functions (malloc.c, malloc_thunk.S): what the host gives them, and where
 * their callers are known by a number.
 */
#ifndef SCRY_AGENT_MALLOC_H
#define SCRY_AGENT_MALLOC_H

#include "agent/agent.h"
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
	uint64_t start, end;	 /* of the allocator's object: callers there are part of it */
	uint64_t free_at;	 /* glibc: its entry, which only itself calls without its PLT */
	uint64_t nothrow[SCRY_NOTHROWS]; /* past their hooks; 0: there is none */
	uint32_t is_glibc;		 /* the size of a block lies before it */
	uint32_t is_other;		 /* it was not what malloc_usable_size said: no more */
};

/* A set of return addresses. The top bits: its CALLER record is published; the allocator calls its
 * own function there. */
#define SCRY_CALLER_EMITTED (1ull << 63)
#define SCRY_CALLER_ITSELF (1ull << 62)
#define SCRY_CALLER_PROBES 32u
struct scry_agent_callers {
	uint64_t at[SCRY_MALLOC_CALLERS]; /* by code; 0 stays empty */
} SCRY_OWN_PAGES;

extern struct scry_agent_malloc scry_agent_malloc_functions SCRY_SHARED;
extern struct scry_agent_callers scry_agent_callers SCRY_SHARED;

#endif
