/*
 * Counting calls of a function without stopping it: the smallest use of the patching engine.
 *
 * Two ways. ENTRY: the function begins with a no-op of at least 5 bytes, which becomes a jump to a
 * stub near by (all calls are seen). GOT: the slots through which loaded objects call the function
 * are pointed at the stub (calls through those slots are seen). A stub counts in the process that
 * was entered, not in its fork children, and goes on to the function with every register and the
 * flags as found.
 */
#ifndef SCRY_HOOK_COUNT_H
#define SCRY_HOOK_COUNT_H

#include <stdint.h>

#include "hook/inject.h"

#define SCRY_COUNT_HOOKS_MAX 64
#define SCRY_COUNT_SLOTS_MAX 64

enum scry_hook_way { SCRY_WAY_AUTO, SCRY_WAY_ENTRY, SCRY_WAY_GOT };

struct scry_count_hook {
	char symbol[128];
	char module[256]; /* path of the object that defines it */
	enum scry_hook_way way;
	uint64_t address; /* of the function */
	uint8_t window;	  /* ENTRY: bytes of the no-op */
	uint8_t old[SCRY_EDIT_MAX];
	uint64_t slots[SCRY_COUNT_SLOTS_MAX]; /* GOT */
	uint32_t slot_count;
	uint32_t counter; /* index into control->counters */
	uint64_t stub;
};

/*
 * Finds `spec` ("symbol" or "symbol@part-of-library-path") in the loaded objects and chooses the
 * way. Reads only. 0; -ENOENT no such function; -ENOTSUP neither way is safe, with the reasons.
 */
int scry_count_plan(const struct scry_proc *proc, const char *spec, enum scry_hook_way way,
		    struct scry_count_hook *ret);

/* Writes stubs, then changes all planned places: entries with every thread stopped, in one pause.
 * After scry_inject_enter. */
int scry_count_apply(struct scry_inject *inj, struct scry_count_hook *hooks, size_t count);

#endif
