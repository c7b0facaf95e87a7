/*
 * The processes of a recording of stacks: of several, how much of the time is whose. A table before
 * that of the lines.
 */
#ifndef SCRY_VIEW_STACK_PROCESSES_H
#define SCRY_VIEW_STACK_PROCESSES_H

#include "base/map.h"
#include "view/doc.h"

struct scry_stack_process {
	uint64_t ns, samples;
	uint32_t pid;
};

struct scry_stack_processes {
	struct scry_map ids; /* pid -> index + 1 */
	struct scry_stack_process *rows;
	size_t count, room;
};

void scry_stack_processes_init(struct scry_stack_processes *k);
void scry_stack_processes_done(struct scry_stack_processes *k);

/* `ns` and `samples` more of a process. 0 or -ENOMEM, also beyond a million processes. */
int scry_stack_processes_add(struct scry_stack_processes *k, uint32_t pid, uint64_t ns,
			     uint64_t samples);

/* The table, most time first; none where there is one process. The last call: sorts. */
void scry_stack_processes_push(struct scry_stack_processes *k, uint64_t total_ns,
			       struct scry_doc *doc);

#endif
