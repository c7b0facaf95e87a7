/*
 * Unwind tables of the modules of a process (wire/unwind.h), in the process, for an agent that
 * walks its own thread's stack (agent/walk.c). Stopped threads are walked by sys/unwinder.
 *
 * Life: start, in `enter`, before anything is recorded; turn, now and then; done. In the process
 * the tables lie in a slab and go with the agent. What is relied on here is kept beside them.
 */
#ifndef SCRY_HOOK_UNWIND_H
#define SCRY_HOOK_UNWIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hook/inject.h"
#include "sys/modules.h"

#define SCRY_UNWIND_BYTES (24u << 20) /* for all tables; what finds no room has none */

struct scry_unwind_file;

struct scry_unwinding {
	struct scry_inject *inj;      /* NULL: not started */
	struct scry_modules *modules; /* set before start, and then one share of it is ours */
	struct scry_unwind_map *map;  /* written only: in a slab the target can write there, too */
	uint64_t address;	      /* of it, in the target */
	struct scry_unwind_index *lists; /* two; [generation & 1]: what was published last */
	uint64_t generation;
	uint64_t words, used;
	struct scry_unwind_file *files;
	size_t file_count, file_room;
	uint64_t missed, looked_ns, maps_hash;
	uint32_t depth;
	uint32_t user;		   /* set before start: whose handlers walk, enum scry_agent_user */
	size_t no_tables, no_room; /* files */
};

/* Maps the tables of all that is mapped now, and has the agent walk `depth` frames at most from its
 * next event on. 0 or -errno with a sentence. */
int scry_unwind_start(struct scry_unwinding *u, struct scry_inject *inj, struct scry_tracee *held,
		      uint32_t depth);
/* Lists what is mapped; published when it is not what was listed last. */
void scry_unwind_list(struct scry_unwinding *u);

/* Files that were mapped or unmapped since: at once when the agent has met one, else within a
 * second. */
void scry_unwind_turn(struct scry_unwinding *u);
/* What stacks lack, as a sentence: false, nothing. While the control page is there. */
bool scry_unwind_lacks(const struct scry_unwinding *u, char *ret_text, size_t size);
void scry_unwind_done(struct scry_unwinding *u);

#endif
