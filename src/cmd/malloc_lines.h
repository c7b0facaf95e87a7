/*
 * The Ruby line as a caller of the malloc family (agent/lines.c): planned where the process is a
 * Ruby, on while its layout holds. Whatever is in the way leaves the lines out, with a note that
 * says why, and never ends a recording.
 */
#ifndef SCRY_CMD_MALLOC_LINES_H
#define SCRY_CMD_MALLOC_LINES_H

#include "agent/agent.h"
#include "cmd/objects_source.h"
#include "cmd/watch.h"
#include "name/malloc.h"
#include "name/malloc_callers.h"

struct scry_malloc_lines {
	struct scry_watch *watch;
	struct scry_ruby *ruby;		/* NULL: it is none, or its lines are left out */
	struct scry_objects_hooks place; /* where a thread keeps its execution context */
	enum scry_lines how; /* of the agent, as depth: agent/malloc.h */
	uint64_t depth;
	struct scry_agent_frames frames;
	bool is_booting; /* started by us, its VM is not up */
	char why[256];	 /* they are left out; "": they are not, or it is no Ruby */
};

/* Reads only. */
void scry_malloc_lines_plan(struct scry_malloc_lines *l, struct scry_watch *w);
/* Wants the hook by which the end of the VM is waited for. 0 or -errno. */
int scry_malloc_lines_want(const struct scry_malloc_lines *l, struct scry_hooks *hooks);
/* The agent is in, no hook is on: 0, whether lines will be recorded or not, or -errno: the process
 * is gone. Then l->ruby says which. */
int scry_malloc_lines_tell(struct scry_malloc_lines *l);
/* Before the first take: lines are read from now on. */
void scry_malloc_lines_read(struct scry_malloc_lines *l, struct scry_malloc *calls);
/* Before each take: when the VM is up, its layout must hold. */
void scry_malloc_lines_turn(struct scry_malloc_lines *l, struct scry_malloc *calls);
/* At the end, before scry_malloc_finish; notes what was left out. */
void scry_malloc_lines_note(const struct scry_malloc_lines *l,
			    const struct scry_malloc_stats *calls);
void scry_malloc_lines_done(struct scry_malloc_lines *l);

#endif
