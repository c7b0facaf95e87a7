/*
 * Lines of a Ruby as callers of native functions (agent/lines.h): planned where the process is a
 * Ruby, on while its layout holds. Whatever is in the way leaves the lines out, says why, and never
 * ends a recording.
 *
 * Life: plan; a hook is wanted on `down`; check, once hooks are planned; report, before one is on;
 * judge, now and then; done.
 */
#ifndef SCRY_INSTRUMENT_RUBY_LINES_H
#define SCRY_INSTRUMENT_RUBY_LINES_H

#include "agent/agent.h"
#include "instrument/objects/source.h"
#include "watch/watch.h"

struct scry_ruby_lines {
	struct scry_watch *watch;
	uint32_t user;			 /* whose handlers: enum scry_agent_user; set before plan */
	struct scry_ruby *ruby;		 /* NULL: it is none, or its lines are left out */
	struct scry_objects_hooks place; /* where a thread keeps its execution context */
	uint64_t depth;			 /* of the agent, as frames: agent/malloc.h */
	uint64_t down;			 /* a function that the VM calls before it is taken down */
	struct scry_agent_frames frames;
	bool is_booting; /* started by us, its VM is not up */
	bool is_unseen;	 /* it ended before its VM could be looked at */
	char why[256];	 /* they are left out; "": they are not, or it is not a Ruby */
};

/* Of is_unseen. What was recorded counts: the agent has checked each step of it. */
#define SCRY_RUBY_LINES_UNSEEN                                                                \
	"lines of Ruby rely on the layout that was learned from another process of the same " \
	"Ruby: the program ended before its own VM could be examined"

/* Reads only. */
void scry_ruby_lines_plan(struct scry_ruby_lines *l, struct scry_watch *w);
/* Leaves the lines out where the end of the VM cannot be seen. */
void scry_ruby_lines_check(struct scry_ruby_lines *l, const struct scry_hooks *hooks);
/* The agent is in, no hook is on: 0, whether lines will be recorded or not, or -errno: the process
 * is gone. Then l->ruby says which. */
int scry_ruby_lines_report(struct scry_ruby_lines *l);
/* Is the VM up now, and was looked at? Once. Its layout holds where l->ruby is there. */
bool scry_ruby_lines_judge(struct scry_ruby_lines *l);
void scry_ruby_lines_leave_out(struct scry_ruby_lines *l, const char *why);
void scry_ruby_lines_done(struct scry_ruby_lines *l);

#endif
