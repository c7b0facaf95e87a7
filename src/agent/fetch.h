/*
 * What a plan (wire/call_plan.h) names, put into a record as parts (wire/call_ring.h).
 */
#ifndef SCRY_AGENT_FETCH_H
#define SCRY_AGENT_FETCH_H

#include "agent/agent.h"
#include "wire/call_plan.h"
#include "wire/call_ring.h"

struct scry_fetching {
	const struct scry_call_plan *plan;
	const uint64_t *registers; /* at the entry: rdi, rsi, rdx, rcx, r8, r9; else NULL */
	const uint64_t *slot;	   /* of the return address */
	const uint64_t *saved;	   /* at the return */
	uint64_t rax, rdx;	   /* at the return */
	uint32_t string_max;
	int64_t errno_at; /* from the thread pointer, at the return; 0: not known */
	int has_read;	  /* out: by a system call */
};

/* Words written from `at` on, SCRY_CALL_MORE_MAX at most. */
uint32_t scry_fetch(struct scry_fetching *f, uint64_t *at);
/* The words that the return will need. */
void scry_fetch_save(const struct scry_fetching *f, uint64_t *to);

#endif
