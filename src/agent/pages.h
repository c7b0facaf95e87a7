/*
 * Heap pages in which objects were made: see pages.c.
 */
#ifndef SCRY_AGENT_PAGES_H
#define SCRY_AGENT_PAGES_H

#include <stdint.h>

#define SCRY_PAGES 65536u /* of 64 KiB; three quarters are used: 3 GiB of heap */
#define SCRY_PAGES_RECENT 64u

struct scry_agent_pages {
	uint32_t count;
	uint32_t is_full; /* there are more */
	uint64_t recent[SCRY_PAGES_RECENT];
	uint64_t set[SCRY_PAGES]; /* address >> 16; 0: empty */
	uint64_t words[65536 / 8];
};

void scry_pages_add(uint64_t page);
void scry_pages_forget_all(void);

/* Calls `moved` for every slot that a compaction left, in the noted pages. 0: not all are noted. */
int scry_pages_walk(void (*moved)(void *, uint64_t from, uint64_t to), void *context);

/* Where the object went, 0: it has not moved, or its page is gone. */
uint64_t scry_pages_moved(uint64_t object);

#endif
