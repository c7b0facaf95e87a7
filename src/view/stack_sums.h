/*
 * How well the sampling of stacks went, of all processes that are shown: the totals of the stacks
 * view, and its notes on them.
 */
#ifndef SCRY_VIEW_STACK_SUMS_H
#define SCRY_VIEW_STACK_SUMS_H

#include "view/doc.h"
#include "wire/payload.h"

#define SCRY_STACK_PROCESSES_SHOWN 32u

struct scry_stack_sums {
	struct scry_ev_sampling sums;
	uint32_t sampled;					  /* processes */
	struct scry_ev_sampling each[SCRY_STACK_PROCESSES_SHOWN]; /* of the first ones */
	struct scry_ev_naming naming;
	bool has_naming;
	struct scry_ev_pauses pauses;
	bool has_pauses;
};

struct scry_stack_times { /* of all samples */
	uint64_t state_ns[SCRY_STATES], wall_ns, cpu_ns, samples;
	uint64_t cpu_unknown_ns; /* of threads that were not seen while they ran */
	uint64_t idle_threads, idle_ns;
};

/* Events of the processes that are shown. */
void scry_stack_sums_sampling(struct scry_stack_sums *v, const struct scry_ev_sampling *e);
void scry_stack_sums_naming(struct scry_stack_sums *v, const struct scry_ev_naming *e);
void scry_stack_sums_pauses(struct scry_stack_sums *v, const struct scry_ev_pauses *e);

/* The totals. */
void scry_stack_sums_push(const struct scry_stack_sums *v, const struct scry_stack_times *t,
			  struct scry_doc *doc);
/* Names that cannot be trusted; programs have the total. */
void scry_stack_sums_note(const struct scry_stack_sums *v, struct scry_doc *doc);
/* Of several processes: how it went with each. */
void scry_stack_sums_each(const struct scry_stack_sums *v, struct scry_doc *doc);

#endif
