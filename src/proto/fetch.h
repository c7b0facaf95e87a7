/*
 * What a plan names (wire/call_plan.h), fetched from outside of the process, as the agent does it
 * from inside (agent/fetch.c): for callers that stop a thread at a function's entry and at its
 * return.
 */
#ifndef SCRY_PROTO_FETCH_H
#define SCRY_PROTO_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "wire/call_plan.h"
#include "wire/call_ring.h"

struct scry_fetch_from {
	bool is_entry;
	uint64_t registers[SCRY_CALL_ARGS_MAX]; /* at the entry: rdi, rsi, rdx, rcx, r8, r9 */
	uint64_t vectors[8];			/* the low halves of xmm0 to xmm7 */
	uint64_t stack;				/* at the entry: address above the return address */
	uint64_t saved[SCRY_PLAN_SAVED_MAX];	/* at the return: of scry_plan_save */
	uint64_t rax, rdx;			/* at the return */
	uint64_t errno_address;			/* the thread's; 0: not known */
	uint32_t string_max;
	/* Reads up to `size` bytes; returns how many could be, from the first one on, or -errno. */
	ssize_t (*read)(void *arg, uint64_t address, void *to, size_t size);
	void *arg;
};

/* The parts of a record: words written, SCRY_CALL_MORE_MAX at most. `ops` are the plan's, those of
 * the entry first. */
size_t scry_plan_fetch(const struct scry_fetch_from *from, const struct scry_call_plan *plan,
		       const struct scry_fetch *ops, uint64_t *ret);
/* At the entry: what the return will need. */
void scry_plan_save(const struct scry_fetch_from *from, const struct scry_call_plan *plan,
		    uint64_t ret[SCRY_PLAN_SAVED_MAX]);

#endif
